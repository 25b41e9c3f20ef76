// A quantiser that keeps rows in shared memory between its two looks: the same bits as where they are read again.
#include <jit/quantize.h>

#include <gtest/gtest.h>

#include "tests/device/graph.h"
#include "tests/support/error_of.h"
#include "tests/support/quantize_run.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using enum QuantizedScales;

class QuantizeKeptTest : public GpuTest {
 protected:
  static std::vector<std::uint8_t> written(const QuantizeCase& problem, int launches = 1) {
    QuantizeRun run(problem, reference::test_seed());
    const QuantizeQkv kernel = quantize_qkv(run.spec(), context());
    for (int launch = 0; launch < launches; ++launch) kernel(run.arguments());
    EXPECT_EQ(run.check(), "") << to_string(problem) << ", " << problem.spec.kept_pieces << " pieces kept";
    return run.written();
  }
  static void expect_same_bits(QuantizeCase problem, int kept_pieces = 3) {
    try {
      const std::vector<std::uint8_t> again = written(problem);
      problem.spec.kept_pieces = kept_pieces;
      // The second launch finds what the first one has left in its counters.
      EXPECT_EQ(written(problem, 2), again) << to_string(problem) << ", " << kept_pieces << " pieces kept";
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
};

TEST_F(QuantizeKeptTest, ChangesNoBit) {
  const CurrentDevice current(0);
  for (const QuantizedScales scales : {head, token, block, given}) {
    for (const bool center : {false, true}) {
      for (const bool rotate : {false, true}) {
        const QuantizedScales value_scales = rotate ? channel : head;
        expect_same_bits({.spec = {.head_dim = 64,
                                   .scales = scales,
                                   .value_scales = value_scales,
                                   .rotate = rotate,
                                   .center_keys = center,
                                   .center_values = center},
                          .seqlen_q = 70,
                          .seqlen_kv = 600,
                          .offset = 2},
                         rotate ? 4 : 3);
      }
    }
  }
}

// More pieces of a KV head than all blocks keep, whose rows are read again, before and behind such that are not.
TEST_F(QuantizeKeptTest, RowsThatAreDropped) {
  const CurrentDevice current(0);
  for (const bool center : {false, true}) {
    expect_same_bits({.spec = {.dtype = DType::fp32,
                               .head_dim = 128,
                               .scales = head,
                               .center_keys = center,
                               .center_values = center},
                      .batch = 1,
                      .seqlen_q = 2,
                      .seqlen_kv = 70,
                      .heads_q = 1200,
                      .heads_kv = 2,
                      .offset = 3});
  }
}

TEST_F(QuantizeKeptTest, ManyHeadsOfFewRows) {
  const CurrentDevice current(0);
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    expect_same_bits({.spec = {.dtype = dtype, .head_dim = 8, .head_dim_v = 16, .center_values = true},
                      .batch = 7,
                      .seqlen_q = 2,
                      .seqlen_kv = 1,
                      .heads_q = 64,
                      .heads_kv = 64});
  }
}

TEST_F(QuantizeKeptTest, ValuesAlongTheSequence) {
  const CurrentDevice current(0);
  for (const QuantizedScales value_scales : {head, channel, given}) {
    expect_same_bits({.spec = {.head_dim = 64,
                               .scales = head,
                               .value_scales = value_scales,
                               .center_keys = value_scales != head,
                               .v_along_sequence = true},
                      .seqlen_q = 30,
                      .seqlen_kv = 1100});
  }
}

TEST_F(QuantizeKeptTest, RowsOfNoSequence) {
  const CurrentDevice current(0);
  QuantizeCase problem{.spec = {.head_dim = 64, .scales = head, .center_keys = true, .center_values = true},
                       .seqlen_q = 70,
                       .seqlen_kv = 300,
                       .offset = 2,
                       .queries = {.seqused = {0, 60}},
                       .keys = {.seqused = {299, 130}}};
  expect_same_bits(problem);
  problem.batch = 0;
  problem.queries = {.cu_seqlens = {0, 1, 40, 60}};
  problem.keys = {.cu_seqlens = {3, 130, 130, 270}, .seqused = {100, 5, 140}};
  expect_same_bits(problem);
}

TEST_F(QuantizeKeptTest, NothingOrLittleToDo) {
  const CurrentDevice current(0);
  for (const bool center : {false, true}) {
    const QuantizeSpec spec{.head_dim = 64, .center_keys = center, .center_values = center};
    expect_same_bits({.spec = spec, .seqlen_q = 0});
    expect_same_bits({.spec = spec, .seqlen_kv = 0});
    expect_same_bits({.spec = spec, .heads_q = 0});
  }
}

TEST_F(QuantizeKeptTest, GraphsReplayOnOtherNumbers) {
  const CurrentDevice current(0);
  const QuantizeCase problem{
      .spec = {.head_dim = 64, .center_keys = true, .center_values = true, .kept_pieces = 3},
      .seqlen_kv = 1100,
      .offset = 2};
  QuantizeRun run(problem, reference::test_seed());
  const QuantizeQkv kernel = quantize_qkv(run.spec(), context());
  const TestStream stream;
  const CapturedGraph graph(stream, [&] { kernel(run.arguments(), stream.get()); });
  for (int replay = 0; replay < 2; ++replay) {
    run.fill();
    graph.run(stream);
    EXPECT_EQ(run.check(), "") << "replay " << replay;
  }
}

}  // namespace
}  // namespace jit::testing
