// A driver whose GPU computes nothing and takes no time: libcuda.so.1 for measuring what a call costs the host where
// there is no GPU. It answers what the library asks of a device as an H200 does, and hands out handles and addresses
// that nobody may read. What it is not asked for by name succeeds and does nothing. What a call must not do beside its
// launch is counted: to allocate, to copy, to wait.
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include <cuda.h>

namespace {

constexpr int version = 13000;

template <class Handle>
Handle handle(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number << 12);
}

// Numbers of anything that is made, and addresses: each is given once.
std::uintptr_t next_number = 16;
CUdeviceptr next_address = CUdeviceptr{1} << 44;

CUresult succeed() { return CUDA_SUCCESS; }

constexpr std::array<std::string_view, 18> counted = {
    "cuLaunchKernelEx",   "cuMemAlloc",        "cuMemFree",         "cuMemcpyHtoD",        "cuMemcpyDtoH",
    "cuMemcpyDtoD",       "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",   "cuMemsetD8",
    "cuMemsetD32",        "cuMemsetD8Async",   "cuMemsetD32Async",  "cuStreamSynchronize", "cuCtxSynchronize",
    "cuEventSynchronize", "cuEventRecord",     "cuStreamWaitEvent"};
std::array<unsigned long long, counted.size()> counts = {};

template <std::size_t number>
CUresult count() {
  ++counts[number];
  return CUDA_SUCCESS;
}

CUresult get_version(int* value) {
  *value = version;
  return CUDA_SUCCESS;
}

CUresult get_device_count(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult get_device(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult get_name(char* name, int size, CUdevice) {
  std::strncpy(name, "idle", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}

CUresult get_uuid(CUuuid* uuid, CUdevice) {
  *uuid = {};
  return CUDA_SUCCESS;
}

CUresult get_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = 228 << 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 50 << 20;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult get_total_memory(std::size_t* bytes, CUdevice) {
  *bytes = std::size_t{140} << 30;
  return CUDA_SUCCESS;
}

CUresult get_memory_info(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{140} << 30;
  return CUDA_SUCCESS;
}

// The context of the one device, which is always current.
CUresult get_context(CUcontext* context) {
  *context = handle<CUcontext>(1);
  return CUDA_SUCCESS;
}

CUresult retain_context(CUcontext* context, CUdevice) { return get_context(context); }

CUresult get_context_device(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult make(Handle* made, ...) {
  *made = handle<Handle>(next_number++);
  return CUDA_SUCCESS;
}

CUresult get_kernel_attribute(int* value, CUfunction_attribute, CUkernel, CUdevice) {
  *value = 64;
  return CUDA_SUCCESS;
}

CUresult get_occupancy(int* blocks, CUfunction, int, std::size_t) {
  *blocks = 1;
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  count<1>();
  static_assert(counted[1] == "cuMemAlloc");
  *address = next_address;
  next_address += (bytes + 511) / 512 * 512;
  return CUDA_SUCCESS;
}

CUresult get_stream_id(CUstream stream, unsigned long long* id) {
  *id = reinterpret_cast<std::uintptr_t>(stream);
  return CUDA_SUCCESS;
}

CUresult is_capturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult get_error_text(CUresult, const char** text) {
  *text = "an error of the idle driver";
  return CUDA_SUCCESS;
}

struct Entry {
  std::string_view name;
  void* function;
};

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

const Entry entries[] = {
    {"cuGetErrorName", address_of(get_error_text)},
    {"cuGetErrorString", address_of(get_error_text)},
    {"cuDeviceGetCount", address_of(get_device_count)},
    {"cuDeviceGet", address_of(get_device)},
    {"cuDeviceGetName", address_of(get_name)},
    {"cuDeviceGetUuid", address_of(get_uuid)},
    {"cuDeviceGetAttribute", address_of(get_attribute)},
    {"cuDeviceTotalMem", address_of(get_total_memory)},
    {"cuDevicePrimaryCtxRetain", address_of(retain_context)},
    {"cuCtxGetCurrent", address_of(get_context)},
    {"cuCtxGetDevice", address_of(get_context_device)},
    {"cuLibraryLoadData", address_of(make<CUlibrary>)},
    {"cuLibraryGetKernel", address_of(make<CUkernel>)},
    {"cuKernelGetFunction", address_of(make<CUfunction>)},
    {"cuKernelGetAttribute", address_of(get_kernel_attribute)},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", address_of(get_occupancy)},
    {"cuMemGetInfo", address_of(get_memory_info)},
    {"cuMemAlloc", address_of(allocate)},
    {"cuStreamCreate", address_of(make<CUstream>)},
    {"cuStreamGetId", address_of(get_stream_id)},
    {"cuStreamIsCapturing", address_of(is_capturing)},
    {"cuEventCreate", address_of(make<CUevent>)},
};

template <std::size_t... numbers>
void* counting_function(std::string_view name, std::index_sequence<numbers...>) {
  void* function = nullptr;
  ((counted[numbers] == name ? function = address_of(count<numbers>) : nullptr), ...);
  return function;
}

CUresult get_proc_address(const char* name, void** function, int, cuuint64_t,
                          CUdriverProcAddressQueryResult*) {
  *function = counting_function(name, std::make_index_sequence<counted.size()>());
  if (*function == nullptr) *function = address_of(succeed);
  for (const Entry& entry : entries) {
    if (entry.name == name) *function = entry.function;
  }
  return CUDA_SUCCESS;
}

}  // namespace

// Functions that are looked up by symbol. cuda.h gives the names their versions.
extern "C" {
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
/// How many calls of the counted functions there were until now: the launches, or all others together.
unsigned long long idle_driver_launches() { return counts[0]; }
unsigned long long idle_driver_other_work() {
  return std::accumulate(counts.begin() + 1, counts.end(), 0ull);
}

CUresult cuDriverGetVersion(int* value) { return get_version(value); }
CUresult cuGetProcAddress(const char* name, void** function, int since, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* result) {
  return get_proc_address(name, function, since, flags, result);
}
}
