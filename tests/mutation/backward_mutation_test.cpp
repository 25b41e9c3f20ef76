// Mutations of the backward kernels: each must be noticed.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::backward_mutations {
namespace {

// Several tiles on both sides, two of them in flight, partial ones and empty ones, queries without keys, two heads that
// share keys.
const AttentionCase problem = {
    .spec = {.head_dim = 32, .gqa_ratio = 2, .mask = mask::causal(), .score = score::softcap(2)},
    .seqlen_q = 120,
    .seqlen_kv = 83,
    .seed = 5};

std::string noticed_of_backward(const TemplateMutation* mutation) {
  return noticed_of_gradients(mutation, problem,
                              BackwardDqMmaSync{.tile_q = 32, .tile_kv = 16, .warps = 2, .stages = 2},
                              BackwardDkvMmaSync{.tile_q = 16, .tile_kv = 32, .warps = 2, .stages = 2});
}

// In one pass: sums over several blocks, of several tiles each; and scores far below 0, beside which those of keys that
// there are not are large.
std::array<AttentionCase, 2> one_pass_problems(int head_dim) {
  return {{{.spec = {.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()},
            .seqlen_q = 330,
            .seqlen_kv = 300,
            .seed = 5},
           {.spec = {.head_dim = head_dim}, .seqlen_q = 70, .seqlen_kv = 2, .amplitude = 12, .seed = 5}}};
}

// Which head dims have warps that add to dQ, and which a consumer that has it.
constexpr int with_adders = 72, beside_queries = 64;

std::string noticed_of_one_pass(const TemplateMutation* mutation, const BackwardWgmma& config, int head_dim) {
  for (const AttentionCase& one : one_pass_problems(head_dim)) {
    if (std::string trouble = noticed_of_gradients(mutation, one, config); !trouble.empty()) return trouble;
  }
  return "";
}

constexpr BackwardWgmma any_order = {.stages = 2};
constexpr BackwardWgmma in_turn = {.stages = 2, .deterministic = true};

UNMUTATED_TEST(BackwardOnePass, IsRightUnmutated) {
  using Subject = std::pair<BackwardWgmma, int>;
  for (const auto& [config, head_dim] : reference::some_of<Subject>({{any_order, with_adders},
                                                                     {in_turn, with_adders},
                                                                     {any_order, beside_queries},
                                                                     {in_turn, beside_queries}},
                                                                    3))
    EXPECT_EQ(noticed_of_one_pass(nullptr, config, head_dim), "")
        << to_string(KernelConfig(config)) << ", head_dim " << head_dim;
}

class OnePassMutationTest : public MutationTest {};

TEST_P(OnePassMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_one_pass(&GetParam(), any_order, with_adders));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, OnePassMutationTest,
    ::testing::Values(
        TemplateMutation{
            "NoWaitForKeys", removed, {"data race", "access in flight", "uninitialized read", "step limit"}},
        TemplateMutation{
            "NoWaitForQueries", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoWaitForDo", removed, {"data race", "access in flight"}},
        TemplateMutation{
            "NoWaitForTheOthersDs", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoFenceBehindDs", removed, {"missing proxy fence"}},
        TemplateMutation{"NoFenceBehindDq", removed, {"missing proxy fence"}},
        TemplateMutation{"NoWaitForTheAdder", removed, {"data race", "access in flight"}},
        TemplateMutation{
            "TheAdderDoesNotWait", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{
            "TheAdderLetsGoTooEarly", removed, {"data race", "access in flight", "unfinished copy"}},
        TemplateMutation{"QueriesAreOverwritten", removed, {"data race", "access in flight"}},
        TemplateMutation{"ScoresAreNotWaitedFor", {"<1>", "<2>"}, {"access in flight"}},
        TemplateMutation{"DqIsNotWaitedFor", {"<0>", "<1>"}, {"access in flight"}},
        TemplateMutation{"DvLeavesUnfinished", {">()", " + 1>()"}, {"access in flight"}},
        TemplateMutation{"GradientsAreOverwritten", removed, {"data race", "access in flight"}},
        TemplateMutation{"LanesDoNotWaitForTheCopy", removed, {"data race", "access in flight"}},
        TemplateMutation{
            "GradientsAreCopiedTooEarly", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoFenceBehindGradients", removed, {"missing proxy fence"}},
        TemplateMutation{"TheBlockEndsBeforeItsCopies", removed, {"unfinished copy"}},
        TemplateMutation{"DkUnscaled", {"($,", "(1.0f,"}},
        TemplateMutation{"RowsOfTheFirstWarp", {" + $;", ";"}, {"data race"}},
        TemplateMutation{"NothingIsZeroed", {"$", ";"}, {"uninitialized read"}},
        TemplateMutation{"DeltaLeftOut", {"__fmaf_rn($)", "0 * x[i] * y[i]"}},
        TemplateMutation{"QueriesOfAnotherOrder", {"4 $ 2", "2 $ 8"}},
        TemplateMutation{"TheEndOfKeysIsNotMasked", {"|| $ ?", "?"}},
        TemplateMutation{"PartialTilesTakenForFull", {"{ $ }", "{ return false; }"}},
        TemplateMutation{"DqUnscaled", {"($,", "(1.0f,"}}),
    ::testing::PrintToStringParamName());

// More tiles of keys than blocks at a time, some of which no query sees.
std::string noticed_of_many_tiles(const TemplateMutation* mutation, const BackwardWgmma& config,
                                  int head_dim = with_adders) {
  const AttentionCase many_tiles = {.spec = {.head_dim = head_dim, .mask = mask::causal()},
                                    .heads_kv = 70,
                                    .seqlen_q = 70,
                                    .seqlen_kv = 290,
                                    .seed = 5};
  return noticed_of_gradients(mutation, many_tiles, config);
}

UNMUTATED_TEST(BackwardTileAfterTile, IsRightUnmutated) {
  for (const BackwardWgmma& config : reference::some_of<BackwardWgmma>({any_order, in_turn}, 2))
    EXPECT_EQ(noticed_of_many_tiles(nullptr, config), "") << to_string(KernelConfig(config));
}

class TileAfterTileMutationTest : public MutationTest {};

TEST_P(TileAfterTileMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_many_tiles(&GetParam(), any_order));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, TileAfterTileMutationTest,
    ::testing::Values(
        TemplateMutation{"KeysAreOverwritten",
                         removed,
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{"ValuesAreOverwritten",
                         removed,
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{"KeysAreLetGoTooEarly",
                         {"$", "tile_.pipelines.keys.consumer_release(tile_.keys.round);\n    $"},
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{"AllBeginWithTheFirstTile", {"$", "return 0;"}, {"data race", "unsure"}, {}, true},
        TemplateMutation{"TheLastQueriesAreKept", removed, {"deadlock"}}),
    ::testing::PrintToStringParamName());

// A consumer of its own for dQ beside those of rows.
class BesideQueriesMutationTest : public MutationTest {};

TEST_P(BesideQueriesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_one_pass(&GetParam(), any_order, beside_queries));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, BesideQueriesMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForThePlaceOfDs", removed, {"data race", "access in flight", "barrier"}},
        TemplateMutation{"DpIsNotWaitedFor", removed, {"access in flight"}},
        TemplateMutation{"ScoresBesideQueriesAreNotWaitedFor", removed, {"access in flight"}},
        TemplateMutation{"DkIsNotWaitedFor", removed, {"access in flight", "data race"}},
        TemplateMutation{"NoWaitForTheAdder", removed, {"data race", "access in flight"}},
        TemplateMutation{
            "TheOtherPlaceOfDq", {") +", " + 1) +"}, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"StepsOfHeldKeysInAnotherOrder", {"*$)", "* (steps - 1 -$))"}},
        TemplateMutation{"RowsOfTheFirstConsumerAreHeld", {"), $)", "), 0)"}}),
    ::testing::PrintToStringParamName());

// Tile after tile.
UNMUTATED_TEST(BackwardBesideQueries, IsRightUnmutatedTileAfterTile) {
  EXPECT_EQ(noticed_of_many_tiles(nullptr, any_order, beside_queries), "");
}

class BesideQueriesTileAfterTileMutationTest : public MutationTest {};

TEST_P(BesideQueriesTileAfterTileMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_many_tiles(&GetParam(), any_order, beside_queries));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, BesideQueriesTileAfterTileMutationTest,
    ::testing::Values(
        TemplateMutation{"KeysAreLetGoTwice",
                         {"if ($) ", ""},
                         {"data race", "access in flight", "barrier", "wrong transaction count"}},
        TemplateMutation{"KeysAreOverwritten_OfTwoTilesBefore",
                         removed,
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{"ValuesOfTheOtherTile",
                         {")),", " + 1)),"},
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"KeysOfTheOtherTileForDq",
                         {"k($)", "k($ + 1)"},
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{
            "TheInfoOfTheOtherTile", {"));", " + 1));"}, {"data race", "uninitialized read", "deadlock"}}),
    ::testing::PrintToStringParamName());

// Blocks that take turns to add to dQ. Sums in another order have other bits.
std::string noticed_in_turn(const TemplateMutation& mutation, int head_dim) {
  constexpr int tries = 4;  // which block is early, is chance
  // Up to four tiles of keys add to each of queries.
  const AttentionCase problem{.spec = {.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()},
                              .seqlen_q = 330,
                              .seqlen_kv = 500,
                              .seed = 5};
  const MutatedTemplates templates(&mutation);
  const Context unmutated(shared_cache_settings()), mutated(templates.settings());
  const CurrentDevice scope(0);
  BackwardRun run(problem);
  run.compute(unmutated, in_turn);
  const std::vector<std::uint8_t> right = run.gradients();
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

class TurnsMutationTest : public MutationTest {};

TEST_P(TurnsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_in_turn(GetParam(), beside_queries));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, TurnsMutationTest,
    ::testing::Values(
        TemplateMutation{"NobodyWaits_AndTheLastAreLate",
                         {"(int $) added =", "(int i = 0; i < 3000 * (int)blockIdx.x; ++i)"},
                         {"uninitialized read", "data race"},
                         {},
                         true},
        TemplateMutation{"AllAreTakenForFirst", {"= $;", "= 0;"}, {"deadlock"}},
        TemplateMutation{"PartialTilesAreForgotten", {"!= $empty", "== $full"}, {"deadlock"}, {}, true},
        TemplateMutation{
            "AllHeadsBeginWithTheFirstTile", {"return ", "return false && "}, {"deadlock"}, {}, true},
        TemplateMutation{"AdditionsAreNotCleared", removed, {"uninitialized read", "deadlock"}}),
    ::testing::PrintToStringParamName());

// A consumer with a role adds from registers.
class TurnsOfRolesMutationTest : public MutationTest {};

TEST_P(TurnsOfRolesMutationTest, IsCaught) { expect_caught(GetParam(), noticed_in_turn(GetParam(), 136)); }

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, TurnsOfRolesMutationTest,
    ::testing::Values(TemplateMutation{"TurnsAreNotPassedOn", removed, {"deadlock"}},
                      TemplateMutation{
                          "ConsumerTakesNoTurns", removed, {"deadlock", "uninitialized read"}, {}, true}),
    ::testing::PrintToStringParamName());

// Turns of warps that add by TMA.
class TurnsOfAddersMutationTest : public MutationTest {};

TEST_P(TurnsOfAddersMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_in_turn(GetParam(), with_adders));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, TurnsOfAddersMutationTest,
    ::testing::Values(
        TemplateMutation{"AddersTakeNoTurns", removed, {"deadlock", "uninitialized read"}, {}, true},
        TemplateMutation{"NobodyStores", {" = $ 0", " = false"}, {"uninitialized read"}, {}, true},
        TemplateMutation{"OneOfTwoIsEnough", {" * $)", ")"}, {"deadlock"}, {}, true}),
    ::testing::PrintToStringParamName());

UNMUTATED_TEST(Backward, IsRightUnmutated) { EXPECT_EQ(noticed_of_backward(nullptr), ""); }

class BackwardMutationTest : public MutationTest {};

TEST_P(BackwardMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_backward(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    BackwardMmaSync, BackwardMutationTest,
    ::testing::Values(TemplateMutation{"NoWaitForTilesOfPass", removed, {"data race", "access in flight"}},
                      TemplateMutation{"NoBarrierInPass", removed, {"data race", "access in flight"}},
                      TemplateMutation{"NoBarrierBehindPass", removed, {"data race", "access in flight"}},
                      TemplateMutation{"DeltaOfStatisticsLeftOut", {"__fmaf_rn($)", "0 * x[i] * y[i]"}},
                      TemplateMutation{"StatisticsOfTheFirstHead", {"head", "0"}},
                      TemplateMutation{"OneHeadOfTheGroup", {"< $;", "< 1;"}},
                      TemplateMutation{"PartialTilesOfQueriesTakenForFull", {"return $ || ", "return "}},
                      TemplateMutation{"NoDerivativeOfTheScore", removed},
                      TemplateMutation{"WrongDerivativeOfTanh", {"y * y", "y"}},
                      TemplateMutation{"DqOfMmaUnscaled", {">($,", ">(1.0f,"}},
                      TemplateMutation{"FactorsOfDv_GradientsOfScores", {"scores", "d_scores"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_mutations
