// Each way of breaking the templates is noticed: by a finding of the emulator, or by the comparison with the
// reference. What is not noticed here, a GPU might hide as well.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/attention.h>
#include <jit/device.h>

#include "generator/program/templates.h"
#include "tests/mutation/mutated_text.h"
#include "tests/support/attention_run.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

/// What the broken kernel is and what it computes.
struct Subject {
  const char* config;
  const char* mask = "causal";
  int head_dim_v = 64;
  int batch = 1;
  int heads = 2;
  int seqlen_q = 150;
  int seqlen_kv = 212;  // a key tile ends one key behind the first query's last
  int launches = 1;
  float amplitude = 1;
  std::uint64_t seed = 5;
};

const Subject mma_sync = {"tile_q=64 tile_kv=32 warps=4 stages_k=2 stages_v=2"};

struct TemplateMutation {
  const char* name;
  const char* file;
  const char* from;
  const char* to;
  std::vector<const char*> caught_by = {};  ///< one of these kinds of findings; none: by the numbers
  Subject subject = mma_sync;
  /// Whether it may show as wrong numbers as well: which it is depends on how many of the host's cores run blocks.
  bool or_by_numbers = false;
};
std::ostream& operator<<(std::ostream& out, const TemplateMutation& mutation) { return out << mutation.name; }

/// A folder of templates with one text changed; gone at the end of the scope.
class MutatedTemplates {
 public:
  MutatedTemplates(const TemplateMutation* mutation) {
    for (const SourceFile& file : embedded_templates()) {
      const std::filesystem::path path = std::filesystem::path(folder_.path()) / file.name;
      std::filesystem::create_directories(path.parent_path());
      const bool changed = mutation != nullptr && file.name == mutation->file;
      std::ofstream(path) << (changed ? mutated(file.text, mutation->from, mutation->to) : file.text);
    }
  }
  std::string folder() const { return folder_.path(); }

 private:
  FreshFolder folder_;
};

AttentionCase case_of(const Subject& subject) {
  AttentionCase problem;
  problem.spec.head_dim = 64;
  problem.spec.head_dim_v = subject.head_dim_v;
  problem.spec.mask = parse_mask(subject.mask);
  problem.batch = subject.batch;
  problem.heads_kv = subject.heads;
  problem.seqlen_q = subject.seqlen_q;
  problem.seqlen_kv = subject.seqlen_kv;
  problem.amplitude = subject.amplitude;
  problem.seed = subject.seed;
  return problem;
}

