// The driver side of the runtime, on a device.
#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/error.h>

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/capture.h"
#include "runtime/compiler.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"
#include "runtime/module.h"
#include "runtime/timer.h"
#include "tests/device/gpu_fixture.h"

namespace jit {
namespace {

class RuntimeTest : public testing::GpuTest {
 protected:
  CompileResult compile_here(const std::string& body) const {
    return compile(find_nvrtc(""),
                   {.name = "/jit-attention/kernel.cu",
                    .source = "extern \"C\" __global__ void k(int* p, int n) { " + body + " }",
                    .headers = {},
                    .arch = native_arch(device_),
                    .options = {},
                    .kernel = "k"});
  }
  /// Loads the compiled program in the form that the device runs.
  Module load(const CompileResult& compiled) const {
    return device_.emulated ? Module(compiled.ptx) : Module(compiled.cubin);
  }
};

void launch_on(const Kernel& kernel, const DeviceBuffer& buffer, int n, CUstream stream,
               unsigned smem_bytes = 0) {
  CUdeviceptr p = buffer.address();
  void* params[] = {&p, &n};
  launch(kernel.handle(), {.grid = {1, 1, 1}, .block = {32, 1, 1}, .smem_bytes = smem_bytes}, params, stream);
}

TEST_F(RuntimeTest, TablesAgreeWithTheDevice) {
  EXPECT_EQ(device_.smem_per_block_optin, smem_per_block_optin(device_.arch));
  EXPECT_EQ(device_.smem_per_sm, smem_per_sm(device_.arch));
  EXPECT_GT(device_.sm_count, 0);
  EXPECT_GT(device_.l2_bytes, 0);
  EXPECT_GT(device_.memory_bytes, 0u);
  EXPECT_TRUE(device_.uuid.starts_with("GPU-"));
  EXPECT_EQ(device_.uuid.size(), 40u);
  EXPECT_EQ(devices().front().name, device_.name);
  EXPECT_THROW(device_info(1000), Error);
  EXPECT_THROW(device_info(-1), Error);
}

TEST_F(RuntimeTest, RunsAKernelOnAThreadWithoutContext) {
  const CompileResult compiled = compile_here("p[threadIdx.x] = n + threadIdx.x;");
  std::jthread([&] {
    const Kernel kernel = load(compiled).kernel("k");
    kernel.force_load(0);
    if (!device_.emulated) {
      EXPECT_EQ(kernel.facts(0).registers, compiled.resources.registers);
    }
    EXPECT_EQ(kernel.facts(0).local_bytes, compiled.resources.stack_bytes);
    EXPECT_GT(kernel.blocks_per_sm(0, 32, 0), 0);
    const DeviceBuffer buffer(0, 32 * sizeof(int));
    const CurrentDevice context(0);
    launch_on(kernel, buffer, 5, nullptr);
    std::vector<int> values(32);
    buffer.download(values.data(), buffer.size());
    for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], 5 + i);
  });
}

TEST_F(RuntimeTest, TheDeviceThatIsCurrentStaysSo) {
  CUcontext context = nullptr;
  std::jthread([&] {
    const CurrentDevice none;
    EXPECT_EQ(none.ordinal(), 0) << "device 0 where none is current";
    EXPECT_EQ(driver().cuCtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_NE(context, nullptr);
  }).join();
  const int last = static_cast<int>(devices().size()) - 1;
  const CurrentDevice current(last);
  const CurrentDevice same;
  EXPECT_EQ(same.ordinal(), last);
  EXPECT_EQ(current_device(), last);
}

TEST_F(RuntimeTest, LeavesNoContextCurrent) {
  std::jthread([] {
    { const CurrentDevice context(0); }
    CUcontext current = nullptr;
    driver().cuCtxGetCurrent(&current);
    EXPECT_EQ(current, nullptr);
    EXPECT_EQ(current_device(), 0);
  });
}

TEST_F(RuntimeTest, DynamicSharedMemoryUpToTheLimit) {
  const Kernel kernel =
      load(compile_here("extern __shared__ int s[]; s[n] = n; __syncthreads(); *p = s[n];")).kernel("k");
  const CurrentDevice context(0);
  const DeviceBuffer buffer(0, sizeof(int));
  const int bytes = device_.smem_per_block_optin;
  try {
    launch_on(kernel, buffer, bytes / 4 - 1, nullptr, bytes);
    ADD_FAILURE() << "launched without the attribute";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::launch_failed);
    EXPECT_EQ(error.native_code(), CUDA_ERROR_INVALID_VALUE);
  }
  kernel.set_dynamic_smem(0, bytes);
  launch_on(kernel, buffer, bytes / 4 - 1, nullptr, bytes);
  int value = 0;
  buffer.download(&value, sizeof(value));
  EXPECT_EQ(value, bytes / 4 - 1);
  EXPECT_THROW(kernel.set_dynamic_smem(0, bytes + 1), Error);
}

