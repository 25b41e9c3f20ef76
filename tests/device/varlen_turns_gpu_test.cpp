// Gradients of varlen sequences with deterministic sums, in one pass, whose blocks draw tiles of keys and take turns
// to add to dQ.
#include <jit/attention.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing::varlen_turns {
namespace {

constexpr SequenceKind dense = SequenceKind::dense, varlen = SequenceKind::varlen;

// Requests without queries, without keys, without either; shorter than a tile, and of several that end anywhere.
const std::vector<int> lengths_q = {130, 0, 33, 70, 0, 5, 1, 64};
const std::vector<int> lengths_kv = {290, 70, 0, 1, 0, 400, 128, 257};

VarlenBackwardCase case_of(AttentionSpec spec) {
  spec.sequences_q = spec.sequences_kv = varlen;
  return {.spec = spec,
          .heads_kv = 2,
          .q = {.lengths = lengths_q},
          .kv = {.lengths = lengths_kv},
          .seed = reference::test_seed()};
}

class VarlenTurnsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  }

  // By kernels of a config, or by those that a call takes.
  static void expect_right(const VarlenBackwardCase& problem,
                           const std::optional<BackwardWgmma>& config = {}) {
    const CurrentDevice scope(0);
    VarlenBackwardRun run(problem);
    std::vector<std::uint8_t> first;
    for (int i = 0; i < 2; ++i) {
      run.poison_gradients();
      if (config) {
        run.compute(context(), *config);
      } else {
        attention_when_called(problem.spec, context()).backward(run.arguments(/*deterministic=*/true));
      }
      EXPECT_EQ(run.check(), "") << to_string(problem);
      if (i == 0) first = run.gradients();
    }
    EXPECT_EQ(run.gradients(), first) << to_string(problem);
  }
};

constexpr BackwardWgmma in_turn = {.stages = 2, .deterministic = true};

TEST_F(VarlenTurnsTest, MasksScoresAndHeads) {
  expect_right(case_of({.head_dim = 128, .gqa_ratio = 2, .mask = mask::causal()}), in_turn);
  expect_right(case_of({.head_dim = 64, .score = score::softcap(3)}), in_turn);
  expect_right(case_of({.dtype = DType::fp16,
                        .head_dim = 96,
                        .gqa_ratio = 3,
                        .mask = mask::sliding_window(20, 5) || mask::prefix(7)}),
               in_turn);
  expect_right(case_of({.head_dim = 136, .head_dim_v = 8, .mask = !mask::causal(Alignment::top_left)}),
               in_turn);
  expect_right(case_of({.head_dim = 40, .gqa_ratio = 2, .mask = mask::causal(Alignment::top_left)}), in_turn);
}

TEST_F(VarlenTurnsTest, RowsOfNobodyAndDenseSides) {
  VarlenBackwardCase problem = case_of({.head_dim = 32, .gqa_ratio = 2, .mask = mask::causal()});
  problem.q.spare = {7, 0, 66, 1, 3, 2, 0, 5};
  problem.kv.spare = {0, 64, 5, 2, 0, 31, 1, 1};
  problem.q.around = 3;
  problem.kv.around = 140;
  expect_right(problem, in_turn);
  for (const auto& [kind_q, kind_kv] : {std::pair(varlen, dense), {dense, varlen}, {dense, dense}}) {
    problem = case_of({.head_dim = 32, .gqa_ratio = 2, .mask = mask::causal()});
    for (const auto& [side, kind] : {std::pair(&problem.q, kind_q), {&problem.kv, kind_kv}}) {
      const int most = *std::max_element(side->lengths.begin(), side->lengths.end());
      for (const int length : side->lengths) side->spare.push_back(kind == dense ? most - length : 1);
    }
    problem.spec.sequences_q = kind_q;
    problem.spec.sequences_kv = kind_kv;
    expect_right(problem);
  }
}

// More tiles of keys than a word has bits, and than are copied at once.
TEST_F(VarlenTurnsTest, ManyTilesOfKeys) {
  VarlenBackwardCase problem = case_of({.head_dim = 8, .mask = mask::causal()});
  problem.heads_kv = 1;
  problem.q.lengths = {3, 65};
  problem.kv.lengths = {130, 65 * 128 + 5};
  expect_right(problem, in_turn);
}