/// What is noticed of a run: findings as text, or what is wrong with the numbers.
std::string noticed(const TemplateMutation* mutation, const Subject& subject) {
  const MutatedTemplates templates(mutation);
  Settings settings = shared_cache_settings();
  settings.templates = templates.folder();
  const Context context(settings);
  const AttentionCase problem = case_of(subject);
  AttentionRun run(problem);
  try {
    const Attention kernel = attention(problem.spec, parse_config(subject.config), context);
    for (int launch = 0; launch < subject.launches; ++launch) {
      run.poison_outputs();
      kernel(run.arguments());
    }
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check().failure;
}

const Subject wgmma = {"family=forward_wgmma tile_q=128 tile_kv=48 stages_q=2 stages_v=2 order=ping_pong"};
const Subject in_sequence = {
    "family=forward_wgmma tile_q=128 tile_kv=48 stages_v=2 overlap=false order=softmax_lock "
    "persistent=false"};
const Subject shared_p = {
    "family=forward_wgmma tile_q=128 tile_kv=48 stages_v=2 p_in_registers=false persistent=false"};
// More tiles of queries than an H100 has multiprocessors: blocks compute several.
const Subject many_tiles = {.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2",
                            .heads = 140,
                            .seqlen_q = 20,
                            .seqlen_kv = 40,
                            .launches = 2};
const Subject direct_o = {.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_v=2 direct_o=true",
                          .head_dim_v = 40,
                          .heads = 140,
                          .seqlen_q = 20,
                          .seqlen_kv = 40};
const Subject documents = {.config = many_tiles.config,
                           .mask = "document",
                           .batch = 3,
                           .heads = 16,
                           .seqlen_q = 400,
                           .seqlen_kv = 400,
                           .seed = 7};  // draws ids for each batch entry, not the same for all

// The first consumer's last tile of keys is not the last one of all.
const Subject skipping = {
    .config = "family=forward_wgmma tile_q=128 tile_kv=32 stages_q=2 stages_v=2 order=ping_pong",
    .heads = 70,
    .seqlen_q = 256,
    .seqlen_kv = 256};
const Subject overflowing = {
    .config =
        "family=forward_wgmma tile_q=64 tile_kv=48 stages_q=2 stages_k=1 stages_v=1 rescale=on_overflow",
    .amplitude = 8};

// More units than blocks, of several tiles: blocks go from one to the next, and share some.
const Subject split_kv = {.config = "family=forward_split_kv tile_kv=64 stages=3 blocks_per_sm=1",
                          .heads = 70,
                          .seqlen_q = 5,
                          .seqlen_kv = 500,
                          .launches = 2};

TEST(Template, IsRightUnmutated) {
  for (const Subject& subject :
       {mma_sync, wgmma, in_sequence, shared_p, many_tiles, direct_o, documents, skipping, overflowing,
        split_kv})
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

TEST(Template, DependentKernelsWaitForTheGridBefore) {
  const Subject dependent = {"family=forward_wgmma tile_q=64 tile_kv=48 stages_v=2 dependent_launch=true"};
  EXPECT_EQ(noticed(nullptr, dependent), "");
  const TemplateMutation mutation{
      .name = "NoWait",
      .file = "forward_wgmma/kernel.cuh",
      .from = "  if constexpr (Config::dependent_launch) griddepcontrol_wait();\n",
      .to = ""};
  EXPECT_THAT(noticed(&mutation, dependent), ::testing::HasSubstr("has no griddepcontrol.wait"));
}

class TemplateMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(TemplateMutationTest, IsCaught) {
  const TemplateMutation& mutation = GetParam();
  const std::string text = noticed(&mutation, mutation.subject);
  ASSERT_NE(text, "") << "not caught";
  if (mutation.caught_by.empty()) {
    EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("launch_failed")))
        << "caught by a finding, not by numbers";
    return;
  }
  if (mutation.or_by_numbers && text.find("launch_failed") == std::string::npos) return;
  EXPECT_TRUE(std::any_of(mutation.caught_by.begin(), mutation.caught_by.end(), [&](const char* kind) {
    return text.find(kind) != std::string::npos;
  })) << text;
  // A template, the generated products, or the program.
  EXPECT_THAT(text, ::testing::AnyOf(::testing::HasSubstr(".cuh:"), ::testing::HasSubstr("kernel.cu:")))
      << "the finding names no line of the source";
}

constexpr const char* forward = "forward_mma_sync/kernel.cuh";

