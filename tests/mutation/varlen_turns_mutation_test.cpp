// Mutations of how blocks take turns to add to dQ of varlen sequences: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing::varlen_turns_mutations {
namespace {

constexpr BackwardWgmma in_turn = {.stages = 2, .deterministic = true};

VarlenBackwardCase problem_of(const AttentionSpec& wanted, const std::vector<int>& lengths_q,
                              const std::vector<int>& lengths_kv) {
  AttentionSpec spec = wanted;
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  return {.spec = spec, .heads_kv = 1, .q = {.lengths = lengths_q}, .kv = {.lengths = lengths_kv}, .seed = 5};
}

// A consumer of dQ, or warps that add. Up to four tiles of keys add to each of queries, and to those of one request none.
const VarlenBackwardCase beside_queries =
    problem_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, {130, 0, 33, 70}, {400, 70, 0, 300});
const VarlenBackwardCase with_adders = problem_of({.head_dim = 128, .gqa_ratio = 2, .mask = mask::causal()},
                                                  {130, 0, 33, 70}, {400, 70, 0, 300});
// More tiles of keys than multiprocessors, and than two words have bits.
const VarlenBackwardCase of_many_tiles = problem_of({.head_dim = 8}, {2}, {140 * 128});

// Sums in another order have other bits.
std::string noticed(const TemplateMutation* mutation, const VarlenBackwardCase& problem,
                    const std::vector<int>& boundaries_q = {}) {
  constexpr int tries = 4;  // which block is early, is chance
  const MutatedTemplates templates(mutation);
  const Context unmutated(shared_cache_settings()), mutated(templates.settings());
  const CurrentDevice scope(0);
  VarlenBackwardRun run(problem);
  run.compute(unmutated, in_turn);
  const std::vector<std::uint8_t> right = run.gradients();
  std::string trouble = run.check();
  if (!trouble.empty()) return trouble;
  if (!boundaries_q.empty()) {
    check(driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(run.arguments().cu_seqlens_q.data),
                                boundaries_q.data(), boundaries_q.size() * sizeof(int)),
          "cuMemcpyHtoD");
  }
  for (int i = 0; i < tries; ++i) {
    run.poison_gradients();
    try {
      run.compute(mutated, in_turn);
    } catch (const Error& error) {
      return fmt::format("{}: {}", to_string(error.code()), error.what());
    }
    if (run.gradients() != right) return "other bits";
  }
  return "";
}

UNMUTATED_TEST(VarlenTurns, AreRightUnmutated) {
  for (const VarlenBackwardCase& problem : {beside_queries, with_adders, of_many_tiles})
    EXPECT_EQ(noticed(nullptr, problem), "");
}

class VarlenTurnsMutationTest : public MutationTest {};

TEST_P(VarlenTurnsMutationTest, IsCaught) { expect_caught(GetParam(), noticed(&GetParam(), beside_queries)); }

INSTANTIATE_TEST_SUITE_P(
    VarlenTurns, VarlenTurnsMutationTest,
    ::testing::Values(
        TemplateMutation{"NobodyWaits_AndTheFirstAreLate",
                         {"(int $) added =", "(int i = 0; i < 3000 * (int)(gridDim.x - blockIdx.x); ++i)"},
                         {"uninitialized read", "data race", "deadlock"},
                         {},
                         true},
        TemplateMutation{"PartialTilesAreForgotten_OfVarlenOnes",
                         {"!= $empty", "== $full"},
                         {"deadlock", "uninitialized read", "data race"},
                         {},
                         true},
        TemplateMutation{"AdditionsAreNotCleared_OfVarlenOnes", removed, {"uninitialized read", "deadlock"}},
        TemplateMutation{
            "SumsOfQueriesWithoutKeysAreNotCleared", {"if ($)", "if (false)"}, {"uninitialized read"}},
        TemplateMutation{"WordsOfTheFirstTileOfQueries", {"$", "return 0 *"}, {"data race"}},
        TemplateMutation{"TheFirstTileOfQueriesIsVisited", {"return ", "return 0 * "}, {"deadlock"}},
        TemplateMutation{"TheLastPlaceThatIsSeenIsCutOff",
                         {"- $;", "- 1 - $;"},
                         {"deadlock", "uninitialized read"},
                         {},
                         true},
        TemplateMutation{"ATileIsBeforeItself", {"~0u", "~1u"}, {"deadlock"}}),
    ::testing::PrintToStringParamName());

class VarlenTurnsOfAddersMutationTest : public MutationTest {};

TEST_P(VarlenTurnsOfAddersMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), with_adders));
}

INSTANTIATE_TEST_SUITE_P(VarlenTurns, VarlenTurnsOfAddersMutationTest,
                         ::testing::Values(TemplateMutation{
                             "OneOfTwoIsEnough", {" * $)", ")"}, {"deadlock"}, {}, true}),
                         ::testing::PrintToStringParamName());

class VarlenTurnsOfManyTilesMutationTest : public MutationTest {};

TEST_P(VarlenTurnsOfManyTilesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), of_many_tiles));
}

INSTANTIATE_TEST_SUITE_P(
    VarlenTurns, VarlenTurnsOfManyTilesMutationTest,
    ::testing::Values(
        TemplateMutation{"TheLastTilesAreDrawnFirst", {"? $;", "? tiles - 1 - $;"}, {"deadlock"}},
        TemplateMutation{"TilesOfOtherWordsAreForgotten", {"own", "0"}, {"deadlock", "data race"}},
        TemplateMutation{"TheFirstOfTwoWords", {"+ $<", "+ 0 * $<"}, {"deadlock", "data race"}}),
    ::testing::PrintToStringParamName());

// The second tile of queries of the first request has the place of the first one of the third.
class WildBoundariesMutationTest : public MutationTest {};

TEST_P(WildBoundariesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), problem_of({.head_dim = 64}, {400, 0, 0}, {300, 0, 200}),
                                    {100, 400, 0, 90}));
}

INSTANTIATE_TEST_SUITE_P(VarlenTurns, WildBoundariesMutationTest,
                         ::testing::Values(TemplateMutation{
                             "NobodyLooksAtThem", {"$", "return true;"}, {"deadlock"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::varlen_turns_mutations
