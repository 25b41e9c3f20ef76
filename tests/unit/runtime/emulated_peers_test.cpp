// The emulated driver: devices that see each other's memory.
#include <functional>
#include <vector>

#include "tests/support/emulated_driver_testing.h"

namespace jit::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// `wait(flag, value, from, to)` waits until the flag has the value and copies 32 words; `tell(to, flag, value)` stores the
// value to 32 words, then to the flag. SCOPE is that of both.
std::string waiting_kernels(const std::string& scope) {
  return R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry wait(.param .u64 flag, .param .u32 value, .param .u64 from, .param .u64 to) {
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  .reg .pred %p1;
  ld.param.u64 %rd1, [flag];
  ld.param.u32 %r1, [value];
  ld.param.u64 %rd2, [from];
  ld.param.u64 %rd3, [to];
AGAIN:
  ld.acquire.)" +
         scope + R"(.global.u32 %r2, [%rd1];
  setp.ne.u32 %p1, %r2, %r1;
  @%p1 bra AGAIN;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd4, %r3, 4;
  add.u64 %rd5, %rd2, %rd4;
  add.u64 %rd6, %rd3, %rd4;
  ld.global.u32 %r4, [%rd5];
  st.global.u32 [%rd6], %r4;
  ret;
}
.visible .entry tell(.param .u64 to, .param .u64 flag, .param .u32 value) {
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  .reg .pred %p1;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [flag];
  ld.param.u32 %r1, [value];
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd4, %r3, 4;
  add.u64 %rd5, %rd1, %rd4;
  st.global.u32 [%rd5], %r1;
  bar.sync 0;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 st.release.)" +
         scope + R"(.global.u32 [%rd2], %r1;
  ret;
}
)";
}

