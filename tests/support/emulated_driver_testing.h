// Shared by tests of the emulated driver: two devices, small kernels in PTX, failures with their text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <jit/device.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/driver_api.h"

namespace jit::testing {

/// Device 0 is an sm_90a, device 1 an sm_80; a context of device 0 is current.
class EmulatedDriverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { use_device("emulated:sm_90a,sm_80"); }
  void SetUp() override { push(0); }
  void TearDown() override {
    CUcontext context = nullptr;
    while (api().cuCtxPopCurrent(&context) == CUDA_SUCCESS) {
    }
  }

  static const DriverApi& api() { return driver(); }

  static CUcontext primary_context(int device) {
    CUcontext context = nullptr;
    EXPECT_EQ(api().cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    return context;
  }
  static void push(int device) { EXPECT_EQ(api().cuCtxPushCurrent(primary_context(device)), CUDA_SUCCESS); }

  /// Expects the last call of this thread to have failed so, with this in its text.
  static void expect_failure(CUresult result, CUresult expected, const std::string& part_of_text = "") {
    ASSERT_EQ(result, expected) << text_of(result);
    EXPECT_THAT(text_of(result), ::testing::HasSubstr(part_of_text));
  }
  static std::string text_of(CUresult result) {
    const char* text = nullptr;
    return api().cuGetErrorString(result, &text) == CUDA_SUCCESS ? text : "";
  }

  static CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(api().cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  static CUdeviceptr upload(const std::vector<std::uint32_t>& values) {
    const CUdeviceptr address = allocate(values.size() * 4);
    EXPECT_EQ(api().cuMemcpyHtoD(address, values.data(), values.size() * 4), CUDA_SUCCESS);
    return address;
  }
  static std::vector<std::uint32_t> download(CUdeviceptr address, std::size_t count) {
    std::vector<std::uint32_t> values(count);
    EXPECT_EQ(api().cuMemcpyDtoH(values.data(), address, count * 4), CUDA_SUCCESS);
    return values;
  }

  static CUlibrary load(const std::string& ptx) {
    CUlibrary library = nullptr;
    const CUresult result =
        api().cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    EXPECT_EQ(result, CUDA_SUCCESS) << text_of(result);
    return library;
  }
  static CUkernel kernel_of(CUlibrary library, const char* name) {
    CUkernel kernel = nullptr;
    const CUresult result = api().cuLibraryGetKernel(&kernel, library, name);
    EXPECT_EQ(result, CUDA_SUCCESS) << text_of(result);
    return kernel;
  }

  struct Shape {
    unsigned grid = 1, block = 32, smem = 0;
    CUstream stream = nullptr;
    std::vector<CUlaunchAttribute> attributes = {};
  };
  /// Launches over a one-dimensional grid.
  template <class... Arguments>
  static CUresult launch(CUkernel kernel, const Shape& shape, Arguments... arguments) {
    CUlaunchConfig config{};
    config.gridDimX = shape.grid;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = shape.block;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shape.smem;
    config.hStream = shape.stream;
    config.attrs = const_cast<CUlaunchAttribute*>(shape.attributes.data());
    config.numAttrs = static_cast<unsigned>(shape.attributes.size());
    void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
    return api().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel), pointers, nullptr);
  }
};

/// A module for sm_80 or later with two kernels: `add(p, n)` adds n to p[thread of the grid], `put(p, n)`
/// stores n there.
inline std::string two_kernels(const std::string& target = "sm_80") {
  const auto kernel = [](const std::string& name, const std::string& load) {
    return ".visible .entry " + name + R"((.param .u64 p, .param .u32 n) {
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r5, %r3, %r4, %r2;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
)" + load + R"(
  st.global.u32 [%rd3], %r7;
  ret;
}
)";
  };
  return ".version 8.0\n.target " + target + "\n.address_size 64\n" +
         kernel("add", "  ld.global.u32 %r6, [%rd3];\n  add.s32 %r7, %r6, %r1;") +
         kernel("put", "  mov.u32 %r7, %r1;");
}

}  // namespace jit::testing
