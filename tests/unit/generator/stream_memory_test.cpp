// Counters, mailboxes and workspaces on the emulated driver; tests/device/forward_wgmma_gpu_test.cpp has work counted.
#include "generator/launch/stream_memory.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/emulated_driver_testing.h"

namespace jit::testing {
namespace {

class StreamMemoryTest : public EmulatedDriverTest {
 protected:
  void SetUp() override {
    EmulatedDriverTest::SetUp();
    stream_ = create();
    other_ = create();
  }
  void TearDown() override {
    memory_.reset();
    api().cuStreamDestroy(stream_);
    api().cuStreamDestroy(other_);
    EmulatedDriverTest::TearDown();
  }

  static CUstream create() {
    CUstream stream = nullptr;
    EXPECT_EQ(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  static std::uint32_t value_of(const int* counter) {
    return download(reinterpret_cast<CUdeviceptr>(counter), 1)[0];
  }
  StreamLease lease(int device, CUstream stream) const { return {*memory_, device, stream}; }
  // After a launch that used counters and mailboxes.
  void reset(CUstream stream) const {
    StreamLease failed = lease(0, stream);
    failed.counter();
    failed.reset();
  }
  static void begin(CUstream stream) {
    ASSERT_EQ(api().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  static void end(CUstream stream) {
    CUgraph graph = nullptr;
    ASSERT_EQ(api().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "the capture was spoilt";
    EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  }

  std::unique_ptr<StreamMemory> memory_ = std::make_unique<StreamMemory>();
  CUstream stream_ = nullptr, other_ = nullptr;
};

TEST_F(StreamMemoryTest, EachStreamHasItsOwn) {
  std::set<const int*> all;
  for (const CUstream stream : {static_cast<CUstream>(nullptr), CU_STREAM_PER_THREAD, stream_, other_}) {
    const int* counter = lease(0, stream).counter();
    ASSERT_NE(counter, nullptr);
    EXPECT_EQ(value_of(counter), 0u);
    EXPECT_EQ(lease(0, stream).counter(), counter);
    all.insert(counter);
  }
  EXPECT_EQ(all.size(), 4u);
  const int* legacy = lease(0, CU_STREAM_LEGACY).counter();
  EXPECT_EQ(lease(0, nullptr).counter(), legacy);
}

// A counter is set to 0 once: kernels leave it so, and one may be running.
TEST_F(StreamMemoryTest, LaterLaunchesFindWhatEarlierOnesLeft) {
  int* counter = lease(0, stream_).counter();
  const std::uint32_t left = 5;
  ASSERT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(counter), &left, sizeof(left)), CUDA_SUCCESS);
  EXPECT_EQ(lease(0, stream_).counter(), counter);
  EXPECT_EQ(value_of(counter), 5u);
}

// After a launch that failed, which left some of its work untaken.
TEST_F(StreamMemoryTest, ResetSetsTheStreamsCounterBack) {
  const std::uint32_t left = 5;
  int* counter = lease(0, stream_).counter();
  int* untouched = lease(0, other_).counter();
  for (int* each : {counter, untouched}) {
    ASSERT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(each), &left, sizeof(left)), CUDA_SUCCESS);
  }
  reset(stream_);
  ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(value_of(counter), 0u);
  EXPECT_EQ(value_of(untouched), 5u);
  lease(0, other_).reset();  // requested nothing: nothing to do
  ASSERT_EQ(api().cuStreamSynchronize(other_), CUDA_SUCCESS);
  EXPECT_EQ(value_of(untouched), 5u);
}

// A failed launch of forward_wgmma beside a capture, or in one.
TEST_F(StreamMemoryTest, ResetDoesNotSpoilACapture) {
  lease(0, stream_).counter();
  lease(0, other_).counter();
  begin(stream_);
  reset(other_);
  end(stream_);
  const std::uint32_t counting = 5;  // by a kernel that runs on while the stream is captured
  int* counter = lease(0, stream_).counter();
  ASSERT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(counter), &counting, sizeof(counting)),
            CUDA_SUCCESS);
  begin(stream_);
  reset(stream_);
  end(stream_);
  EXPECT_EQ(value_of(counter), 5u);
}

TEST_F(StreamMemoryTest, EachDeviceHasItsOwn) {
  const int* first = lease(0, nullptr).counter();
  push(1);
  const int* second = lease(1, nullptr).counter();
  EXPECT_NE(first, second);
  int device = -1;
  ASSERT_EQ(api().cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        reinterpret_cast<CUdeviceptr>(second)),
            CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
}

TEST_F(StreamMemoryTest, AFirstLaunchBesideACaptureDoesNotSpoilIt) {
  begin(stream_);
  const int* counter = lease(0, other_).counter();
  EXPECT_NE(counter, nullptr);
  end(stream_);
  EXPECT_EQ(value_of(counter), 0u);
}

// A new stream may have the handle of one that is gone, whose last kernel may still run.
TEST_F(StreamMemoryTest, StreamsAreToldApartByMoreThanTheirHandles) {
  std::set<const int*> all;
  constexpr int count = 100;  // more than the table begins with
  for (int i = 0; i < count; ++i) {
    const CUstream stream = create();
    all.insert(lease(0, stream).counter());
    EXPECT_EQ(api().cuStreamDestroy(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(all.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(all.count(nullptr), 0u);
}

TEST_F(StreamMemoryTest, ThreadsThatAskAtOnceGetTheSame) {
  std::vector<int*> seen(8);
  {
    std::vector<std::jthread> threads;
    for (int*& counter : seen) {
      threads.emplace_back([&] {
        push(0);
        counter = lease(0, stream_).counter();
      });
    }
  }
  EXPECT_NE(seen[0], nullptr);
  EXPECT_EQ(std::set<int*>(seen.begin(), seen.end()).size(), 1u);
  EXPECT_EQ(value_of(seen[0]), 0u);
}

// A call owns what it has requested until its lease ends, so that another thread's launches cannot come between its own.
TEST_F(StreamMemoryTest, ThreadsUseAStreamsMemoryOneAfterAnother) {
  constexpr int threads = 8, calls = 50;
  std::atomic<int> users = 0, most = 0;
  {
    std::vector<std::jthread> all;
    for (int thread = 0; thread < threads; ++thread) {
      all.emplace_back([&, thread] {
        push(0);
        for (int call = 0; call < calls; ++call) {
          StreamLease own = lease(0, stream_);
          if ((thread + call) % 2 == 0) {
            own.workspace(100 << call % 8);
          } else {
            own.mailbox(100);
          }
          most = std::max(most.load(), ++users);
          std::this_thread::yield();
          own.counter();
          --users;
        }
      });
    }
  }
  EXPECT_EQ(most, 1);
}

TEST_F(StreamMemoryTest, ALeaseThatRequestsNothingWaitsForNobody) {
  StreamLease owner = lease(0, stream_);
  owner.workspace(100);
  std::jthread([&] {
    push(0);
    StreamLease other = lease(0, stream_);
    EXPECT_EQ(other.workspace(0), nullptr);
    other.reset();
    lease(0, other_).workspace(100);  // another stream's memory is free
  }).join();
}

TEST_F(StreamMemoryTest, AWorkspaceIsTheStreamsOwn) {
  EXPECT_EQ(lease(0, stream_).workspace(0), nullptr);
  void* small = lease(0, stream_).workspace(100);
  void* large = lease(0, stream_).workspace(1 << 20);
  ASSERT_NE(small, nullptr);
  EXPECT_NE(small, large);
  EXPECT_EQ(lease(0, stream_).workspace(100), large) << "the largest serves all later calls";
  EXPECT_EQ(lease(0, stream_).workspace((1 << 20) - 5), large);
  EXPECT_NE(lease(0, other_).workspace(100), small);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 256, 0u);
  const std::vector<std::uint32_t> words(1 << 18, 7);
  EXPECT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(large), words.data(), 1 << 20), CUDA_SUCCESS);
}

// All bits are 1 once; kernels leave it so.
TEST_F(StreamMemoryTest, AMailboxIsEmptyAtFirstAndAfterAReset) {
  EXPECT_EQ(lease(0, stream_).mailbox(0), nullptr);
  void* mailbox = lease(0, stream_).mailbox(5000);
  const auto address = reinterpret_cast<CUdeviceptr>(mailbox);
  EXPECT_EQ(download(address, 2048), std::vector<std::uint32_t>(2048, 0xffffffffu));
  EXPECT_EQ(lease(0, stream_).mailbox(8192), mailbox) << "sizes are rounded up";
  EXPECT_EQ(lease(0, stream_).mailbox(100), mailbox) << "the largest serves all later calls";
  EXPECT_NE(lease(0, other_).mailbox(5000), mailbox);
  const std::uint32_t left = 5;
  ASSERT_EQ(api().cuMemcpyHtoD(address + 4000, &left, sizeof(left)), CUDA_SUCCESS);
  EXPECT_EQ(lease(0, stream_).mailbox(5000), mailbox);
  EXPECT_EQ(download(address + 4000, 1)[0], 5u) << "kernels may be running";
  reset(stream_);
  ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(download(address + 4000, 1)[0], 0xffffffffu);
}

}  // namespace
}  // namespace jit::testing