TEST_F(VarlenTurnsTest, ManySequences) {
  VarlenBackwardCase problem = case_of({.head_dim = 8, .mask = mask::causal()});
  problem.heads_kv = 1;
  problem.q.lengths.clear();
  problem.kv.lengths.clear();
  for (int b = 0; b < 150; ++b) {
    problem.q.lengths.push_back(b * 7 % 4);
    problem.kv.lengths.push_back(b % 40 == 0 ? 140 : b * 5 % 3);
  }
  expect_right(problem, in_turn);
}

// Calls whose spec and sizes choose.
TEST_F(VarlenTurnsTest, ACallThatAsksForEqualBitsTakesOnePass) {
  const VarlenBackwardCase problem = case_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()});
  VarlenBackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  attention.backward(run.arguments(true));
  EXPECT_EQ(run.check(), "");
  const auto kernels = attention.backward_kernels(run.arguments(true));
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_THAT(to_string(kernels[1].config()), ::testing::HasSubstr("deterministic=true"));
}

// Bits of a request do not depend on the others.
// With grouped heads the first tile of keys adds first, else the last one.
class BitsOfARequestTest : public VarlenTurnsTest, public ::testing::WithParamInterface<int> {};

TEST_P(BitsOfARequestTest, AreItsOwn) {
  const int ratio = GetParam();
  const CurrentDevice scope(0);
  VarlenBackwardCase alone = case_of({.head_dim = 64, .gqa_ratio = ratio, .mask = mask::causal()});
  VarlenBackwardCase together = alone;  // whose first request has the same numbers
  alone.q.lengths = {130};
  alone.kv.lengths = {400};
  together.q.lengths = {130, 70, 0, 200};
  together.kv.lengths = {400, 300, 5, 150};
  VarlenBackwardRun one(alone), all(together);
  one.compute(context(), in_turn);
  all.compute(context(), in_turn);
  constexpr std::size_t row_bytes = 2 * 64 * 2, behind = 16;  // of two heads; bytes behind a tensor
  const auto first_rows = [&](const std::vector<std::uint8_t>& gradients, std::size_t q, std::size_t kv) {
    std::vector<std::uint8_t> rows;
    const std::size_t of_q = static_cast<std::size_t>(ratio) * row_bytes;
    const std::size_t dk = q * of_q + behind, dv = dk + kv * row_bytes + behind;
    for (const auto& [begin, bytes] :
         {std::pair(std::size_t{0}, 130 * of_q), {dk, 400 * row_bytes}, {dv, 400 * row_bytes}}) {
      const auto from = gradients.begin() + static_cast<std::ptrdiff_t>(begin);
      rows.insert(rows.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
    }
    return rows;
  };
  EXPECT_EQ(first_rows(one.gradients(), 130, 400), first_rows(all.gradients(), 400, 855));
}

INSTANTIATE_TEST_SUITE_P(VarlenTurns, BitsOfARequestTest, ::testing::Values(1, 2));

// Boundaries that do not ascend give a place to tiles of two requests, and turns are those of one. Nobody waits for ever.
TEST_F(VarlenTurnsTest, WildBoundariesEnd) {
  const CurrentDevice scope(0);
  VarlenBackwardCase problem = case_of({.head_dim = 64});
  problem.q.lengths = {400, 0, 0};
  problem.kv.lengths = {300, 0, 200};
  VarlenBackwardRun run(problem);
  const std::vector<int> wild = {100, 400, 0, 90};
  check(driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(run.arguments().cu_seqlens_q.data), wild.data(),
                              wild.size() * sizeof(int)),
        "cuMemcpyHtoD");
  std::string said;
  try {
    run.compute(context(), in_turn);
    run.gradients();  // waits
  } catch (const Error& error) {
    said = error.what();  // an emulated device tells what both do there
  }
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("deadlock")));
  if (!said.empty()) {
    EXPECT_THAT(said, ::testing::AnyOf(::testing::HasSubstr("uninitialized read"),
                                       ::testing::HasSubstr("data race")));
  }
}

}  // namespace
}  // namespace jit::testing::varlen_turns
