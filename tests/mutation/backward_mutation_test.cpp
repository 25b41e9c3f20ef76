// Mutations of the backward kernels: each must be noticed.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::backward_mutations {
namespace {

// Several tiles on both sides, two of them in flight, partial ones and empty ones, queries without keys, two heads that
// share keys.
const BackwardCase problem = {
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
std::array<BackwardCase, 2> one_pass_problems(int head_dim) {
  return {{{.spec = {.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()},
            .seqlen_q = 330,
            .seqlen_kv = 300,
            .seed = 5},
           {.spec = {.head_dim = head_dim}, .seqlen_q = 70, .seqlen_kv = 2, .amplitude = 12, .seed = 5}}};
}

// Which head dims have warps that add to dQ, and which a consumer that has it.
constexpr int with_adders = 72, beside_queries = 64;

std::string noticed_of_one_pass(const TemplateMutation* mutation, const BackwardWgmma& config, int head_dim) {
  for (const BackwardCase& one : one_pass_problems(head_dim)) {
    if (std::string trouble = noticed_of_gradients(mutation, one, config); !trouble.empty()) return trouble;
  }
  return "";
}

constexpr BackwardWgmma few_queries = {.stages = 2};
constexpr BackwardWgmma in_turn = {.stages = 2, .deterministic = true};
constexpr BackwardWgmma many_queries = {.tile_q = 128};

TEST(BackwardOnePass, IsRightUnmutated) {
  using Subject = std::pair<BackwardWgmma, int>;
  for (const auto& [config, head_dim] : reference::some_of<Subject>({{few_queries, with_adders},
                                                                     {in_turn, with_adders},
                                                                     {many_queries, beside_queries},
                                                                     {few_queries, beside_queries},
                                                                     {in_turn, beside_queries}},
                                                                    3))
    EXPECT_EQ(noticed_of_one_pass(nullptr, config, head_dim), "")
        << to_string(KernelConfig(config)) << ", head_dim " << head_dim;
}

class OnePassMutationTest : public MutationTest {};

TEST_P(OnePassMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_one_pass(&GetParam(), few_queries, with_adders));
}

constexpr const char* consumer = "backward_wgmma/consumer.cuh";
constexpr const char* writer = "backward_wgmma/gradient_writer.cuh";
constexpr const char* loader = "backward_wgmma/loader.cuh";
constexpr const char* dq_place = "backward_wgmma/dq_place.cuh";
constexpr const char* dq_rows = "backward_wgmma/dq_rows.cuh";
constexpr const char* of_queries = "backward_wgmma/query_consumer.cuh";
constexpr const char* key_tiles = "backward_wgmma/key_tiles.cuh";
constexpr const char* prepare = "backward_wgmma/prepare.cuh";

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, OnePassMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForKeys",
                         key_tiles,
                         "  rings.keys.wait_full(round);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read", "step limit"}},
        TemplateMutation{"NoWaitForQueries",
                         consumer,
                         "    rings_.q.wait_full(step);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoWaitForDo",
                         consumer,
                         "    if ((flags_ & do_is_there) == 0) rings_.d_o.wait_full(step);\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoWaitForTheOthersDs",
                         consumer,
                         "    rings_.ds.wait_full(step);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoFenceBehindDs",
                         consumer,
                         "    fence_proxy_async_shared();\n    rings_.ds.arrive_full(step);",
                         "    rings_.ds.arrive_full(step);",
                         {"missing proxy fence"}},
        TemplateMutation{
            "NoFenceBehindDq", dq_place, "  fence_proxy_async_shared();\n", "", {"missing proxy fence"}},
        TemplateMutation{"NoWaitForTheAdder",
                         dq_place,
                         "  ring.wait_empty(part);\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"TheAdderDoesNotWait",
                         loader,
                         "        ring_.wait_full(step * parts_.count + i);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"TheAdderLetsGoTooEarly",
                         loader,
                         "      cp_async_bulk_wait_group_read<0>();\n    }\n    ring_.arrive_empty(part);",
                         "    }\n    ring_.arrive_empty(part);",
                         {"data race", "access in flight", "unfinished copy"}},
        TemplateMutation{"QueriesAreOverwritten",
                         loader,
                         "    rings.q.wait_empty(step);\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"ScoresAreNotWaitedFor",
                         consumer,
                         "      wgmma_wait_group<1>();  // dK\n      exponentiate",
                         "      wgmma_wait_group<2>();\n      exponentiate",
                         {"access in flight"}},
        TemplateMutation{"DqIsNotWaitedFor",
                         consumer,
                         "    finish_dv<2>();\n    wgmma_wait_group<0>();",
                         "    finish_dv<2>();\n    wgmma_wait_group<1>();",
                         {"access in flight"}},
        TemplateMutation{"DvLeavesUnfinished",
                         consumer,
                         "    wgmma_wait_group<behind>();\n",
                         "    wgmma_wait_group<behind + 1>();\n",
                         {"access in flight"}},
        TemplateMutation{"GradientsAreOverwritten",
                         writer,
                         "    if (lane == 0) cp_async_bulk_wait_group_read<places - 1>();\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"LanesDoNotWaitForTheCopy",
                         writer,
                         "<places - 1>();\n    __syncwarp();\n",
                         "<places - 1>();\n",
                         {"data race", "access in flight"}},
        TemplateMutation{"GradientsAreCopiedTooEarly",
                         writer,
                         "    fence_proxy_async_shared();\n    __syncwarp();\n",
                         "    fence_proxy_async_shared();\n",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoFenceBehindGradients",
                         writer,
                         "    fence_proxy_async_shared();\n    __syncwarp();\n",
                         "    __syncwarp();\n",
                         {"missing proxy fence"}},
        TemplateMutation{"TheBlockEndsBeforeItsCopies",
                         writer,
                         "    if (by_tma && lane_id() == 0) cp_async_bulk_wait_group_read<0>();\n",
                         "",
                         {"unfinished copy"}},
        TemplateMutation{"DkUnscaled", writer, "over_kept_share<Config>(params_.softmax_scale, dropout_)",
                         "over_kept_share<Config>(1.0f, dropout_)"},
        TemplateMutation{"RowsOfTheFirstWarp",
                         writer,
                         "keys.k_begin + own_warp() * gradient_rows",
                         "keys.k_begin",
                         {"data race"}},
        TemplateMutation{
            "NothingIsZeroed", prepare, "    sums[i] = make_uint4(0, 0, 0, 0);", ";", {"uninitialized read"}},
        TemplateMutation{"DeltaLeftOut", prepare, "sum = __fmaf_rn(x[i], y[i], sum);",
                         "sum = 0 * x[i] * y[i];"},
        TemplateMutation{"QueriesOfAnotherOrder", "backward_wgmma/dq_sums.cuh",
                         "in_step % 8 / 2 * 4 + in_step / 8 * 2", "in_step % 8 / 2 * 2 + in_step / 8 * 8"},
        TemplateMutation{"TheEndOfKeysIsNotMasked", loader, "tiles.is_partial() || has_end_of_keys",
                         "tiles.is_partial()"},
        TemplateMutation{"PartialTilesTakenForFull", consumer, "return has_flag(query_note_partial);",
                         "return false;"},
        TemplateMutation{"DqUnscaled", dq_rows, "(params.softmax_scale, dropout)", "(1.0f, dropout)"}),
    ::testing::PrintToStringParamName());

