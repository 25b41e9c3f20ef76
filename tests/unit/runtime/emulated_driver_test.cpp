// The emulated driver: devices, contexts, memory, errors.
#include <limits>
#include <thread>

#include <jit/device.h>
#include <jit/device_buffer.h>

#include "tests/support/emulated_driver_testing.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const CUcontext foreign_context = reinterpret_cast<CUcontext>(std::uintptr_t{64});

class EmulatedDriver : public EmulatedDriverTest {};

TEST_F(EmulatedDriver, ADeviceIsCurrentUntilTheEndOfItsScope) {
  EXPECT_TRUE(emulates_devices());
  EXPECT_EQ(current_device(), 0);
  {
    const CurrentDevice scope(1);
    EXPECT_EQ(current_device(), 1);
    const CurrentDevice inner(1);
    EXPECT_EQ(current_device(), 1);
  }
  EXPECT_EQ(current_device(), 0);
}

TEST_F(EmulatedDriver, AnAddressTellsItsDevice) {
  const CUdeviceptr address = allocate(64);
  EXPECT_EQ(device_of_address(address), 0);
  const int here = 0;
  EXPECT_EQ(device_of_address(reinterpret_cast<std::uintptr_t>(&here)), std::nullopt);
  EXPECT_EQ(api().cuMemFree(address), CUDA_SUCCESS);
}

TEST_F(EmulatedDriver, DevicesAreWhatWasAskedFor) {
  const std::vector<DeviceInfo> infos = devices();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].name, "emulated sm_90a");
  EXPECT_EQ(infos[1].name, "emulated sm_80");
  EXPECT_EQ(native_arch(infos[0]), (Arch{9, 0, 'a'}));
  EXPECT_EQ(native_arch(infos[1]), (Arch{8, 0, 0}));
  for (const DeviceInfo& info : infos) {
    EXPECT_TRUE(info.emulated);
    EXPECT_EQ(info.smem_per_block_optin, smem_per_block_optin(info.arch));
    EXPECT_EQ(info.smem_per_sm, smem_per_sm(info.arch));
    EXPECT_EQ(info.sm_count, usual_sm_count(info.arch));
    EXPECT_GT(info.l2_bytes, 1 << 20);
    EXPECT_EQ(info.registers_per_sm, 65536);
    EXPECT_GE(info.memory_bytes, std::size_t{1} << 20);
    EXPECT_LE(info.memory_bytes, std::size_t{16} << 30);
    EXPECT_EQ(info.driver_version, 13000);
  }
  EXPECT_NE(infos[0].uuid, infos[1].uuid);
  EXPECT_EQ(infos[0].uuid, device_info(0).uuid);
  EXPECT_EQ(error_of([] { device_info(2); }).code(), ErrorCode::invalid_argument);
}