/// A process computes on one choice of devices: here on two alike.
class EmulatedPeers : public EmulatedDriverTest {
 protected:
  static void SetUpTestSuite() { use_device("emulated:sm_90a,sm_90a"); }
  void SetUp() override {
    EmulatedDriverTest::SetUp();
    library_ = load(waiting_kernels("sys"));
    narrow_ = load(waiting_kernels("gpu"));
    for (int device = 0; device < 2; ++device) {
      push(device);
      data_[device] = upload(std::vector<std::uint32_t>(64, 0));
      out_[device] = upload(std::vector<std::uint32_t>(64, 0));
      EXPECT_EQ(api().cuStreamCreate(&stream_[device], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      EXPECT_EQ(api().cuStreamCreate(&other_[device], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    push(0);
  }
  static void see_each_other() {
    for (int device = 0; device < 2; ++device) {
      push(device);
      ASSERT_EQ(api().cuCtxEnablePeerAccess(primary_context(1 - device), 0), CUDA_SUCCESS);
    }
    push(0);
  }
  CUdeviceptr flag(int device) const { return data_[device] + 128; }
  // Waits on `device` for `value` at its own flag.
  void wait(int device, unsigned value, CUlibrary library = nullptr) const {
    push(device);
    EXPECT_EQ(launch(kernel_of(library ? library : library_, "wait"), {.stream = stream_[device]},
                     flag(device), value, data_[device], out_[device]),
              CUDA_SUCCESS);
  }
  // Tells the other device of `value`.
  void tell(int device, unsigned value, CUlibrary library = nullptr) const {
    push(device);
    EXPECT_EQ(launch(kernel_of(library ? library : library_, "tell"), {.stream = stream_[device]},
                     data_[1 - device], flag(1 - device), value),
              CUDA_SUCCESS);
  }
  CUresult synchronize(int device) const {
    push(device);
    return api().cuStreamSynchronize(stream_[device]);
  }

  std::string failures() const {
    std::string text;
    for (int device = 0; device < 2; ++device) {
      if (const CUresult result = synchronize(device); result != CUDA_SUCCESS) text += text_of(result);
    }
    return text;
  }

  CUlibrary library_ = nullptr, narrow_ = nullptr;
  CUdeviceptr data_[2] = {}, out_[2] = {};
  CUstream stream_[2] = {}, other_[2] = {};
};

TEST_F(EmulatedPeers, AccessIsEnabledByPairs) {
  int can = -1;
  EXPECT_EQ(api().cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(api().cuDeviceCanAccessPeer(&can, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  expect_failure(api().cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
  expect_failure(launch(kernel_of(library_, "tell"), {.stream = stream_[0]}, data_[1], flag(1), 7u),
                 CUDA_ERROR_LAUNCH_FAILED, "out of bounds");
  EXPECT_EQ(api().cuCtxEnablePeerAccess(primary_context(1), 0), CUDA_SUCCESS);
  expect_failure(api().cuCtxEnablePeerAccess(primary_context(1), 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  expect_failure(api().cuCtxEnablePeerAccess(primary_context(0), 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  expect_failure(api().cuCtxEnablePeerAccess(primary_context(1), 1), CUDA_ERROR_INVALID_VALUE, "Flags");
  tell(0, 7);
  EXPECT_EQ(synchronize(0), CUDA_SUCCESS);
  EXPECT_THAT(download(data_[1], 32), Each(7u));
  tell(1, 8);
  expect_failure(synchronize(1), CUDA_ERROR_LAUNCH_FAILED, "out of bounds");
  EXPECT_EQ(synchronize(1), CUDA_SUCCESS) << "it is told once";
  push(0);
  EXPECT_EQ(api().cuCtxDisablePeerAccess(primary_context(1)), CUDA_SUCCESS);
  expect_failure(api().cuCtxDisablePeerAccess(primary_context(1)), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

TEST_F(EmulatedPeers, KernelsWaitForEachOther) {
  see_each_other();
  for (unsigned round = 1; round < 4; ++round) {
    // The wait that is enqueued first ends last.
    wait(0, round);
    tell(0, round + 10);
    push(1);
    EXPECT_EQ(launch(kernel_of(library_, "tell"), {.stream = other_[1]}, data_[0], flag(0), round),
              CUDA_SUCCESS);
    wait(1, round + 10);
    EXPECT_EQ(synchronize(1), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(0), CUDA_SUCCESS);
    EXPECT_EQ(api().cuStreamSynchronize(other_[1]), CUDA_SUCCESS);
    EXPECT_THAT(download(out_[0], 32), Each(round));
    EXPECT_THAT(download(out_[1], 32), Each(round + 10));
  }
}

TEST_F(EmulatedPeers, OrderIsThatOfTheSystem) {
  see_each_other();
  wait(1, 5);
  tell(0, 5);
  EXPECT_EQ(synchronize(1), CUDA_SUCCESS);
  EXPECT_THAT(download(out_[1], 32), Each(5u));
  // Who is second is told.
  wait(1, 6, narrow_);
  tell(0, 6);
  EXPECT_THAT(failures(), HasSubstr("data race"));
  wait(1, 7);
  tell(0, 7, narrow_);
  EXPECT_THAT(failures(), HasSubstr("data race"));
}

TEST_F(EmulatedPeers, CopiesAndWrittenValues) {
  see_each_other();
  const std::vector<std::uint32_t> values(32, 9);
  EXPECT_EQ(api().cuMemcpyHtoD(data_[0], values.data(), 128), CUDA_SUCCESS);
  wait(1, 1);
  push(0);
  EXPECT_EQ(
      api().cuMemcpyPeerAsync(data_[1], primary_context(1), data_[0], primary_context(0), 128, stream_[0]),
      CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWriteValue32(stream_[0], flag(1), 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(synchronize(1), CUDA_SUCCESS);
  EXPECT_THAT(download(out_[1], 32), Each(9u));
  // And the stream of the other device waits for a value.
  push(1);
  EXPECT_EQ(api().cuStreamWaitValue32(other_[1], flag(1), 2, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemcpyDtoDAsync(out_[0], data_[1], 128, other_[1]), CUDA_SUCCESS);
  tell(0, 2);
  push(1);
  EXPECT_EQ(api().cuStreamSynchronize(other_[1]), CUDA_SUCCESS);
  EXPECT_THAT(download(out_[0], 32), Each(2u));
  expect_failure(
      api().cuMemcpyPeerAsync(data_[1], primary_context(0), data_[0], primary_context(0), 128, stream_[0]),
      CUDA_ERROR_INVALID_VALUE, "no memory of its context's device");
  expect_failure(api().cuStreamWriteValue32(stream_[1], flag(1) + 2, 1, 0), CUDA_ERROR_INVALID_VALUE,
                 "aligned");
  expect_failure(api().cuStreamWaitValue32(stream_[1], flag(1), 1, 9), CUDA_ERROR_INVALID_VALUE,
                 "comparison");
}

TEST_F(EmulatedPeers, WithoutPeersAWaitMustBeOver) {
  EXPECT_EQ(api().cuStreamWriteValue32(stream_[0], flag(0), 3, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitValue32(stream_[0], flag(0), 3, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  expect_failure(api().cuStreamWaitValue32(stream_[0], flag(0), 4, CU_STREAM_WAIT_VALUE_EQ),
                 CUDA_ERROR_LAUNCH_FAILED, "cuCtxEnablePeerAccess");
}

TEST_F(EmulatedPeers, EventsOrderStreamsOfTwoDevices) {
  see_each_other();
  CUevent event = nullptr;
  EXPECT_EQ(api().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  tell(0, 4);
  EXPECT_EQ(api().cuEventRecord(event, stream_[0]), CUDA_SUCCESS);
  float time = 0;
  expect_failure(api().cuEventElapsedTime(&time, event, event), CUDA_ERROR_NOT_READY);
  push(1);
  EXPECT_EQ(api().cuStreamWaitEvent(stream_[1], event, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemcpyDtoDAsync(out_[1], data_[1], 128, stream_[1]), CUDA_SUCCESS);
  EXPECT_EQ(synchronize(1), CUDA_SUCCESS);
  EXPECT_THAT(download(out_[1], 32), Each(4u));
  push(0);
  EXPECT_EQ(api().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventElapsedTime(&time, event, event), CUDA_SUCCESS);
  // Without the event nothing orders them.
  tell(0, 5);
  push(1);
  EXPECT_EQ(api().cuMemcpyDtoDAsync(out_[1], data_[1], 128, stream_[1]), CUDA_SUCCESS);
  EXPECT_THAT(failures(), HasSubstr("data race"));
}

TEST_F(EmulatedPeers, GraphsWaitForEachOther) {
  see_each_other();
  CUgraphExec executables[2] = {};
  CUevent fork = nullptr, join = nullptr;
  push(0);
  EXPECT_EQ(api().cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventCreate(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  // Device 0 waits on one stream, and tells on another one of the same graph, captured behind it.
  ASSERT_EQ(api().cuStreamBeginCapture(stream_[0], CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(fork, stream_[0]), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(other_[0], fork, 0), CUDA_SUCCESS);
  wait(0, 1);
  EXPECT_EQ(launch(kernel_of(library_, "tell"), {.stream = other_[0]}, data_[1], flag(1), 2u), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(join, other_[0]), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(stream_[0], join, 0), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(api().cuStreamEndCapture(stream_[0], &graph), CUDA_SUCCESS);
  ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executables[0], graph, 0), CUDA_SUCCESS);
  push(1);
  ASSERT_EQ(api().cuStreamBeginCapture(stream_[1], CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  wait(1, 2);
  tell(1, 1);
  ASSERT_EQ(api().cuStreamEndCapture(stream_[1], &graph), CUDA_SUCCESS);
  ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executables[1], graph, 0), CUDA_SUCCESS);
  for (int replay = 0; replay < 2; ++replay) {
    for (int device = 0; device < 2; ++device) {
      push(device);
      EXPECT_EQ(api().cuMemsetD8(data_[device], 0, 256), CUDA_SUCCESS);
    }
    for (int device = 0; device < 2; ++device) {
      push(device);
      EXPECT_EQ(api().cuGraphLaunch(executables[device], stream_[device]), CUDA_SUCCESS);
    }
    EXPECT_EQ(synchronize(0), CUDA_SUCCESS);
    EXPECT_EQ(synchronize(1), CUDA_SUCCESS);
    push(0);
    EXPECT_THAT(download(out_[0], 32), Each(1u));
    EXPECT_THAT(download(out_[1], 32), Each(2u));
  }
}

// Graphs whose second streams were captured on the same one: launched into two streams, nothing orders them.
TEST_F(EmulatedPeers, BranchesOfTwoGraphsRunSideBySide) {
  see_each_other();
  CUstream beside = nullptr;
  CUevent fork = nullptr, join = nullptr;
  EXPECT_EQ(api().cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventCreate(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  const auto captured = [&](CUdeviceptr own, const std::function<CUresult()>& branch) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    EXPECT_EQ(api().cuStreamBeginCapture(stream_[0], CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(api().cuMemsetD8Async(own, 0, 4, stream_[0]), CUDA_SUCCESS);
    EXPECT_EQ(api().cuEventRecord(fork, stream_[0]), CUDA_SUCCESS);
    EXPECT_EQ(api().cuStreamWaitEvent(other_[0], fork, 0), CUDA_SUCCESS);
    EXPECT_EQ(branch(), CUDA_SUCCESS);
    EXPECT_EQ(api().cuEventRecord(join, other_[0]), CUDA_SUCCESS);
    EXPECT_EQ(api().cuStreamWaitEvent(stream_[0], join, 0), CUDA_SUCCESS);
    EXPECT_EQ(api().cuStreamEndCapture(stream_[0], &graph), CUDA_SUCCESS);
    EXPECT_EQ(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    return executable;
  };
  const CUgraphExec waiting = captured(out_[0] + 128, [&] {
    return launch(kernel_of(library_, "wait"), {.stream = other_[0]}, flag(0), 3u, data_[0], out_[0]);
  });
  const CUgraphExec telling = captured(out_[0] + 192, [&] {
    return launch(kernel_of(library_, "tell"), {.stream = other_[0]}, data_[0], flag(0), 3u);
  });
  EXPECT_EQ(api().cuGraphLaunch(waiting, stream_[0]), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphLaunch(telling, beside), CUDA_SUCCESS);
  EXPECT_EQ(synchronize(0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(beside), CUDA_SUCCESS);
  EXPECT_THAT(download(out_[0], 32), Each(3u));
}

TEST_F(EmulatedPeers, WhoWaitsInVainIsTold) {
  see_each_other();
  wait(0, 77);
  expect_failure(synchronize(0), CUDA_ERROR_LAUNCH_FAILED, "deadlock");
}

TEST_F(EmulatedPeers, WhatWasFoundOutlastsTheMemory) {
  see_each_other();
  const CUdeviceptr more = upload(std::vector<std::uint32_t>(32, 0));
  EXPECT_EQ(launch(kernel_of(library_, "tell"), {.stream = stream_[0]}, more + 64, flag(1), 7u),
            CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(more), CUDA_SUCCESS) << "the work is done before, and the memory is free";
  expect_failure(synchronize(0), CUDA_ERROR_LAUNCH_FAILED, "out of bounds");
}

TEST_F(EmulatedPeers, TheDefaultStreamAndOthersOfADeviceWaitForEachOther) {
  see_each_other();
  CUstream blocking = nullptr;
  push(1);
  EXPECT_EQ(api().cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  const CUkernel tell_kernel = kernel_of(library_, "tell");
  for (unsigned round = 1; round < 20; ++round) {
    EXPECT_EQ(launch(tell_kernel, {.stream = blocking}, data_[0], flag(0), round), CUDA_SUCCESS);
    EXPECT_EQ(launch(tell_kernel, {}, data_[0], flag(0), round + 100), CUDA_SUCCESS);
    EXPECT_EQ(launch(tell_kernel, {.stream = blocking}, data_[0], flag(0), round + 200), CUDA_SUCCESS);
    EXPECT_EQ(api().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_THAT(download(data_[0], 33), Each(round + 200));
  }
}

}  // namespace
}  // namespace jit::testing
