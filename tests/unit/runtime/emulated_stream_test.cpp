// The emulated driver: streams, capture, graphs, events.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <jit/stream.h>

#include "runtime/capture.h"
#include "tests/support/emulated_driver_testing.h"

namespace jit::testing {
namespace {

using ::testing::ElementsAre;

class EmulatedStreams : public EmulatedDriverTest {
 protected:
  void SetUp() override {
    EmulatedDriverTest::SetUp();
    library_ = load(two_kernels());
    add_ = kernel_of(library_, "add");
    data_ = upload(std::vector<std::uint32_t>(32, 0));
    stream_ = create(CU_STREAM_NON_BLOCKING);
    other_ = create(CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(api().cuEventCreate(&event_, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    EXPECT_EQ(api().cuEventCreate(&back_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  void TearDown() override {
    api().cuEventDestroy(event_);
    api().cuEventDestroy(back_);
    api().cuStreamDestroy(stream_);
    api().cuStreamDestroy(other_);
    api().cuMemFree(data_);
    api().cuLibraryUnload(library_);
    EmulatedDriverTest::TearDown();
  }

  static CUstream create(unsigned flags) {
    CUstream stream = nullptr;
    EXPECT_EQ(api().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }
  CUresult add(unsigned n, CUstream stream) const { return launch(add_, {.stream = stream}, data_, n); }
  std::uint32_t value() const { return download(data_, 1)[0]; }
  void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    ASSERT_EQ(api().cuStreamBeginCapture(stream_, mode), CUDA_SUCCESS);
  }
  CUgraph end() const {
    CUgraph graph = nullptr;
    const CUresult result = api().cuStreamEndCapture(stream_, &graph);
    EXPECT_EQ(result, CUDA_SUCCESS) << text_of(result);
    return graph;
  }
  void end_spoilt(CUresult expected) const {
    CUgraph graph = nullptr;
    expect_failure(api().cuStreamEndCapture(stream_, &graph), expected);
    EXPECT_EQ(graph, nullptr);
    EXPECT_FALSE(is_capturing(stream_));
    EXPECT_EQ(add(0, stream_), CUDA_SUCCESS) << "the stream works again";
  }
  void run_graph(CUgraph graph) const {
    CUgraphExec executable = nullptr;
    ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(api().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
    EXPECT_EQ(api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  }

  CUlibrary library_ = nullptr;
  CUkernel add_ = nullptr;
  CUdeviceptr data_ = 0;
  CUstream stream_ = nullptr, other_ = nullptr;
  CUevent event_ = nullptr, back_ = nullptr;
};

TEST_F(EmulatedStreams, WorkIsDoneWhenTheCallReturns) {
  for (const CUstream stream :
       {static_cast<CUstream>(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, stream_}) {
    const std::uint32_t before = value();
    EXPECT_EQ(add(3, stream), CUDA_SUCCESS);
    EXPECT_EQ(value(), before + 3);
    EXPECT_EQ(api().cuStreamSynchronize(stream), CUDA_SUCCESS);
    CUcontext context = nullptr;
    EXPECT_EQ(api().cuStreamGetCtx(stream, &context), CUDA_SUCCESS);
    EXPECT_EQ(context, primary_context(0));
  }
  EXPECT_EQ(api().cuCtxSynchronize(), CUDA_SUCCESS);
  CUstream stream = nullptr;
  expect_failure(api().cuStreamCreate(&stream, 8), CUDA_ERROR_INVALID_VALUE, "CU_STREAM_NON_BLOCKING");
}

// Adding is a read, a sum and a write: two launches that ran at once would lose one.
TEST_F(EmulatedStreams, ThreadsTakeTurnsOnAStream) {
  const CUstream blocking = create(CU_STREAM_DEFAULT);
  for (const std::vector<CUstream>& streams : {std::vector{stream_, stream_},
                                               {nullptr, nullptr},
                                               {nullptr, blocking},
                                               {nullptr, CU_STREAM_PER_THREAD}}) {
    const std::uint32_t before = value();
    {
      std::vector<std::jthread> threads;
      for (const CUstream stream : streams) {
        threads.emplace_back([&, stream] {
          push(0);
          for (int i = 0; i < 200; ++i) EXPECT_EQ(add(1, stream), CUDA_SUCCESS);
        });
      }
    }
    EXPECT_EQ(value(), before + 400);
  }
  EXPECT_EQ(api().cuStreamDestroy(blocking), CUDA_SUCCESS);
}

TEST_F(EmulatedStreams, EventsTellTimes) {
  CUevent start = nullptr;
  ASSERT_EQ(api().cuEventCreate(&start, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  float milliseconds = -1;
  expect_failure(api().cuEventElapsedTime(&milliseconds, start, event_), CUDA_ERROR_INVALID_HANDLE,
                 "never recorded");
  EXPECT_EQ(api().cuEventRecord(start, stream_), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(api().cuEventRecord(event_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventSynchronize(event_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventElapsedTime(&milliseconds, start, event_), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 5);
  EXPECT_LT(milliseconds, 5000);
  EXPECT_EQ(api().cuEventRecord(back_, stream_), CUDA_SUCCESS);
  expect_failure(api().cuEventElapsedTime(&milliseconds, start, back_), CUDA_ERROR_INVALID_HANDLE,
                 "CU_EVENT_DISABLE_TIMING");
  EXPECT_EQ(api().cuStreamWaitEvent(other_, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventDestroy(start), CUDA_SUCCESS);
  expect_failure(api().cuEventRecord(start, stream_), CUDA_ERROR_INVALID_HANDLE, "no longer");
  push(1);
  expect_failure(api().cuEventRecord(event_, nullptr), CUDA_ERROR_INVALID_HANDLE, "different contexts");
}

TEST_F(EmulatedStreams, ACaptureRunsNothingAndReplays) {
  std::uint32_t seen = 0;
  begin();
  EXPECT_TRUE(is_capturing(stream_));
  EXPECT_FALSE(is_capturing(other_));
  EXPECT_FALSE(is_capturing(nullptr));
  EXPECT_EQ(api().cuMemsetD32Async(data_, 10, 32, stream_), CUDA_SUCCESS);
  EXPECT_EQ(add(1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemcpyDtoHAsync(&seen, data_, 4, stream_), CUDA_SUCCESS);
  EXPECT_EQ(add(2, stream_), CUDA_SUCCESS);
  const CUgraph graph = end();
  EXPECT_EQ(value(), 0u);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    seen = 0;
    EXPECT_EQ(api().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
    EXPECT_EQ(seen, 11u);
    EXPECT_EQ(value(), 13u);
  }
  // A launch of the graph may be captured itself.
  begin();
  EXPECT_EQ(api().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(add(100, stream_), CUDA_SUCCESS);
  const CUgraph outer = end();
  run_graph(outer);
  EXPECT_EQ(value(), 113u);
  EXPECT_EQ(api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(outer), CUDA_SUCCESS);
}

TEST_F(EmulatedStreams, ForkedStreamsJoinTheCapture) {
  begin();
  EXPECT_EQ(add(1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(event_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(other_, event_, 0), CUDA_SUCCESS);
  EXPECT_TRUE(is_capturing(other_));
  EXPECT_EQ(add(10, other_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(back_, other_), CUDA_SUCCESS);
  float milliseconds = 0;
  expect_failure(api().cuEventElapsedTime(&milliseconds, event_, event_), CUDA_ERROR_CAPTURED_EVENT);
  expect_failure(api().cuEventSynchronize(event_), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(api().cuStreamWaitEvent(stream_, back_, 0), CUDA_SUCCESS);
  EXPECT_EQ(add(100, stream_), CUDA_SUCCESS);
  const CUgraph graph = end();
  EXPECT_FALSE(is_capturing(other_));
  run_graph(graph);
  EXPECT_EQ(value(), 111u);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  expect_failure(api().cuStreamWaitEvent(stream_, event_, 0), CUDA_ERROR_CAPTURED_EVENT, "over");
  EXPECT_EQ(api().cuEventRecord(event_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(other_, event_, 0), CUDA_SUCCESS);
}

// jit/stream.h; a capture shows the order that it makes.
TEST_F(EmulatedStreams, OneStreamWaitsForAnother) {
  begin();
  EXPECT_EQ(add(1, stream_), CUDA_SUCCESS);
  wait_for(other_, stream_);
  EXPECT_TRUE(is_capturing(other_));
  EXPECT_EQ(add(10, other_), CUDA_SUCCESS);
  wait_for(stream_, other_);
  const CUgraph graph = end();
  run_graph(graph);
  EXPECT_EQ(value(), 11u);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(add(100, stream_), CUDA_SUCCESS);
  wait_for(stream_, stream_);
  synchronize(stream_);
  EXPECT_EQ(value(), 111u);
}

TEST_F(EmulatedStreams, AForkThatIsNotJoinedSpoilsTheCapture) {
  begin();
  EXPECT_EQ(api().cuEventRecord(event_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(other_, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(add(1, other_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(back_, other_), CUDA_SUCCESS);
  EXPECT_EQ(add(1, other_), CUDA_SUCCESS);  // behind the event
  EXPECT_EQ(api().cuStreamWaitEvent(stream_, back_, 0), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  expect_failure(api().cuStreamEndCapture(other_, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin();
  EXPECT_EQ(api().cuEventRecord(event_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(other_, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(add(1, other_), CUDA_SUCCESS);
  end_spoilt(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_FALSE(is_capturing(other_));
}

TEST_F(EmulatedStreams, WaitingAcrossTheEdgeOfACaptureSpoilsIt) {
  EXPECT_EQ(api().cuEventRecord(event_, other_), CUDA_SUCCESS);
  begin();
  expect_failure(api().cuStreamWaitEvent(stream_, event_, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  expect_failure(add(1, stream_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin();
  ASSERT_EQ(api().cuStreamBeginCapture(other_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(event_, other_), CUDA_SUCCESS);
  expect_failure(api().cuStreamWaitEvent(stream_, event_, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraph graph = nullptr;
  expect_failure(api().cuStreamEndCapture(other_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(EmulatedStreams, WaitingForACapturedStreamSpoilsTheCapture) {
  begin();
  expect_failure(api().cuStreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 "nothing to wait for");
  CUstreamCaptureStatus status{};
  EXPECT_EQ(api().cuStreamIsCapturing(stream_, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// Calls that the modes of captures and threads forbid (CUDA driver API, cuThreadExchangeStreamCaptureMode).
TEST_F(EmulatedStreams, UnsafeCallsAreForbiddenAsTheModesSay) {
  constexpr auto global = CU_STREAM_CAPTURE_MODE_GLOBAL, local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                 relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  struct Case {
    CUstreamCaptureMode capture, thread;
    bool same_thread, allowed;
  };
  for (const Case& c : {Case{global, global, true, false},
                        {global, local, true, false},
                        {global, relaxed, true, true},
                        {local, global, true, false},
                        {local, relaxed, true, true},
                        {relaxed, global, true, true},
                        {global, global, false, false},
                        {global, local, false, true},
                        {global, relaxed, false, true},
                        {local, global, false, true},
                        {relaxed, global, false, true}}) {
    begin(c.capture);
    const auto call_unsafely = [&] {
      push(0);
      CUstreamCaptureMode mode = c.thread;
      ASSERT_EQ(api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
      CUdeviceptr address = 0;
      const CUresult result = api().cuMemAlloc(&address, 16);
      EXPECT_EQ(result, c.allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
          << c.capture << c.thread << c.same_thread;
      if (result == CUDA_SUCCESS) {
        EXPECT_EQ(api().cuMemFree(address), CUDA_SUCCESS);
      }
      EXPECT_EQ(api().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
      EXPECT_EQ(mode, c.thread);
    };
    if (c.same_thread) {
      call_unsafely();
    } else {
      std::jthread(call_unsafely).join();
    }
    if (c.allowed) {
      EXPECT_EQ(api().cuGraphDestroy(end()), CUDA_SUCCESS);
    } else {
      end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
  }
  CUstreamCaptureMode nonsense = static_cast<CUstreamCaptureMode>(9);
  expect_failure(api().cuThreadExchangeStreamCaptureMode(&nonsense), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedStreams, OtherUnsafeCalls) {
  const CUfunction function = reinterpret_cast<CUfunction>(add_);
  std::uint32_t word = 0;
  const std::string ptx = two_kernels();
  const std::vector<std::pair<const char*, std::function<CUresult()>>> calls = {
      {"cuMemFree", [&] { return api().cuMemFree(data_); }},
      {"cuMemcpyDtoH", [&] { return api().cuMemcpyDtoH(&word, data_, 4); }},
      {"cuMemcpyHtoD", [&] { return api().cuMemcpyHtoD(data_, &word, 4); }},
      {"cuMemsetD32", [&] { return api().cuMemsetD32(data_, 0, 1); }},
      {"cuCtxSynchronize", [&] { return api().cuCtxSynchronize(); }},
      {"cuFuncLoad", [&] { return api().cuFuncLoad(function); }},
      {"cuLibraryLoadData",
       [&] {
         CUlibrary library = nullptr;
         return api().cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
       }},
  };
  for (const auto& [name, call] : calls) {
    begin();
    expect_failure(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, name);
    end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin();
    {
      const RelaxedCapture relaxed;
      if (std::string_view(name) != "cuMemFree") {
        EXPECT_EQ(call(), CUDA_SUCCESS) << name;
      }
    }
    EXPECT_EQ(api().cuGraphDestroy(end()), CUDA_SUCCESS) << name;
  }
}

TEST_F(EmulatedStreams, TheDefaultStreamAndABlockingCaptureExcludeEachOther) {
  const CUstream blocking = create(CU_STREAM_DEFAULT);
  const RelaxedCapture relaxed;
  ASSERT_EQ(api().cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  expect_failure(api().cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_TRUE(is_capturing(nullptr));
  EXPECT_EQ(add(1, blocking), CUDA_SUCCESS) << "asking does no harm";
  EXPECT_EQ(add(1, stream_), CUDA_SUCCESS);
  expect_failure(add(1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph graph = nullptr;
  expect_failure(api().cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(add(1, nullptr), CUDA_SUCCESS);
  expect_failure(api().cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
                 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "default stream");
  EXPECT_EQ(api().cuStreamDestroy(blocking), CUDA_SUCCESS);
}

TEST_F(EmulatedStreams, CapturesEndWhereTheyBegan) {
  CUgraph graph = nullptr;
  expect_failure(api().cuStreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE, "not being captured");
  begin();
  expect_failure(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL),
                 CUDA_ERROR_ILLEGAL_STATE);
  std::jthread([&] {
    CUgraph stolen = nullptr;
    expect_failure(api().cuStreamEndCapture(stream_, &stolen), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  std::jthread([&] { EXPECT_EQ(api().cuGraphDestroy(end()), CUDA_SUCCESS); }).join();
  const CUstream brief = create(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(api().cuStreamBeginCapture(brief, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamDestroy(brief), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(api().cuMemAlloc(&address, 16), CUDA_SUCCESS) << "its capture is over";
  EXPECT_EQ(api().cuMemFree(address), CUDA_SUCCESS);
}

TEST_F(EmulatedStreams, ACaptureHasAnIdAndItsGraph) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t id = 0;
  EXPECT_EQ(api().cuStreamGetCaptureInfo(stream_, &status, &id, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  std::vector<unsigned long long> ids;
  for (int i = 0; i < 2; ++i) {
    begin();
    wait_for(other_, stream_);
    const StreamCapture own = capture_of(stream_), forked = capture_of(other_);
    EXPECT_EQ(own.id, forked.id);
    EXPECT_EQ(own.graph, forked.graph);
    ids.push_back(own.id);
    const CUgraph graph = end();
    EXPECT_EQ(graph, own.graph);
    EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  EXPECT_NE(ids[0], ids[1]);
}

TEST_F(EmulatedStreams, GraphsTellWhenTheyAreGone) {
  begin();
  const auto kept = gone_flag(capture_of(stream_).graph);
  EXPECT_EQ(add(1, stream_), CUDA_SUCCESS);
  const CUgraph graph = end();
  CUgraphExec executable = nullptr;
  ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  begin();
  const auto outer = gone_flag(capture_of(stream_).graph);
  EXPECT_EQ(api().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  const CUgraph holder = end();
  EXPECT_EQ(api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_FALSE(*kept) << "another graph launches it";
  EXPECT_EQ(api().cuGraphDestroy(holder), CUDA_SUCCESS);
  EXPECT_TRUE(*outer);
  EXPECT_TRUE(*kept);
  begin();
  const auto spoilt = gone_flag(capture_of(stream_).graph);
  EXPECT_NE(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  end_spoilt(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_TRUE(*spoilt);
  EXPECT_FALSE(*gone_flag(graph)) << "nobody can tell of a graph that is not there";
}

TEST_F(EmulatedStreams, AGraphNeedsTheLibrariesOfItsKernels) {
  const CUlibrary library = load(two_kernels());
  const CUkernel put = kernel_of(library, "put");
  begin();
  EXPECT_EQ(launch(put, {.stream = stream_}, data_, 5u), CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  const CUgraph graph = end();
  ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(value(), 5u);
  EXPECT_EQ(api().cuLibraryUnload(library), CUDA_SUCCESS);
  expect_failure(api().cuGraphLaunch(executable, stream_), CUDA_ERROR_INVALID_HANDLE, "no longer");
  EXPECT_EQ(api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace jit::testing
