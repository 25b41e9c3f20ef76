// Attention with keys that arrive from other devices while its kernel computes, against double precision: results, bits, ranks
// that sleep, fail and begin anew.
#include <jit/key_exchange.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/key_exchange_run.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class KeyExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    if (devices().size() < 2) GTEST_SKIP() << "one device has nobody to exchange with";
    if (native_arch(device_info(0)) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of sm_90a wait for keys";
  }
  static Context& context() {
    static Context context(shared_cache_settings());
    return context;
  }
  static Attention kernel_of(KeyExchangeRun& run) {
    const Attention kernel = attention(run.spec(), {}, context());
    // Loading waits for what is under way, on a GPU.
    for (int rank = 0; rank < run.ranks(); ++rank) {
      const CurrentDevice device(run.device_of(rank));
      static_cast<void>(attention(run.spec(), {}, context()));
    }
    return kernel;
  }
  static std::uint64_t next_seed() {
    static std::uint64_t calls = 0;
    return reference::test_seed() + ++calls;
  }
  static void expect_right(const KeyExchangeCase& problem, const std::string& what) {
    KeyExchangeRun run(problem, next_seed());
    const Attention kernel = kernel_of(run);
    for (int call = 0; call < 3; ++call) {
      run.fill();
      run.call_all(kernel);
      EXPECT_EQ(run.check_all(), "") << what << ", call " << call;
    }
    for (int rank = 0; rank < run.ranks(); ++rank)
      EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << what;
  }
};

TEST_F(KeyExchangeTest, RanksAndPlacements) {
  expect_right({.seqlen = 640}, "two ranks, balanced");
  expect_right({.seqlen = 512, .placement = {.mode = PlacementMode::zigzag}}, "two ranks, both ends");
  expect_right({.seqlen = 390, .ranks = 3, .placement = {.mode = PlacementMode::contiguous}},
               "three ranks, and keys that end within a granule");
}

TEST_F(KeyExchangeTest, MasksTypesAndBatches) {
  expect_right({.mask = mask::none(), .seqlen = 300, .batch = 2, .dtype = DType::fp16},
               "all keys, a batch of two");
  expect_right({.mask = mask::sliding_window(150),
                .seqlen = 512,
                .head_dim = 128,
                .placement = {.mode = PlacementMode::striped}},
               "a window over stripes");
}

}  // namespace
}  // namespace jit::testing
