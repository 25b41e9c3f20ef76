// Memory of captured launches on the emulated driver; tests/device/graph_gpu_test.cpp has kernels that use it.
#include <memory>
#include <set>
#include <vector>

#include <jit/stream.h>

#include "generator/launch/stream_memory.h"
#include "tests/support/emulated_driver_testing.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

class GraphMemoryTest : public EmulatedDriverTest {
 protected:
  void SetUp() override {
    EmulatedDriverTest::SetUp();
    for (CUstream* stream : {&stream_, &other_})
      ASSERT_EQ(api().cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override {
    memory_.reset();
    for (const CUstream stream : {stream_, other_}) api().cuStreamDestroy(stream);
    EmulatedDriverTest::TearDown();
  }

  void begin() const {
    ASSERT_EQ(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  CUgraph end() const {
    CUgraph graph = nullptr;
    EXPECT_EQ(api().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS) << "the capture was spoilt";
    return graph;
  }
  StreamLease lease(CUstream stream) const { return {*memory_, 0, stream}; }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(api().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  static std::uint32_t word_at(const void* address) {
    return download(reinterpret_cast<CUdeviceptr>(address), 1)[0];
  }

  std::unique_ptr<StreamMemory> memory_ = std::make_unique<StreamMemory>();
  CUstream stream_ = nullptr, other_ = nullptr;
};

// Launches captured on one stream run one after another, but concurrently with the stream itself and other
// graphs.
TEST_F(GraphMemoryTest, LaunchesOfACaptureShareOneMemory) {
  std::set<const void*> counters, workspaces, mailboxes;
  const auto ask = [&] {
    counters.insert(lease(stream_).counter());
    workspaces.insert(lease(stream_).workspace(100));
    mailboxes.insert(lease(stream_).mailbox(100));
  };
  std::vector<CUgraph> graphs;
  ask();
  for (std::size_t capture = 1; capture <= 3; ++capture) {
    begin();
    for (int launch = 0; launch < 5; ++launch) ask();
    graphs.push_back(end());
    for (const auto* each : {&counters, &workspaces, &mailboxes}) EXPECT_EQ(each->size(), capture + 1);
  }
  ask();
  for (const auto* each : {&counters, &workspaces, &mailboxes}) {
    EXPECT_EQ(each->size(), 4u);
    EXPECT_EQ(each->count(nullptr), 0u);
  }
  for (const void* each : counters) EXPECT_EQ(word_at(each), 0u);
  for (const void* each : mailboxes) EXPECT_EQ(word_at(each), 0xffffffffu);
  for (const CUgraph graph : graphs) EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphMemoryTest, StreamsOfACaptureHaveTheirOwn) {
  begin();
  wait_for(other_, stream_);
  std::set<const void*> all;
  for (const CUstream stream : {stream_, other_, stream_, other_}) {
    all.insert(lease(stream).counters(9));
    all.insert(lease(stream).workspace(5000));
    all.insert(lease(stream).mailbox(5000));
  }
  wait_for(stream_, other_);
  EXPECT_EQ(api().cuGraphDestroy(end()), CUDA_SUCCESS);
  EXPECT_EQ(all.size(), 6u);
}

// Launches that were captured before more were wanted keep theirs.
TEST_F(GraphMemoryTest, CountersAreAsManyAsTheMostThatWereWanted) {
  begin();
  wait_for(other_, stream_);
  const int* few = lease(stream_).counters(3);
  const int* others = lease(other_).counters(StreamLease::max_counters);
  const int* many = lease(stream_).counters(2000);
  EXPECT_EQ(lease(stream_).counters(3), many);
  EXPECT_EQ(std::set({few, others, many}).size(), 3u);
  wait_for(stream_, other_);
  EXPECT_EQ(api().cuGraphDestroy(end()), CUDA_SUCCESS);
  EXPECT_EQ(download(reinterpret_cast<CUdeviceptr>(many), 2000), std::vector<std::uint32_t>(2000, 0));
}

// Launches that were captured before a larger one keep what they were given.
TEST_F(GraphMemoryTest, AWorkspaceGrowsToTheLargestCall) {
  const std::size_t before = free_bytes();
  begin();
  const void* small = lease(stream_).workspace(100);
  const void* large = lease(stream_).workspace(5 << 20);
  EXPECT_NE(small, large);
  for (const std::size_t bytes : {100, 4096, 1 << 20, 8 << 20})
    EXPECT_EQ(lease(stream_).workspace(bytes), large) << bytes << ": sizes are rounded up";
  EXPECT_EQ(lease(stream_).workspace(0), nullptr);
  const CUgraph graph = end();
  EXPECT_EQ(before - free_bytes(), std::size_t{(8 << 20) + 4096});
  const std::uint32_t word = 7;
  for (const void* each : {small, large}) {
    EXPECT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(each), &word, sizeof word), CUDA_SUCCESS);
  }
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphMemoryTest, MemoryIsFreeAgainWhenItsGraphsAreGone) {
  constexpr std::size_t bytes = 8 << 20;
  const std::size_t before = free_bytes();
  begin();
  lease(stream_).workspace(bytes);
  const CUgraph graph = end();
  CUgraphExec executable = nullptr;
  ASSERT_EQ(api().cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  const auto held = [&] {  // after a capture, which looks for what nobody needs
    begin();
    lease(stream_).workspace(1);
    EXPECT_EQ(api().cuGraphDestroy(end()), CUDA_SUCCESS);
    return before - free_bytes();
  };
  EXPECT_GE(held(), bytes);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_GE(held(), bytes) << "a graph that was instantiated needs it";
  EXPECT_EQ(api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_LT(held(), bytes);
  // A first call of a stream looks, too.
  lease(other_).workspace(1);
  EXPECT_EQ(before - free_bytes(), std::size_t{4096});
}

TEST_F(GraphMemoryTest, AGraphMayOutliveTheMemory) {
  begin();
  lease(stream_).workspace(100);
  const CUgraph graph = end();
  memory_.reset();
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphMemoryTest, AnInvalidCaptureHasNone) {
  begin();
  EXPECT_NE(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  const Error error = error_of([&] { lease(stream_).workspace(100); });
  EXPECT_EQ(error.code(), ErrorCode::driver_error);
  EXPECT_EQ(error.native_code(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUgraph graph = nullptr;
  expect_failure(api().cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace
}  // namespace jit::testing