// More tiles of keys than blocks at a time, some of which no query sees.
std::string noticed_of_many_tiles(const TemplateMutation* mutation, const BackwardWgmma& config,
                                  int head_dim = with_adders) {
  const BackwardCase many_tiles = {.spec = {.head_dim = head_dim, .mask = mask::causal()},
                                   .heads_kv = 70,
                                   .seqlen_q = 70,
                                   .seqlen_kv = 290,
                                   .seed = 5};
  return noticed_of_gradients(mutation, many_tiles, config);
}

TEST(BackwardTileAfterTile, IsRightUnmutated) {
  for (const BackwardWgmma& config : reference::some_of<BackwardWgmma>({few_queries, in_turn}, 2))
    EXPECT_EQ(noticed_of_many_tiles(nullptr, config), "") << to_string(KernelConfig(config));
}

class TileAfterTileMutationTest : public MutationTest {};

TEST_P(TileAfterTileMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_many_tiles(&GetParam(), few_queries));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, TileAfterTileMutationTest,
    ::testing::Values(
        TemplateMutation{"KeysAreOverwritten",
                         loader,
                         "    rings.keys.wait_empty(round);\n    if (elected)",
                         "    if (elected)",
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{"ValuesAreOverwritten",
                         loader,
                         "      rings.values.wait_empty(round);\n",
                         "",
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{
            "KeysAreLetGoTooEarly",
            consumer,
            "    if (has_queries) {\n      take_queries(step);",
            "    rings_.keys.arrive_empty(keys_.round);\n    if (has_queries) {\n      take_queries(step);",
            {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{"AllBeginWithTheFirstTile",
                         key_tiles,
                         "return static_cast<int>(blockIdx.x) / (Config::pair ? 2 : 1);",
                         "return 0;",
                         {"data race", "unsure"},
                         {},
                         true},
        TemplateMutation{"TheLastQueriesAreKept",
                         consumer,
                         "    rings_.q.arrive_empty(step);\n    finish_dq(step);",
                         "    finish_dq(step);",
                         {"deadlock"}}),
    ::testing::PrintToStringParamName());

// A consumer of its own for dQ beside those of rows.
class BesideQueriesMutationTest : public MutationTest {};

TEST_P(BesideQueriesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_one_pass(&GetParam(), few_queries, beside_queries));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, BesideQueriesMutationTest,
    ::testing::Values(TemplateMutation{"NoWaitForThePlaceOfDs",
                                       consumer,
                                       "      rings_.ds.wait_empty(step);\n",
                                       "",
                                       {"data race", "access in flight", "barrier"}},
                      TemplateMutation{"DpIsNotWaitedFor",
                                       consumer,
                                       "      wgmma_wait_group<1>();  // dP\n      rings_",
                                       "      rings_",
                                       {"access in flight"}},
                      TemplateMutation{"ScoresAreNotWaitedFor",
                                       consumer,
                                       "      wgmma_wait_group<2>();  // dV, S\n",
                                       "",
                                       {"access in flight"}},
                      TemplateMutation{"DkIsNotWaitedFor",
                                       consumer,
                                       "      wgmma_wait_group<1>();  // dK\n      wgmma_hold(ds_);",
                                       "      wgmma_hold(ds_);",
                                       {"access in flight", "data race"}},
                      TemplateMutation{"NoWaitForTheAdder",
                                       dq_place,
                                       "  ring.wait_empty(part);\n",
                                       "",
                                       {"data race", "access in flight"}},
                      TemplateMutation{"TheOtherPlaceOfDq",
                                       dq_place,
                                       "ring.tile(part)",
                                       "ring.tile(part + 1)",
                                       {"data race", "access in flight", "uninitialized read"}},
                      TemplateMutation{"StepsOfHeldKeysInAnotherOrder", "backward_wgmma/held_rows.cuh",
                                       "(own, 2 * step)", "(own, 2 * (steps - 1 - step))"},
                      TemplateMutation{"RowsOfTheFirstConsumerAreHeld", consumer,
                                       "rings_.k(keys_.round), consumer_ * rows_per_warpgroup);",
                                       "rings_.k(keys_.round), 0);"}),
    ::testing::PrintToStringParamName());

// The same, tile after tile.
TEST(BackwardBesideQueries, IsRightUnmutatedTileAfterTile) {
  EXPECT_EQ(noticed_of_many_tiles(nullptr, few_queries, beside_queries), "");
}

class BesideQueriesTileAfterTileMutationTest : public MutationTest {};

TEST_P(BesideQueriesTileAfterTileMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_many_tiles(&GetParam(), few_queries, beside_queries));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, BesideQueriesTileAfterTileMutationTest,
    ::testing::Values(
        TemplateMutation{"KeysAreLetGoTwice",
                         of_queries,
                         "    if (!lets_keys_go_early || !has_queries) rings_",
                         "    rings_",
                         {"data race", "access in flight", "barrier", "wrong transaction count"}},
        TemplateMutation{"KeysOfTwoTilesBeforeAreOverwritten",
                         loader,
                         "    rings.keys.wait_empty(round);\n    if (elected)",
                         "    if (elected)",
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{"ValuesOfTheOtherTile",
                         consumer,
                         "(rings_.v(keys_.round))",
                         "(rings_.v(keys_.round + 1))",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"KeysOfTheOtherTileForDq",
                         of_queries,
                         "k_panel(rings_.k(round_), ",
                         "k_panel(rings_.k(round_ + 1), ",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"TheNoteOfTheOtherTile",
                         key_tiles,
                         "load_shared_by_warp(rings.key_note(round));",
                         "load_shared_by_warp(rings.key_note(round + 1));",
                         {"data race", "uninitialized read", "deadlock"}}),
    ::testing::PrintToStringParamName());

// Blocks that take turns to add to dQ. Sums in another order have other bits.
std::string noticed_in_turn(const TemplateMutation& mutation, int head_dim) {
  constexpr int tries = 4;  // which block is early, is chance
  // Up to four tiles of keys add to each of queries.
  const BackwardCase problem{.spec = {.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()},
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

constexpr const char* turns = "backward_wgmma/turns.cuh";
constexpr const char* counts = "backward_wgmma/count_turns.cuh";

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, TurnsMutationTest,
    ::testing::Values(
        TemplateMutation{"NobodyWaitsAndTheLastAreLate",
                         turns,
                         "  for (int added = -1; added != count && added != count + of_peer;) added = "
                         "load_acquire(additions);\n",
                         "  for (int i = 0; i < 3000 * (int)blockIdx.x; ++i) load_acquire(additions);\n",
                         {"uninitialized read", "data race"},
                         {},
                         true},
        TemplateMutation{"TurnsAreNotPassedOn",
                         turns,
                         "    if (lane_id() == 0) add_one_release(maps.turns.additions + tile);\n",
                         "",
                         {"deadlock"}},
        TemplateMutation{
            "NobodyTakesTurns",
            of_queries,
            "      if (Config::deterministic && i == 0) is_first = take_turn<Config>(rings_, step);\n",
            "",
            {"deadlock", "uninitialized read"},
            {},
            true},
        TemplateMutation{
            "AllAreTakenForFirst", counts, "counts[own] = count;", "counts[own] = 0;", {"deadlock"}},
        TemplateMutation{"PartialTilesAreForgotten",
                         counts,
                         "!= TileClass::empty",
                         "== TileClass::full",
                         {"deadlock"},
                         {},
                         true},
        TemplateMutation{"AdditionsAreNotCleared",
                         counts,
                         "if (threadIdx.x == 0) turns.additions[tile] = 0;",
                         "",
                         {"uninitialized read", "deadlock"}}),
    ::testing::PrintToStringParamName());

// The same of warps that add by TMA.
class TurnsOfAddersMutationTest : public MutationTest {};

TEST_P(TurnsOfAddersMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_in_turn(GetParam(), with_adders));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, TurnsOfAddersMutationTest,
    ::testing::Values(
        TemplateMutation{
            "NobodyTakesTurns",
            loader,
            "    if constexpr (Config::deterministic) is_first = take_turn<Config>(rings_, step);\n",
            "",
            {"deadlock", "uninitialized read"},
            {},
            true},
        TemplateMutation{"NobodyStores",
                         turns,
                         "load_shared_by_warp(rings.turns.tile(step)) == 0",
                         "false",
                         {"uninitialized read"},
                         {},
                         true},
        TemplateMutation{"OneOfTwoIsEnough",
                         turns,
                         "before * KernelTraits<Config>::dq_adders",
                         "before",
                         {"deadlock"},
                         {},
                         true}),
    ::testing::PrintToStringParamName());

// Steps of many queries.
class ManyQueriesMutationTest : public MutationTest {};

TEST_P(ManyQueriesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_one_pass(&GetParam(), many_queries, beside_queries));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, ManyQueriesMutationTest,
    ::testing::Values(
        TemplateMutation{"DpIsNotWaitedFor",
                         consumer,
                         "      wgmma_wait_group<1>();  // dP\n      write_ds",
                         "      write_ds",
                         {"access in flight"}},
        TemplateMutation{"DsIsOverwritten",
                         consumer,
                         "wgmma_wait_group<1>();  // dV and dK",
                         "",
                         {"access in flight", "data race"}},
        TemplateMutation{"DqIsNotWaitedFor",
                         consumer,
                         "wgmma_wait_group<1>();  // dQ\n",
                         "wgmma_wait_group<2>();\n",
                         {"access in flight"}},
        TemplateMutation{"TheNextScoresAreNotWaitedFor",
                         consumer,
                         "      wgmma_wait_group<1>();  // S\n      exponentiate(step + 1);",
                         "      exponentiate(step + 1);",
                         {"access in flight"}},
        TemplateMutation{"QueriesAreLetGoTooEarly",
                         consumer,
                         "      start_dk(step);\n      start_dq(step);\n      wgmma_wait_group<1>();  // dV",
                         "      rings_.q.arrive_empty(step);\n      start_dk(step);\n      start_dq(step);\n"
                         "      wgmma_wait_group<1>();  // dV",
                         {"access in flight", "data race", "barrier"}},
        TemplateMutation{"BothHavePartsOfTheSameQueries", consumer,
                         "Traits::has_many_queries ? rows_per_warpgroup : 0", "0"},
        TemplateMutation{"PartsLeaveAsColumns", dq_rows, "Traits::has_many_queries ? 1 : Traits::dq_parts",
                         "Traits::dq_parts"}),
    ::testing::PrintToStringParamName());

TEST(Backward, IsRightUnmutated) { EXPECT_EQ(noticed_of_backward(nullptr), ""); }

class BackwardMutationTest : public MutationTest {};

TEST_P(BackwardMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_backward(&GetParam())); }