TEST_F(EmulatedDriver, AttributesAndNamesOfDevices) {
  int value = 0;
  EXPECT_EQ(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 8);
  EXPECT_EQ(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, 0);
  expect_failure(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0),
                 CUDA_ERROR_INVALID_VALUE, "device attribute 13");
  expect_failure(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2),
                 CUDA_ERROR_INVALID_DEVICE, "no device 2");
  char name[9] = {};
  EXPECT_EQ(api().cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "emulated");
  expect_failure(api().cuDeviceGetName(name, 0, 0), CUDA_ERROR_INVALID_VALUE);
  expect_failure(api().cuDeviceGetName(nullptr, 8, 0), CUDA_ERROR_INVALID_VALUE, "name is null");
  expect_failure(api().cuDeviceGet(&value, -1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(EmulatedDriver, ContextsAreAStackOfEachThread) {
  CUcontext current = nullptr, popped = nullptr;
  EXPECT_EQ(api().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, primary_context(0));
  EXPECT_NE(primary_context(0), primary_context(1));
  push(1);
  CUdevice device = -1;
  EXPECT_EQ(api().cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(current_device(), 1);
  std::jthread([] {
    CUcontext other = foreign_context;
    EXPECT_EQ(api().cuCtxGetCurrent(&other), CUDA_SUCCESS);
    EXPECT_EQ(other, nullptr);
    expect_failure(api().cuCtxGetDevice(nullptr), CUDA_ERROR_INVALID_VALUE);
    CUdevice none = -1;
    expect_failure(api().cuCtxGetDevice(&none), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
    CUdeviceptr address = 0;
    expect_failure(api().cuMemAlloc(&address, 16), CUDA_ERROR_INVALID_CONTEXT);
    expect_failure(api().cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  EXPECT_EQ(api().cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, primary_context(1));
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(api().cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  expect_failure(api().cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
  expect_failure(api().cuCtxPushCurrent(foreign_context), CUDA_ERROR_INVALID_HANDLE, "none of a context");
}

TEST_F(EmulatedDriver, ForeignHandlesAreRefused) {
  const auto number = [](auto*& handle) {
    handle = reinterpret_cast<std::decay_t<decltype(handle)>>(0x1234567);
  };
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  number(stream), number(event), number(library), number(kernel), number(graph), number(executable);
  expect_failure(api().cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE, "stream");
  expect_failure(api().cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE, "stream");
  expect_failure(api().cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE, "event");
  expect_failure(api().cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_HANDLE, "event");
  expect_failure(api().cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE, "library");
  expect_failure(api().cuLibraryGetKernel(&kernel, library, "k"), CUDA_ERROR_INVALID_HANDLE, "library");
  expect_failure(launch(kernel, {}), CUDA_ERROR_INVALID_HANDLE, "kernel");
  expect_failure(launch(nullptr, {}), CUDA_ERROR_INVALID_HANDLE, "kernel");
  expect_failure(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_ERROR_INVALID_HANDLE,
                 "graph");
  expect_failure(api().cuGraphLaunch(executable, nullptr), CUDA_ERROR_INVALID_HANDLE, "graph");
  expect_failure(api().cuGraphDestroy(graph), CUDA_ERROR_INVALID_HANDLE, "graph");
  // Handles of another kind, and stale ones.
  ASSERT_EQ(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  expect_failure(api().cuEventDestroy(reinterpret_cast<CUevent>(stream)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api().cuStreamDestroy(stream), CUDA_SUCCESS);
  expect_failure(api().cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE, "no longer");
}

TEST_F(EmulatedDriver, MemoryIsCopiedAndFilled) {
  const CUdeviceptr a = upload({1, 2, 3, 4}), b = allocate(16);
  EXPECT_EQ(api().cuMemcpyDtoD(b, a, 16), CUDA_SUCCESS);
  EXPECT_THAT(download(b, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(api().cuMemsetD32(b + 4, 0xabcdef01, 2), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemsetD8(b, 0x5a, 4), CUDA_SUCCESS);
  EXPECT_THAT(download(b, 4), ElementsAre(0x5a5a5a5a, 0xabcdef01, 0xabcdef01, 4));
  std::uint32_t word = 0;
  EXPECT_EQ(api().cuMemsetD8Async(a + 2, 0xff, 2, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemsetD32Async(a + 8, 7, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemcpyDtoDAsync(b + 12, a + 8, 4, CU_STREAM_LEGACY), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemcpyDtoHAsync(&word, b + 12, 4, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(word, 7u);
  EXPECT_EQ(api().cuMemcpyHtoDAsync(a + 4, &word, 4, nullptr), CUDA_SUCCESS);
  EXPECT_THAT(download(a, 4), ElementsAre(0xffff0001, 7, 7, 4));
  EXPECT_EQ(api().cuMemcpyDtoH(nullptr, a, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(a), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(b), CUDA_SUCCESS);
}

TEST_F(EmulatedDriver, WrongMemoryCallsAreRefused) {
  const CUdeviceptr a = upload({1, 2, 3, 4});
  std::uint32_t words[5] = {};
  expect_failure(api().cuMemcpyDtoH(words, a, 20), CUDA_ERROR_INVALID_VALUE, "20 bytes");
  expect_failure(api().cuMemcpyHtoD(a + 12, words, 8), CUDA_ERROR_INVALID_VALUE, "within one allocation");
  expect_failure(api().cuMemcpyHtoD(0, words, 8), CUDA_ERROR_INVALID_VALUE, "at 0x0");
  expect_failure(api().cuMemcpyHtoD(a, nullptr, 8), CUDA_ERROR_INVALID_VALUE, "srcHost is null");
  expect_failure(api().cuMemcpyDtoD(a, a + 8, 16), CUDA_ERROR_INVALID_VALUE);
  expect_failure(api().cuMemsetD32(a + 2, 0, 1), CUDA_ERROR_INVALID_VALUE, "aligned to 4");
  expect_failure(api().cuMemsetD32(a, 0, std::numeric_limits<std::size_t>::max() / 2),
                 CUDA_ERROR_INVALID_VALUE);
  expect_failure(api().cuMemFree(a + 4), CUDA_ERROR_INVALID_VALUE, "start of an allocation");
  EXPECT_THAT(download(a, 4), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(api().cuMemFree(a), CUDA_SUCCESS);
  expect_failure(api().cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
  expect_failure(api().cuMemcpyDtoH(words, a, 4), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr none = 0;
  expect_failure(api().cuMemAlloc(&none, 0), CUDA_ERROR_INVALID_VALUE);
  expect_failure(api().cuMemAlloc(&none, std::size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY, "asked for");
  EXPECT_EQ(error_of([] { DeviceBuffer(0, std::size_t{1} << 50); }).native_code(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(EmulatedDriver, MemoryKnowsItsDevice) {
  const CUdeviceptr here = upload({1, 2});
  push(1);
  const CUdeviceptr there = upload({3, 4});
  EXPECT_EQ(api().cuMemcpyDtoD(there, here, 4), CUDA_SUCCESS);  // across devices
  EXPECT_THAT(download(there, 2), ElementsAre(1, 4));
  for (const auto& [address, device] : {std::pair(here, 0), {there, 1}}) {
    int ordinal = -1;
    EXPECT_EQ(api().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address + 4),
              CUDA_SUCCESS);
    EXPECT_EQ(ordinal, device);
    CUcontext context = nullptr;
    EXPECT_EQ(api().cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address), CUDA_SUCCESS);
    EXPECT_EQ(context, primary_context(device));
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(api().cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 7),
              CUDA_SUCCESS);
    EXPECT_EQ(api().cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 7),
              CUDA_SUCCESS);
    EXPECT_EQ(start, address);
    EXPECT_EQ(bytes, 8u);
  }
  int ordinal = -1;
  expect_failure(api().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, here + 8),
                 CUDA_ERROR_INVALID_VALUE);
  expect_failure(api().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_P2P_TOKENS, here),
                 CUDA_ERROR_INVALID_VALUE, "pointer attribute");
  std::size_t free_before = 0, free_after = 0, total = 0;
  EXPECT_EQ(api().cuMemGetInfo(&free_before, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, device_info(1).memory_bytes);
  EXPECT_EQ(api().cuMemFree(here), CUDA_SUCCESS);  // of another device than the current one
  EXPECT_EQ(api().cuMemFree(there), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemGetInfo(&free_after, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_after, free_before + 8);
}

TEST_F(EmulatedDriver, ErrorsHaveNamesAndTheLastOneItsText) {
  const char* text = nullptr;
  EXPECT_EQ(api().cuGetErrorName(CUDA_ERROR_LAUNCH_FAILED, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_LAUNCH_FAILED");
  EXPECT_EQ(api().cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  expect_failure(api().cuMemFree(77), CUDA_ERROR_INVALID_VALUE, "0x4d");
  EXPECT_EQ(text_of(CUDA_ERROR_LAUNCH_FAILED), "the kernel failed");
  std::jthread([] { EXPECT_EQ(text_of(CUDA_ERROR_INVALID_VALUE), "an argument is out of range"); }).join();
  CUcontext context = nullptr;
  EXPECT_EQ(api().cuCtxGetCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(text_of(CUDA_ERROR_INVALID_VALUE), "an argument is out of range");
  const Error error = error_of([] { check(api().cuMemFree(78), "cuMemFree"); });
  EXPECT_THAT(error.message(), HasSubstr("cuMemFree failed: CUDA_ERROR_INVALID_VALUE, 0x4e"));
}

TEST_F(EmulatedDriver, TensorMapsAreValidated) {
  struct Map {
    CUtensorMap map;
  } map;
  const CUdeviceptr address = allocate(1 << 16);
  const cuuint64_t dimensions[] = {64, 128}, strides[] = {128};
  const cuuint32_t steps[] = {1, 1};
  const auto encode = [&](cuuint32_t rank, const std::vector<cuuint32_t>& box, CUtensorMapSwizzle swizzle) {
    return api().cuTensorMapEncodeTiled(
        &map.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, reinterpret_cast<void*>(address), dimensions,
        strides, box.data(), steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  EXPECT_EQ(encode(2, {64, 32}, CU_TENSOR_MAP_SWIZZLE_128B), CUDA_SUCCESS);
  expect_failure(encode(2, {64, 32}, CU_TENSOR_MAP_SWIZZLE_64B), CUDA_ERROR_INVALID_VALUE, "boxDim[0] = 32");
  expect_failure(encode(2, {64, 300}, CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_ERROR_INVALID_VALUE,
                 "boxDim[1] = 300");
  expect_failure(encode(6, {64, 32}, CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_ERROR_INVALID_VALUE,
                 "tensorRank is 6");
  expect_failure(encode(2, {64, 32}, static_cast<CUtensorMapSwizzle>(256)), CUDA_ERROR_INVALID_VALUE,
                 "swizzle");
  EXPECT_EQ(api().cuMemFree(address), CUDA_SUCCESS);
}

}  // namespace
}  // namespace jit::testing