TEST_F(RuntimeTest, RefusesBadImagesAndNames) {
  const CompileResult compiled = compile_here("*p = n;");
  EXPECT_THROW(load(compiled).kernel("absent"), Error);
  const std::vector<std::byte>& cubin = compiled.cubin;
  for (std::size_t length : {std::size_t{0}, std::size_t{16}, cubin.size() / 2, cubin.size() - 1}) {
    EXPECT_THROW(Module(std::span(cubin).first(length)), Error) << length;
  }
}

TEST_F(RuntimeTest, LoadsAndLaunchesDuringCapture) {
  const CompileResult compiled = compile_here("atomicAdd(p, n);"),
                      other = compile_here("atomicAdd(p, 2 * n);");
  const CurrentDevice context(0);
  const DriverApi& api = driver();
  for (CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    const DeviceBuffer buffer(0, sizeof(int));
    const int zero = 0;
    buffer.upload(&zero, sizeof(zero));
    CUstream stream = nullptr;
    check(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    EXPECT_FALSE(is_capturing(stream));
    const Kernel warm = load(compiled).kernel("k");
    warm.force_load(0);
    check(api.cuStreamBeginCapture(stream, mode), "cuStreamBeginCapture");
    EXPECT_TRUE(is_capturing(stream));
    launch_on(warm, buffer, 1, stream);
    const Kernel cold = load(other).kernel("k");
    cold.force_load(0);
    launch_on(cold, buffer, 1, stream);
    CUgraph graph = nullptr;
    check(api.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    CUgraphExec executable = nullptr;
    check(api.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
    for (int i = 0; i < 3; ++i) check(api.cuGraphLaunch(executable, stream), "cuGraphLaunch");
    check(api.cuStreamSynchronize(stream), "cuStreamSynchronize");
    int value = 0;
    buffer.download(&value, sizeof(value));
    EXPECT_EQ(value, 3 * 32 * 3);
    api.cuGraphExecDestroy(executable);
    api.cuGraphDestroy(graph);
    api.cuStreamDestroy(stream);
  }
}

// A GPU's driver compiles PTX itself.
TEST_F(RuntimeTest, LoadsPtx) {
  const Kernel kernel = Module(compile_here("p[threadIdx.x] = n * threadIdx.x;").ptx).kernel("k");
  const DeviceBuffer buffer(0, 32 * sizeof(int));
  const CurrentDevice context(0);
  launch_on(kernel, buffer, 3, nullptr);
  std::vector<int> values(32);
  buffer.download(values.data(), buffer.size());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], 3 * i);
  // A GPU's driver reads the text when a kernel of it is asked for.
  EXPECT_THROW(Module(std::string("nonsense")).kernel("k"), Error);
}

TEST_F(RuntimeTest, TimesWork) {
  if (device_.emulated) GTEST_SKIP() << "an emulated device does not model time";
  const Kernel kernel = load(compile_here("for (int i = 0; i < n; ++i) __nanosleep(1000);")).kernel("k");
  const DeviceBuffer buffer(0, 4);
  EventTimer timer(0);
  const auto time = [&](int n) {
    return timer.measure([&](CUstream stream) { launch_on(kernel, buffer, n, stream); }, 2, 9).median_us;
  };
  const double brief = time(10);
  const double lengthy = time(1000);
  EXPECT_GT(brief, 0);
  EXPECT_GT(lengthy, 5 * brief);
}

}  // namespace
}  // namespace jit