INSTANTIATE_TEST_SUITE_P(
    ForwardMmaSync, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForK",
                         forward,
                         "    cp_async_wait_group<Traits::pending_k>();\n",
                         "",
                         {"access in flight"}},
        TemplateMutation{"NoWaitForV",
                         forward,
                         "    cp_async_wait_group<Traits::pending_v>();\n",
                         "",
                         {"access in flight"}},
        TemplateMutation{"WaitsForTooFew",
                         forward,
                         "cp_async_wait_group<Traits::pending_k>()",
                         "cp_async_wait_group<Traits::pending_k + 1>()",
                         {"access in flight"}},
        TemplateMutation{"NoBarrierBeforeK",
                         forward,
                         "    cp_async_wait_group<Traits::pending_k>();\n    __syncthreads();\n",
                         "    cp_async_wait_group<Traits::pending_k>();\n",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierBeforeV",
                         forward,
                         "    cp_async_wait_group<Traits::pending_v>();\n    __syncthreads();\n",
                         "    cp_async_wait_group<Traits::pending_v>();\n",
                         {"data race", "access in flight"}},
        TemplateMutation{"LoadsIntoTheStageInUse",
                         forward,
                         "const int stage_v_load = (stage_v + Traits::ahead_v) % Config::stages_v;",
                         "const int stage_v_load = (stage_v + Traits::ahead_v + 1) % Config::stages_v;",
                         {"data race", "access in flight"}},
        TemplateMutation{"LaterStageThanLoaded",
                         forward,
                         "    stage_k = stage_k + 1 == Config::stages_k ? 0 : stage_k + 1;\n",
                         "",
                         {}},
        // O is wide enough to reach over V, which other warps still multiply with.
        TemplateMutation{"NoBarrierBeforeO",
                         "forward_mma_sync/epilogue.cuh",
                         "  cp_async_wait_group<0>();\n  __syncthreads();\n",
                         "  cp_async_wait_group<0>();\n",
                         {"data race"},
                         {.config = mma_sync.config, .head_dim_v = 256}},
        TemplateMutation{
            "NoWarpBarrierInO", "forward_mma_sync/epilogue.cuh", "  __syncwarp();\n", "", {"data race"}},
        TemplateMutation{
            "SwizzleOnTheWritingSideOnly",
            "steps/mma_sync_products.cuh",
            "k_tile + KTile::offset((x4 ? lane / 16 * 8 : 0) + lane % 8, lane / 8 % 2)",
            "k_tile + ((x4 ? lane / 16 * 8 : 0) + lane % 8) * KTile::row_bytes + lane / 8 % 2 * 16",
            {}},
        TemplateMutation{"MaskOffByOne",
                         "problem/masks.cuh",
                         "  __device__ bool keep(int q, int k) const { return k <= q + shift; }",
                         "  __device__ bool keep(int q, int k) const { return k < q + shift; }",
                         {}},
        TemplateMutation{"TileClassOffByOne",
                         "problem/masks.cuh",
                         "    if (tile.k_end - 1 <= tile.q_begin + shift) return TileClass::full;",
                         "    if (tile.k_end - 2 <= tile.q_begin + shift) return TileClass::full;",
                         {}},
        TemplateMutation{"StoresPastTheLastQuery",
                         "tiles/tile_copy.cuh",
                         "if (lane_row + r >= rows || row + lane_row + r >= row_end) break;",
                         "if (lane_row + r >= rows) break;",
                         {"out of bounds"}},
        TemplateMutation{"LanesMissAShuffle",
                         "tiles/accumulator.cuh",
                         "    x = f(x, __shfl_xor_sync(full_warp, x, 1));",
                         "    if (lane_id() < 16) x = f(x, __shfl_xor_sync(full_warp, x, 1));",
                         {"deadlock"}}),
    [](const ::testing::TestParamInfo<TemplateMutation>& info) { return std::string(info.param.name); });

constexpr const char* consumer = "forward_wgmma/consumer.cuh";
constexpr const char* loaders = "forward_wgmma/loaders.cuh";
constexpr const char* products = "forward_wgmma/products.cuh";
constexpr const char* direct_output = "forward_wgmma/direct_output.cuh";
constexpr const char* note_flags = "forward_wgmma/key_note_flags.cuh";
constexpr const char* rings = "forward_wgmma/rings.cuh";

