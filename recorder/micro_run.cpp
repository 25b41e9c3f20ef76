#include "recorder/micro_run.h"

#include <array>
#include <deque>
#include <stdexcept>

#include <fmt/format.h>

#include <jit/device.h>
#include <jit/device_buffer.h>

#include "runtime/driver_api.h"

namespace jit::conformance {

struct MicroRunner::State {
  explicit State(int ordinal) : context(ordinal) {}

  CurrentDevice context;
  CUlibrary loaded = nullptr;
  CUkernel kernel = nullptr;
  std::string ptx;                   // of the library
  std::array<char, 16384> log = {};  // the driver may write to it while the library lives

  void unload() {
    if (loaded) driver().cuLibraryUnload(loaded);
    loaded = nullptr;
    kernel = nullptr;
    ptx.clear();
  }
};

namespace {

CUtensorMap encode(const TensorMap& map, CUdeviceptr address) {
  CUtensorMap encoded;
  std::vector<cuuint32_t> steps = map.element_steps;
  steps.resize(map.sizes.size(), 1);
  std::vector<cuuint64_t> strides = map.strides;
  strides.resize(map.sizes.size());  // a one-dimensional tensor has no strides but needs a pointer
  check(driver().cuTensorMapEncodeTiled(
            &encoded, static_cast<CUtensorMapDataType>(map.type), static_cast<cuuint32_t>(map.sizes.size()),
            reinterpret_cast<void*>(address), map.sizes.data(), strides.data(), map.box.data(), steps.data(),
            CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(map.swizzle),
            CU_TENSOR_MAP_L2_PROMOTION_NONE, static_cast<CUtensorMapFloatOOBfill>(map.fill)),
        "cuTensorMapEncodeTiled");
  return encoded;
}

class DeviceBytes {
 public:
  explicit DeviceBytes(const std::vector<std::byte>& bytes) {
    check(driver().cuMemAlloc(&address_, bytes.size()), "cuMemAlloc");
    check(driver().cuMemcpyHtoD(address_, bytes.data(), bytes.size()), "cuMemcpyHtoD");
  }
  ~DeviceBytes() { driver().cuMemFree(address_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  CUdeviceptr address() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

}  // namespace

MicroRunner::MicroRunner(int ordinal) : state_(std::make_unique<State>(ordinal)) {}
MicroRunner::~MicroRunner() { state_->unload(); }

std::string MicroRunner::device() const {
  return fmt::format("{}, driver for CUDA {}.{}", device_info(state_->context.ordinal()).name,
                     driver().version / 1000, driver().version % 1000 / 10);
}

std::string MicroRunner::target() const {
  return to_string(native_arch(device_info(state_->context.ordinal())));
}

void MicroRunner::load(const MicroKernel& kernel) {
  State& state = *state_;
  if (state.kernel && state.ptx == kernel.ptx) return;
  state.unload();
  state.log.fill(0);
  std::array options = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {state.log.data(), reinterpret_cast<void*>(state.log.size() - 1)};
  const auto require = [&](CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    if (state.log.front() == 0) check(result, call);  // an emulated device's log has the reason
    const char* name = nullptr;
    driver().cuGetErrorName(result, &name);
    throw std::runtime_error(fmt::format("{} returned {}\n{}", call, name ? name : "?", state.log.data()));
  };
  const DriverApi& api = driver();
  require(
      api.cuLibraryLoadData(&state.loaded, kernel.ptx.c_str(), options.data(), values.data(),
                            api.emulated ? 0 : static_cast<unsigned>(options.size()), nullptr, nullptr, 0),
      "cuLibraryLoadData");
  require(api.cuLibraryGetKernel(&state.kernel, state.loaded, "micro"), "cuLibraryGetKernel");
  CUfunction function = nullptr;
  require(api.cuKernelGetFunction(&function, state.kernel), "cuKernelGetFunction");
  if (api.cuFuncLoad) require(api.cuFuncLoad(function), "cuFuncLoad");
  state.ptx = kernel.ptx;
}

std::vector<std::byte> MicroRunner::run(const MicroKernel& kernel) {
  const DriverApi& api = driver();
  if (kernel.dynamic_smem > 48 * 1024) {
    check(api.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(kernel.dynamic_smem), state_->kernel, 0),
          "cuKernelSetAttribute");
  }
  const DeviceBytes output(contents(kernel, -1));
  std::vector<CUdeviceptr> addresses = {output.address()};
  std::deque<DeviceBytes> inputs;
  for (std::size_t i = 0; i < kernel.inputs.size(); ++i) {
    addresses.push_back(inputs.emplace_back(contents(kernel, static_cast<int>(i))).address());
  }
  std::vector<CUtensorMap> maps;
  for (const TensorMap& map : kernel.maps)
    maps.push_back(encode(map, addresses.at(static_cast<std::size_t>(map.buffer + 1))));
  std::vector<void*> parameters;
  for (CUdeviceptr& address : addresses) parameters.push_back(&address);
  for (CUtensorMap& map : maps) parameters.push_back(&map);

  CUlaunchConfig config{};
  config.gridDimX = kernel.grid[0];
  config.gridDimY = kernel.grid[1];
  config.gridDimZ = kernel.grid[2];
  config.blockDimX = kernel.block[0];
  config.blockDimY = kernel.block[1];
  config.blockDimZ = kernel.block[2];
  config.sharedMemBytes = kernel.dynamic_smem;
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim.x = kernel.cluster[0];
  cluster.value.clusterDim.y = kernel.cluster[1];
  cluster.value.clusterDim.z = kernel.cluster[2];
  if (kernel.cluster != std::array<unsigned, 3>{1, 1, 1}) {
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  check(
      api.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(state_->kernel), parameters.data(), nullptr),
      "cuLaunchKernelEx");
  check(api.cuCtxSynchronize(), "cuCtxSynchronize");
  std::vector<std::byte> bytes(kernel.output.bytes());
  check(api.cuMemcpyDtoH(bytes.data(), output.address(), bytes.size()), "cuMemcpyDtoH");
  return bytes;
}

}  // namespace jit::conformance