constexpr const char* dq = "backward_dq_mma_sync/kernel.cuh";
constexpr const char* dkv = "backward_dkv_mma_sync/kernel.cuh";
constexpr const char* steps = "steps/score_gradients.cuh";

INSTANTIATE_TEST_SUITE_P(
    BackwardMmaSync, BackwardMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForKeys",
                         dq,
                         "      cp_async_wait_group<ahead - 1>();\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoWaitForQueries",
                         dkv,
                         "      cp_async_wait_group<ahead - 1>();\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierInDq",
                         dq,
                         "    __syncthreads();\n    if constexpr (ahead > 0)",
                         "    if constexpr (ahead > 0)",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierInDkv",
                         dkv,
                         "    __syncthreads();\n    if constexpr (ahead > 0)",
                         "    if constexpr (ahead > 0)",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierBeforeDqLeaves",
                         dq,
                         "  cp_async_wait_group<0>();\n  __syncthreads();\n  store",
                         "  cp_async_wait_group<0>();\n  store",
                         {"data race", "access in flight"}},
        TemplateMutation{"DeltaLeftOut", "steps/query_statistics.cuh", "sum = __fmaf_rn(x[i], y[i], sum);",
                         "sum = 0 * x[i] * y[i];"},
        TemplateMutation{"StatisticsOfTheFirstHead", dkv, "gradients.lse_log2(batch, head), query",
                         "gradients.lse_log2(batch, 0), query"},
        TemplateMutation{
            "OneHeadOfTheGroup", "problem/query_tiles.cuh",
            "  __device__ __forceinline__ bool has(int ahead) const { return places_[ahead].head < "
            "Config::gqa_ratio; }",
            "  __device__ __forceinline__ bool has(int ahead) const { return places_[ahead].head < 1; }"},
        TemplateMutation{"PartialTilesOfQueriesTakenForFull", "problem/query_tiles.cuh",
                         "kind != TileClass::full || ", ""},
        TemplateMutation{"NoDerivativeOfTheScore", steps,
                         "      d_scores.at(r, n, i) *= applied.derivative;\n", ""},
        TemplateMutation{"WrongDerivativeOfTanh", "problem/dual.cuh",
                         "  const float y = tanh_approx(x.value);\n  return chain(x, y, 1 - y * y);",
                         "  const float y = tanh_approx(x.value);\n  return chain(x, y, 1 - y);"},
        TemplateMutation{"DqUnscaled", dq, "(params.softmax_scale, dropout_params)",
                         "(1.0f, dropout_params)"},
        TemplateMutation{"DvFromGradientsOfScores", dkv, "(dv, scores, do_tile(stage), kept)",
                         "(dv, d_scores, do_tile(stage), kept)"}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_mutations