INSTANTIATE_TEST_SUITE_P(
    ForwardSplitKv, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForTiles",
                         "forward_split_kv/kernel.cuh",
                         "    if (step >= 0) cp_async_wait_group<loads_ahead - 1>();\n",
                         "",
                         {"data race", "access in flight"},
                         split_kv},
        TemplateMutation{"NoBarrierBeforeResults",
                         "forward_split_kv/results.cuh",
                         "  __syncthreads();  // the other warps are done with the tiles that lie here\n",
                         "",
                         {"data race"},
                         split_kv},
        TemplateMutation{"NoBarrierBehindResults",
                         "forward_split_kv/results.cuh",
                         "  state = {};\n  __syncthreads();\n",
                         "  state = {};\n",
                         {"data race"},
                         split_kv},
        TemplateMutation{"StateOfThePartBefore",
                         "forward_split_kv/results.cuh",
                         "  output.clear();\n  state = {};\n",
                         "  output.clear();\n",
                         {},
                         split_kv},
        TemplateMutation{"CountersStayWhereTheyAre",
                         "forward_split_kv/results.cuh",
                         "atomic_inc_acq_rel(split.counters + note.first_block, note.parts - 1)",
                         "atomic_inc_acq_rel(split.counters + note.first_block, 0xffffffffu)",
                         {},
                         split_kv},
        TemplateMutation{"PartialResultsOfTwoUnitsInOnePlace",
                         "forward_split_kv/results.cuh",
                         "2ll * note.first_block + 1",
                         "1ll * note.first_block + 1",
                         {},
                         split_kv},
        TemplateMutation{"OneTileOfKeysTwice",
                         "scheduling/key_shares.cuh",
                         "const int before = (place + tile_cost - 1) / tile_cost;",
                         "const int before = place / tile_cost;",
                         {},
                         split_kv}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    ForwardWgmma, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"ParityOfEmpty",
                         "tiles/tile_ring.cuh",
                         "mbarrier_wait_parity(empty(), round_ ^ 1)",
                         "mbarrier_wait_parity(empty(), round_)",
                         {"deadlock"},
                         wgmma},
        TemplateMutation{"ParityOfFull",
                         "tiles/tile_ring.cuh",
                         "mbarrier_wait_parity(full(), round_)",
                         "mbarrier_wait_parity(full(), round_ ^ 1)",
                         {"access in flight", "uninitialized read", "deadlock"},
                         wgmma},
        TemplateMutation{"ParityNeverChanges",
                         "tiles/tile_ring.cuh",
                         "      round_ ^= 1;\n",
                         "",
                         {"access in flight", "data race", "deadlock", "barrier misuse"},
                         wgmma},
        TemplateMutation{"LoadsKBeforeItIsEmpty",
                         loaders,
                         "    rings.k.wait_empty();\n    if constexpr (Traits::has_key_words) {",
                         "    if constexpr (Traits::has_key_words) {",
                         {"access in flight", "data race"},
                         wgmma},
        TemplateMutation{
            "KIsEmptyAfterOneConsumer",
            rings,
            "init(Traits::layout.k_empty, Config::stages_k, Traits::consumer_warps * key_arrivals)",
            "init(Traits::layout.k_empty, Config::stages_k, 4)",
            {"access in flight", "data race", "barrier misuse", "deadlock"},
            wgmma},
        TemplateMutation{"ReleasesKBeforeTheWaitForS",
                         consumer,
                         "      wgmma_wait_group<0>();\n      RowFactors correction;\n",
                         "      RowFactors correction;\n",
                         {"access in flight"},
                         in_sequence},
        TemplateMutation{
            "ReleasesVBeforeTheWaitForO",
            consumer,
            "    wgmma_wait_group<0>();\n    wgmma_hold(output_.registers[0]);\n    p_.hold();\n    "
            "release_v();\n",
            "    release_v();\n    wgmma_wait_group<0>();\n    "
            "wgmma_hold(output_.registers[0]);\n    p_.hold();\n",
            {"access in flight", "data race"},
            wgmma},
        TemplateMutation{
            "NoWaitForS", consumer, "    wgmma_wait_group<1>();\n", "", {"access in flight"}, wgmma},
        TemplateMutation{
            "NoWaitForFullV",
            consumer,
            "    rings_.v.wait_full();\n    p_.multiply_pv(output_, rings_.v.tile(), lower);\n    if",
            "    p_.multiply_pv(output_, rings_.v.tile(), lower);\n    if",
            {"access in flight", "uninitialized read", "data race"},
            wgmma},
        TemplateMutation{"NoFenceBeforeS",
                         products,
                         "    wgmma_fence();\n    if constexpr (Config::q_in_registers) {\n      "
                         "Config::template wgmma_qk",
                         "    if constexpr (Config::q_in_registers) {\n      Config::template wgmma_qk",
                         {"access in flight", "barrier misuse"},
                         wgmma},
        TemplateMutation{"NoFenceBeforeO",
                         products,
                         "    } else {\n      wgmma_fence();\n",
                         "    } else {\n",
                         {"access in flight", "barrier misuse"},
                         wgmma},
        TemplateMutation{"NoProxyFenceBehindO",
                         consumer,
                         "  }\n  fence_proxy_async_shared();\n}",
                         "  }\n}",
                         {"missing proxy fence"},
                         wgmma},
        TemplateMutation{"NoProxyFenceBehindP",
                         products,
                         "      fence_proxy_async_shared();\n      bar_sync",
                         "      bar_sync",
                         {"missing proxy fence"},
                         shared_p},
        TemplateMutation{"ProxyFenceBehindOByOneLane",
                         consumer,
                         "  }\n  fence_proxy_async_shared();\n}",
                         "  }\n  if (lane == 0) fence_proxy_async_shared();\n}",
                         {"missing proxy fence"},
                         wgmma},
        TemplateMutation{"NoWarpBarrierBeforeAnArrival",
                         "tiles/tile_ring.cuh",
                         "    if constexpr (!by_lanes) __syncwarp();\n",
                         "",
                         {"data race", "missing proxy fence"},
                         wgmma},
        TemplateMutation{"WorkTileOfAnotherLaneThanItsArrival",
                         "forward_wgmma/work_ring.cuh",
                         "      if (lane_id() == 0) {\n        store_shared(ring_.tile(), tile.batch);\n"
                         "        store_shared(ring_.tile() + 4, tile.head);\n"
                         "        store_shared(ring_.tile() + 8, tile.q_begin);\n      }\n"
                         "      ring_.arrive_full();\n",
                         "      if (lane_id() == 5) {\n        store_shared(ring_.tile(), tile.batch);\n"
                         "        store_shared(ring_.tile() + 4, tile.head);\n"
                         "        store_shared(ring_.tile() + 8, tile.q_begin);\n      }\n"
                         "      if (lane_id() == 0) mbarrier_arrive(ring_.full());\n",
                         {"data race"},
                         many_tiles},
        TemplateMutation{"KeyWordsArePublishedByOneLane",
                         rings,
                         "Traits::KTile::bytes, Traits::has_key_words> k;",
                         "Traits::KTile::bytes> k;",
                         {"data race"},
                         documents},
        TemplateMutation{
            "NoFenceBehindInit", rings, "  fence_mbarrier_init();\n", "", {"missing proxy fence"}, wgmma},
        TemplateMutation{"NoBarrierBehindInit",
                         "forward_wgmma/kernel.cuh",
                         "  __syncthreads();\n",
                         "",
                         {"data race", "barrier misuse", "uninitialized read"},
                         wgmma},
        TemplateMutation{"NoWaitForTheStore",
                         loaders,
                         "      cp_async_bulk_wait_group_read<0>();\n",
                         "",
                         {"unfinished copy", "access in flight"},
                         wgmma},
        TemplateMutation{"AnnouncesTooFewBytes",
                         loaders,
                         "mbarrier_arrive_expect_tx(full, Tile::bytes)",
                         "mbarrier_arrive_expect_tx(full, Tile::bytes - 16)",
                         {"wrong transaction count", "barrier misuse", "access in flight"},
                         wgmma},
        TemplateMutation{"ForgetsTheLastValues",
                         loaders,
                         "  load_v();\n  if constexpr (Config::dependent_launch)",
                         "  if constexpr (Config::dependent_launch)",
                         {"deadlock"},
                         wgmma},
        TemplateMutation{"TurnsAreNotPassedOn",
                         consumer,
                         "    if constexpr (in_turn) turns_.pass();\n    wgmma_wait_group<1>();\n",
                         "    wgmma_wait_group<1>();\n",
                         {"deadlock"},
                         wgmma},
        TemplateMutation{"WorkIsNeverTaken",
                         "forward_wgmma/work_ring.cuh",
                         "      ring_.arrive_empty();\n",
                         "",
                         {"deadlock"},
                         many_tiles},
        TemplateMutation{
            "WrongPanelStrideOfV",
            "tiles/panel_tile.cuh",
            "descriptor(tile + static_cast<unsigned>(step * mma_k * row_bytes), panel_bytes)",
            "descriptor(tile + static_cast<unsigned>(step * mma_k * row_bytes), panel_bytes / 2)",
            {},
            {.config = shared_p.config, .head_dim_v = 128}},
        TemplateMutation{"SwizzleKeyOfTheWrongRow",
                         "tiles/panel_tile.cuh",
                         "const int key = row * row_bytes / 128 % chunks;",
                         "const int key = row * row_bytes / 256 % chunks;",
                         {},
                         wgmma},
        TemplateMutation{"NoNoteOfPartialTiles", note_flags, "  flags |= key_note_partial;\n", "", {}, wgmma},
        TemplateMutation{"UpperHalfOfTheFirstConsumer",
                         note_flags,
                         "const int begin = q_begin + consumer * rows_per_consumer;",
                         "const int begin = q_begin;",
                         {},
                         wgmma},
        TemplateMutation{"NoRescale",
                         consumer,
                         "        if (move) output_.scale_rows(correction);\n",
                         "",
                         {},
                         {.config = wgmma.config, .amplitude = 3}},
        TemplateMutation{"NoRescaleInSequence",
                         consumer,
                         "        output_.scale_rows(correction);\n      }\n",
                         "      }\n",
                         {},
                         {.config = in_sequence.config, .amplitude = 3}},
        TemplateMutation{
            "CounterIsNotSetBack",
            "forward_wgmma/work_ring.cuh",
            "      if (lane_id() == 0 && taken_ == maps_.order.tiles() - 1) *maps_.counter = 0;\n",
            "",
            {},
            many_tiles},
        TemplateMutation{"ForgetsTheTileAfterTheFirst",
                         "forward_wgmma/work_ring.cuh",
                         "      index_ = static_cast<int>(gridDim.x) + uniform(taken_);\n",
                         "      index_ = static_cast<int>(gridDim.x) + 1 + uniform(taken_);\n",
                         {},
                         many_tiles},
        TemplateMutation{"OutputOfTheNextWorkTile",
                         consumer,
                         "          p_.pack_scores(scores_);\n          finish_work(done);\n",
                         "          p_.pack_scores(scores_);\n          finish_work(work_);\n",
                         {},
                         direct_o},
        TemplateMutation{"WritesRowsThatAreNone",
                         direct_output,
                         "if (row < seqlen_q && ",
                         "if (",
                         {"out of bounds", "data race"},
                         direct_o},
        TemplateMutation{"WritesColumnsThatAreNone",
                         direct_output,
                         " && (d + lane % 4) * 8 < Config::head_dim_v)",
                         ")",
                         {},
                         direct_o},
        TemplateMutation{
            "QuadsAreNotTransposed", direct_output, "      transpose_quad(words);\n", "", {}, direct_o},
        TemplateMutation{"QueriesAreNeverReleased",
                         consumer,
                         "    if constexpr (!Traits::o_over_q) q_ring().arrive_empty();\n",
                         "",
                         {"deadlock"},
                         direct_o},
        TemplateMutation{"RangesOfTheFirstBatchEntry",
                         "forward_wgmma/key_word_ranges.cuh",
                         "const int batch = params_.batch_begin + i / pieces_of_entry,",
                         "const int batch = params_.batch_begin + 0 * i,",
                         {"data race"},
                         documents},
        TemplateMutation{"LastTileOfADocumentIsLeftOut",
                         "forward_wgmma/mask_memory.cuh",
                         "last = begin + warp_size - 1 - __clz(met);",
                         "last = begin + __ffs(met) - 1;",
                         {},
                         documents},
        TemplateMutation{"WordsOfTheFirstKeys",
                         loaders,
                         "mask.key_word(minimum(keys.seq + i, seqlen_kv - 1))",
                         "mask.key_word(minimum(i, seqlen_kv - 1))",
                         {},
                         documents},
        TemplateMutation{"WordsOfOneStage",
                         "forward_wgmma/rings.cuh",
                         "layout.key_words + stage * Config::tile_kv * 4",
                         "layout.key_words + 0 * stage",
                         {"data race"},
                         documents},
        TemplateMutation{"KeysBehindTheLastOne",
                         "steps/apply_functors.cuh",
                         "above = (column < end) & keeps(",
                         "above = keeps(",
                         {},
                         {.config = wgmma.config, .mask = "!prefix(50)"}},
        TemplateMutation{"StoresTheOutputOfOneConsumer",
                         loaders,
                         "const auto own = o_ring_of<Config>(rings.o, consumer);",
                         "const auto own = o_ring_of<Config>(rings.o, 0);",
                         {},
                         wgmma},
        TemplateMutation{
            "LoadsTheQueriesOfOneConsumer",
            loaders,
            "batch, head, q_begin + consumer * rows_per_consumer));\n      }\n    }\n    ring.advance();",
            "batch, head, q_begin));\n      }\n    }\n    ring.advance();",
            {},
            wgmma},
        TemplateMutation{
            "LseOfTheNextWorkTile",
            consumer,
            "      skip_keys();\n      finish_rows_of_work();\n      const WorkTile done = work_;\n",
            "      skip_keys();\n      work_ring_.release();\n      finish_rows_of_work();\n      "
            "const WorkTile done = work_;\n",
            {"deadlock", "barrier misuse", "data race", "uninitialized read"},
            many_tiles},
        TemplateMutation{"LeavesOutATileOfKeys",
                         note_flags,
                         "mask.key_range(begin, end).end <= tiles.key(1)",
                         "mask.key_range(begin, end).end <= tiles.key(1) + Config::tile_kv",
                         {},
                         wgmma},
        TemplateMutation{"KeepsSkippedValues",
                         consumer,
                         "          finish_output();\n          skip_values();\n",
                         "          finish_output();\n",
                         {"deadlock", "barrier misuse", "access in flight", "data race"},
                         skipping,
                         /*or_by_numbers=*/true},
        TemplateMutation{"SkipsWithoutATurn",
                         consumer,
                         "      turns_.wait();\n      turns_.pass();\n      release_k();",
                         "      release_k();",
                         {"deadlock", "barrier misuse"},
                         skipping},
        TemplateMutation{"OverflowGoesUnnoticed",
                         consumer,
                         "if (__builtin_expect(repeated || !stands_out<Element>(sums, state_), true)) {",
                         "if (true) {",
                         {},
                         overflowing},
        TemplateMutation{"ReleasesKBeforeItIsMultipliedAgain",
                         consumer,
                         "      const bool move = exponentiate_or_repeat(correction);\n      release_k();\n",
                         "      release_k();\n      const bool move = exponentiate_or_repeat(correction);\n",
                         {"access in flight", "data race"},
                         overflowing},
        TemplateMutation{"NoRescaleAfterAnOverflow",
                         consumer,
                         "        if (move) output_.scale_rows(correction);\n",
                         "",
                         {},
                         overflowing}),
    [](const ::testing::TestParamInfo<TemplateMutation>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace jit::testing
