// Counters, mailboxes and workspaces on the emulated driver; tests/device/forward_wgmma_gpu_test.cpp has work counted.
#include "generator/launch/stream_memory.h"

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
    const int* counter = memory_->counter(0, stream);
    ASSERT_NE(counter, nullptr);
    EXPECT_EQ(value_of(counter), 0u);
    EXPECT_EQ(memory_->counter(0, stream), counter);
    all.insert(counter);
  }
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(memory_->counter(0, CU_STREAM_LEGACY), memory_->counter(0, nullptr));
}

// A counter is set to 0 once: kernels leave it so, and one may be running.
TEST_F(StreamMemoryTest, LaterLaunchesFindWhatEarlierOnesLeft) {
  int* counter = memory_->counter(0, stream_);
  const std::uint32_t left = 5;
  ASSERT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(counter), &left, sizeof(left)), CUDA_SUCCESS);
  EXPECT_EQ(memory_->counter(0, stream_), counter);
  EXPECT_EQ(value_of(counter), 5u);
}

// After a launch that failed, which left some of its work untaken.
TEST_F(StreamMemoryTest, ResetSetsTheStreamsCounterBack) {
  const std::uint32_t left = 5;
  int* counter = memory_->counter(0, stream_);
  int* untouched = memory_->counter(0, other_);
  for (int* each : {counter, untouched}) {
    ASSERT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(each), &left, sizeof(left)), CUDA_SUCCESS);
  }
  memory_->reset(0, stream_);
  ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(value_of(counter), 0u);
  EXPECT_EQ(value_of(untouched), 5u);
  memory_->reset(0, nullptr);  // had no launch: nothing to do
}

// Of a failed launch of forward_wgmma beside a capture, or in one.
TEST_F(StreamMemoryTest, ResetDoesNotSpoilACapture) {
  memory_->counter(0, stream_);
  memory_->counter(0, other_);
  begin(stream_);
  memory_->reset(0, other_);
  end(stream_);
  const std::uint32_t counting = 5;  // by a kernel that runs on while the stream is captured
  int* counter = memory_->counter(0, stream_);
  ASSERT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(counter), &counting, sizeof(counting)),
            CUDA_SUCCESS);
  begin(stream_);
  memory_->reset(0, stream_);
  end(stream_);
  EXPECT_EQ(value_of(counter), 5u);
}

TEST_F(StreamMemoryTest, EachDeviceHasItsOwn) {
  const int* first = memory_->counter(0, nullptr);
  push(1);
  const int* second = memory_->counter(1, nullptr);
  EXPECT_NE(first, second);
  int device = -1;
  ASSERT_EQ(api().cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        reinterpret_cast<CUdeviceptr>(second)),
            CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
}

TEST_F(StreamMemoryTest, AFirstLaunchBesideACaptureDoesNotSpoilIt) {
  begin(stream_);
  const int* counter = memory_->counter(0, other_);
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
    all.insert(memory_->counter(0, stream));
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
        counter = memory_->counter(0, stream_);
      });
    }
  }
  EXPECT_NE(seen[0], nullptr);
  EXPECT_EQ(std::set<int*>(seen.begin(), seen.end()).size(), 1u);
  EXPECT_EQ(value_of(seen[0]), 0u);
}

TEST_F(StreamMemoryTest, AWorkspaceIsTheStreamsOwn) {
  EXPECT_EQ(memory_->workspace(0, stream_, 0), nullptr);
  void* small = memory_->workspace(0, stream_, 100);
  void* large = memory_->workspace(0, stream_, 1 << 20);
  ASSERT_NE(small, nullptr);
  EXPECT_NE(small, large);
  EXPECT_EQ(memory_->workspace(0, stream_, 4096), small) << "sizes are rounded up";
  EXPECT_EQ(memory_->workspace(0, stream_, (1 << 20) - 5), large);
  EXPECT_NE(memory_->workspace(0, other_, 100), small);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 256, 0u);
  const std::vector<std::uint32_t> words(1 << 18, 7);
  EXPECT_EQ(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(large), words.data(), 1 << 20), CUDA_SUCCESS);
}

// All bits are 1 once; kernels leave it so.
TEST_F(StreamMemoryTest, AMailboxIsEmptyAtFirstAndAfterAReset) {
  EXPECT_EQ(memory_->mailbox(0, stream_, 0), nullptr);
  void* mailbox = memory_->mailbox(0, stream_, 5000);
  const auto address = reinterpret_cast<CUdeviceptr>(mailbox);
  EXPECT_EQ(download(address, 2048), std::vector<std::uint32_t>(2048, 0xffffffffu));
  EXPECT_EQ(memory_->mailbox(0, stream_, 8192), mailbox) << "sizes are rounded up";
  EXPECT_NE(memory_->mailbox(0, stream_, 100), mailbox);
  EXPECT_NE(memory_->mailbox(0, other_, 5000), mailbox);
  const std::uint32_t left = 5;
  ASSERT_EQ(api().cuMemcpyHtoD(address + 4000, &left, sizeof(left)), CUDA_SUCCESS);
  EXPECT_EQ(memory_->mailbox(0, stream_, 5000), mailbox);
  EXPECT_EQ(download(address + 4000, 1)[0], 5u) << "kernels may be running";
  memory_->reset(0, stream_);
  ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(download(address + 4000, 1)[0], 0xffffffffu);
}

}  // namespace
}  // namespace jit::testing
