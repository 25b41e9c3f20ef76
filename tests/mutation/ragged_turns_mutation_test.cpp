// Mutations of how blocks take turns to add to dQ of ragged sequences: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/ragged_backward_run.h"

namespace jit::testing::ragged_turns_mutations {
namespace {

constexpr BackwardWgmma in_turn = {.stages = 2, .deterministic = true};

RaggedBackwardCase problem_of(const AttentionSpec& wanted, const std::vector<int>& lengths_q,
                              const std::vector<int>& lengths_kv) {
  AttentionSpec spec = wanted;
  spec.sequences_q = spec.sequences_kv = SequenceKind::ragged;
  return {.spec = spec, .heads_kv = 1, .q = {.lengths = lengths_q}, .kv = {.lengths = lengths_kv}, .seed = 5};
}

// A consumer of dQ, or warps that add. Up to four tiles of keys add to each of queries, and to those of one request none.
const RaggedBackwardCase beside_queries =
    problem_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, {130, 0, 33, 70}, {400, 70, 0, 300});
const RaggedBackwardCase with_adders = problem_of({.head_dim = 128, .gqa_ratio = 2, .mask = mask::causal()},
                                                  {130, 0, 33, 70}, {400, 70, 0, 300});
// More tiles of keys than multiprocessors, and than two words have bits.
const RaggedBackwardCase of_many_tiles = problem_of({.head_dim = 8}, {2}, {140 * 128});

// Sums in another order have other bits.
std::string noticed(const TemplateMutation* mutation, const RaggedBackwardCase& problem,
                    const std::vector<int>& boundaries_q = {}) {
  constexpr int tries = 4;  // which block is early, is chance
  const MutatedTemplates templates(mutation);
  const Context unmutated(shared_cache_settings()), mutated(templates.settings());
  const CurrentDevice scope(0);
  RaggedBackwardRun run(problem);
  run.compute(unmutated, in_turn);
  const std::vector<std::uint8_t> right = run.gradients();
  const std::string trouble = run.check();
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

TEST(RaggedTurns, AreRightUnmutated) {
  for (const RaggedBackwardCase& problem : {beside_queries, with_adders, of_many_tiles})
    EXPECT_EQ(noticed(nullptr, problem), "");
}

constexpr const char* turns = "backward_wgmma/turns.cuh";
constexpr const char* notes = "backward_wgmma/note_turns.cuh";
constexpr const char* words = "backward_wgmma/turn_words.cuh";
constexpr const char* key_tiles = "backward_wgmma/key_tiles.cuh";

class RaggedTurnsMutationTest : public MutationTest {};

TEST_P(RaggedTurnsMutationTest, IsCaught) { expect_caught(GetParam(), noticed(&GetParam(), beside_queries)); }

INSTANTIATE_TEST_SUITE_P(
    RaggedTurns, RaggedTurnsMutationTest,
    ::testing::Values(
        TemplateMutation{
            "NobodyWaitsAndTheFirstAreLate",
            turns,
            "  for (int added = -1; added != count && added != count + of_peer;) added = "
            "load_acquire(additions);\n",
            "  for (int i = 0; i < 3000 * (int)(gridDim.x - blockIdx.x); ++i) load_acquire(additions);\n",
            {"uninitialized read", "data race", "deadlock"},
            {},
            true},
        TemplateMutation{"PartialTilesAreForgotten",
                         notes,
                         "!= TileClass::empty",
                         "== TileClass::full",
                         {"deadlock", "uninitialized read", "data race"},
                         {},
                         true},
        TemplateMutation{"AdditionsAreNotCleared",
                         notes,
                         "if (threadIdx.x == 0) turns.additions[tile] = 0;",
                         "",
                         {"uninitialized read", "deadlock"}},
        TemplateMutation{"SumsOfQueriesWithoutKeysAreNotCleared",
                         notes,
                         "if (before == 0) clear_sums",
                         "if (false) clear_sums",
                         {"uninitialized read"}},
        TemplateMutation{"WordsOfTheFirstTileOfQueries",
                         words,
                         "return query_tile *\n           padded_turn_words(ragged_tiles",
                         "return 0 *\n           padded_turn_words(ragged_tiles",
                         {"data race"}},
        TemplateMutation{"TheFirstTileOfQueriesIsVisited",
                         "backward_wgmma/turn_tiles.cuh",
                         "(tiles_ - 1 - place / heads) * tile_q",
                         "0 * (tiles_ - 1 - place / heads) * tile_q",
                         {"deadlock"}},
        TemplateMutation{"TheLastPlaceThatIsSeenIsCutOff",
                         "backward_wgmma/turn_tiles.cuh",
                         "end_ = first + warp_size - __clz",
                         "end_ = first + warp_size - 1 - __clz",
                         {"deadlock", "uninitialized read"},
                         {},
                         true},
        TemplateMutation{
            "ATileIsBeforeItself", words, "& ~(~0u << key_tile", "& ~(~1u << key_tile", {"deadlock"}}),
    ::testing::PrintToStringParamName());

class RaggedTurnsOfAddersMutationTest : public MutationTest {};

TEST_P(RaggedTurnsOfAddersMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), with_adders));
}

INSTANTIATE_TEST_SUITE_P(RaggedTurns, RaggedTurnsOfAddersMutationTest,
                         ::testing::Values(TemplateMutation{"OneOfTwoIsEnough",
                                                            turns,
                                                            "before * KernelTraits<Config>::dq_adders",
                                                            "before",
                                                            {"deadlock"},
                                                            {},
                                                            true}),
                         ::testing::PrintToStringParamName());

class RaggedTurnsOfManyTilesMutationTest : public MutationTest {};

TEST_P(RaggedTurnsOfManyTilesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), of_many_tiles));
}

INSTANTIATE_TEST_SUITE_P(
    RaggedTurns, RaggedTurnsOfManyTilesMutationTest,
    ::testing::Values(TemplateMutation{"TheLastTilesAreDrawnFirst",
                                       key_tiles,
                                       "return number < tiles ? maps_.order.tile(number)",
                                       "return number < tiles ? tiles - 1 - maps_.order.tile(number)",
                                       {"deadlock"}},
                      TemplateMutation{"TilesOfOtherWordsAreForgotten",
                                       notes,
                                       "words[word] = {adds, own};",
                                       "words[word] = {adds, 0};",
                                       {"deadlock", "data race"}},
                      TemplateMutation{"TheFirstOfTwoWords",
                                       turns,
                                       "place + key_tile / turn_word_tiles % turn_words_at_once *",
                                       "place + 0 * key_tile / turn_word_tiles % turn_words_at_once *",
                                       {"deadlock", "data race"}}),
    ::testing::PrintToStringParamName());

// The second tile of queries of the first request has the place of the first one of the third.
class WildBoundariesMutationTest : public MutationTest {};

TEST_P(WildBoundariesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), problem_of({.head_dim = 64}, {400, 0, 0}, {300, 0, 200}),
                                    {100, 400, 0, 90}));
}

INSTANTIATE_TEST_SUITE_P(
    RaggedTurns, WildBoundariesMutationTest,
    ::testing::Values(TemplateMutation{
        "NobodyLooksAtThem", turns, "return __all_sync(full_warp, ascend);", "return true;", {"deadlock"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::ragged_turns_mutations
