// The quantizer that keeps its rows, by grids of a few blocks, whose pipelines come round many times, and by many
// launches: every bit is what the other program makes.
#include <array>
#include <random>

#include <gtest/gtest.h>
#include <jit/quantize.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/quantize_run.h"
#include "tests/support/resident_quantize_run.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using enum QuantizedScales;

class QuantizeResidentTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device_info(0).arch.major != 9) GTEST_SKIP() << "rows are resident on sm_90a";
  }

  static void expect_same_bits(const QuantizeCase& problem, int blocks, int launches = 1) {
    QuantizeCase twice = problem;
    twice.spec.keep_rows = KeepRows::never;
    QuantizeRun expected(twice, reference::test_seed()), run(problem, reference::test_seed());
    const QuantizeQkv two_looks = quantize_qkv(expected.spec(), context());
    try {
      for (int launch = 0; launch < launches; ++launch) {
        if (launch > 0) expected.fill();
        two_looks(expected.arguments());
      }
      ASSERT_EQ(expected.check(), "") << to_string(problem);
      ASSERT_EQ(keep_rows_by(context(), run, blocks, launches), "") << to_string(problem);
    } catch (const Error& error) {
      FAIL() << to_string(problem) << ", " << blocks << " blocks: " << error.what();
    }
    EXPECT_TRUE(run.written() == expected.written()) << to_string(problem) << ", " << blocks << " blocks";
  }
};

// Units of several pieces of work, the last one not whole; statistics of columns, whose room the units share.
TEST_F(QuantizeResidentTest, FewBlocks) {
  const CurrentDevice current(0);
  struct Kind {
    QuantizedScales scales, value_scales;
    bool rotate, center_keys, center_values;
    int head_dim_v = 64;
  };
  for (const Kind& kind : {Kind{head, head, false, false, false},
                           {head, channel, true, true, true},
                           {token, head, false, true, false, 128},
                           {block, head, false, false, true}}) {
    const QuantizeCase problem{.spec = {.head_dim = 64,
                                        .head_dim_v = kind.head_dim_v,
                                        .scales = kind.scales,
                                        .value_scales = kind.value_scales,
                                        .rotate = kind.rotate,
                                        .center_keys = kind.center_keys,
                                        .center_values = kind.center_values},
                               .batch = 3,
                               .seqlen_q = 5,
                               .seqlen_kv = 270,
                               .heads_q = 4,
                               .heads_kv = 2,
                               .outliers = 20,
                               .offset = 2};
    expect_same_bits(problem, 2, 2);
  }
}

// One block draws all pieces of work; it has room for a unit's.
TEST_F(QuantizeResidentTest, OneBlock) {
  const CurrentDevice current(0);
  expect_same_bits({.spec = {.head_dim = 128, .scales = head, .center_keys = true, .center_values = true},
                    .batch = 2,
                    .seqlen_q = 40,
                    .seqlen_kv = 130,
                    .heads_q = 4,
                    .heads_kv = 2,
                    .offset = 3},
                   1);
}

// More pieces of work of a unit than a lane of the sums has, or all of them at once.
TEST_F(QuantizeResidentTest, SumsOfManyPieces) {
  const CurrentDevice current(0);
  expect_same_bits({.spec = {.head_dim = 256, .head_dim_v = 40, .scales = head, .center_keys = true},
                    .batch = 1,
                    .seqlen_q = 1,
                    .seqlen_kv = 66 * 64 + 5,
                    .heads_q = 1,
                    .heads_kv = 1,
                    .offset = 3},
                   14);
}

// Launches of different sizes use one memory after another, in which numbers of each other's lie.
TEST_F(QuantizeResidentTest, LaunchesOfOtherSizesBetween) {
  const CurrentDevice current(0);
  QuantizeCase problem{.spec = {.head_dim = 64, .scales = head, .center_keys = true, .center_values = true},
                       .batch = 1,
                       .seqlen_kv = 300,
                       .heads_q = 2,
                       .heads_kv = 2,
                       .offset = 2};
  for (const int seqlen : {300, 20, 280}) {
    problem.seqlen_kv = seqlen;
    problem.spec.value_scales = seqlen == 20 ? channel : head;
    expect_same_bits(problem, 3, 2);
  }
}

TEST_F(QuantizeResidentTest, GraphsReplayOnOtherNumbers) {
  const CurrentDevice current(0);
  const QuantizeCase problem{.spec = {.head_dim = 64,
                                      .scales = head,
                                      .center_keys = true,
                                      .center_values = true,
                                      .keep_rows = KeepRows::always},
                             .seqlen_kv = 300,
                             .offset = 2};
  QuantizeRun run(problem, reference::test_seed());
  const QuantizeQkv kernel = quantize_qkv(run.spec(), context());
  kernel.prepare();
  const TestStream stream;
  const CapturedGraph graph(stream, [&] {
    kernel(run.arguments(), stream.get());
    kernel(run.arguments(), stream.get());
  });
  for (int replay = 0; replay < 3; ++replay) {
    run.fill();
    graph.run(stream);
    EXPECT_EQ(run.check(), "") << "replay " << replay;
  }
}

// Strides, types, head dims and scales as they come.
TEST_F(QuantizeResidentTest, RandomShapes) {
  const CurrentDevice current(0);
  std::mt19937_64 random(reference::test_seed());
  const auto one_of = [&](const auto&... x) {
    const std::array all{x...};
    return all.at(random() % all.size());
  };
  const auto from = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  };
  for (int i = 0; i < 6; ++i) {
    QuantizeCase problem{.batch = from(0, 3),
                         .seqlen_q = from(1, 300),
                         .seqlen_kv = from(1, 300),
                         .heads_kv = from(1, 3),
                         .outliers = 10,
                         .offset = 2,
                         .with_shift = from(0, 1) == 1};
    problem.heads_q = problem.heads_kv * from(1, 3);
    if (from(0, 1) == 1) problem.layout = {.order = {0, 2, 1, 3}, .row_elements = one_of(0, 16)};
    QuantizeSpec& spec = problem.spec;
    spec.dtype = one_of(DType::bf16, DType::fp16, DType::fp32);
    spec.head_dim = one_of(64, 128);
    spec.head_dim_v = one_of(40, 64, 96, 128);
    spec.scales = one_of(given, head, token, block);
    spec.value_scales = one_of(head, channel);
    spec.rotate = from(0, 1) == 1;
    spec.center_keys = from(0, 1) == 1;
    spec.center_values = from(0, 1) == 1;
    expect_same_bits(problem, from(2, 5));
  }
}

TEST_F(QuantizeResidentTest, SaysWhyItCannot) {
  const CurrentDevice current(0);
  QuantizeCase problem{.spec = {.head_dim = 64, .scales = head, .keep_rows = KeepRows::always}};
  QuantizeRun run(problem, 3);
  const QuantizeQkv kernel = quantize_qkv(run.spec(), context());
  QuantizeArguments broadcast = run.arguments();
  broadcast.q.strides[0] = 0;
  EXPECT_THAT(error_of([&] { kernel(broadcast); }).message(), ::testing::HasSubstr("TMA cannot read"));
  problem.seqlen_kv = 0;
  QuantizeRun empty(problem, 3);
  EXPECT_THAT(error_of([&] { kernel(empty.arguments()); }).message(), ::testing::HasSubstr("k has no rows"));
}

}  // namespace
}  // namespace jit::testing
