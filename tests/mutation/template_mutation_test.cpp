// Each way of breaking the templates is noticed: by a finding of the emulator, or by the comparison with the
// reference. What is not noticed here, a GPU might hide as well.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::template_mutations {
namespace {

const Subject mma_sync = {};

const Subject wgmma = {"family=forward_wgmma tile_q=128 tile_kv=48 stages_q=2 stages_v=2 order=ping_pong"};
// More tiles of queries than an H100 has multiprocessors: blocks compute several.
const Subject many_tiles = {.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2",
                            .heads = 140,
                            .seqlen_q = 20,
                            .seqlen_kv = 40,
                            .launches = 2};
const Subject direct_o = {.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_v=2 output=direct",
                          .head_dim_v = 40,
                          .heads = 140,
                          .seqlen_q = 20,
                          .seqlen_kv = 40};
const Subject close_keys = {.config = "family=forward_wgmma tile_q=128 tile_kv=32 stages_q=2",
                            .mask = "text(close)",
                            .seqlen_q = 400,
                            .seqlen_kv = 400};
const Subject documents = {.config = many_tiles.config,
                           .mask = "document",
                           .batch = 3,
                           .heads = 16,
                           .seqlen_q = 400,
                           .seqlen_kv = 400,
                           .seed = 7};  // draws ids for each batch entry, not the same for all

// A text of which queries see the first keys and the last ones.
const Subject gaps = {
    .config = many_tiles.config, .mask = "text(recent)", .seqlen_q = 400, .seqlen_kv = 1500};

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

TEST(Template, IsRightUnmutated) {
  for (const Subject& subject : reference::some_of<Subject>(
           {mma_sync, wgmma, many_tiles, direct_o, documents, skipping, overflowing}, 3))
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

TEST(Template, DependentKernelsWaitForTheGridBefore) {
  const Subject dependent = {"family=forward_wgmma tile_q=64 tile_kv=48 stages_v=2"};
  EXPECT_EQ(noticed(nullptr, dependent), "");
  const TemplateMutation mutation{.name = "ForwardDoesNotWait", .change = removed};
  EXPECT_THAT(noticed(&mutation, dependent), ::testing::HasSubstr("has no griddepcontrol.wait"));
}

TEST_P(TemplateMutationTest, IsCaught) { expect_caught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    ForwardMmaSync, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"WaitForK_None", removed, {"access in flight"}},
        TemplateMutation{"NoWaitForV", removed, {"access in flight"}},
        TemplateMutation{"WaitForK_OfTooFew", {">()", " + 1>()"}, {"access in flight"}},
        TemplateMutation{"NoBarrierBeforeK", removed, {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierBeforeV", removed, {"data race", "access in flight"}},
        TemplateMutation{"LoadsIntoTheStageInUse", {"($)", "($ + 1)"}, {"data race", "access in flight"}},
        TemplateMutation{"LaterStageThanLoaded", removed, {}},
        // O is wide enough to reach over V, which other warps still multiply with.
        TemplateMutation{
            "NoBarrierBeforeO", removed, {"data race"}, {.config = mma_sync.config, .head_dim_v = 256}},
        TemplateMutation{"NoWarpBarrierInO", removed, {"data race"}},
        TemplateMutation{
            "SwizzleOnTheWritingSideOnly",
            {"= $;", "= k_tile + (lane / 16 * 8 + lane % 8) * KTile::row_bytes + lane / 8 % 2 * 16;"},
            {}},
        TemplateMutation{"MaskOffByOne", {"<= q", "< q"}, {}},
        TemplateMutation{"TileClassOffByOne", {"1 <=", "2 <="}, {}},
        TemplateMutation{"StoresPastTheLastQuery", {" || $)", ")"}, {"out of bounds"}},
        TemplateMutation{"LanesMissAShuffle", {"x =", "if (lane_id() < 16) x ="}, {"deadlock"}}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    ForwardWgmma, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"ParityOfEmpty", {" ^ 1", ""}, {"deadlock"}, wgmma},
        TemplateMutation{"ParityOfFull",
                         {"); }", " ^ 1); }"},
                         {"access in flight", "uninitialized read", "deadlock"},
                         wgmma},
        TemplateMutation{"ParityNeverChanges",
                         removed,
                         {"access in flight", "data race", "deadlock", "barrier misuse"},
                         wgmma},
        TemplateMutation{"LoadsKBeforeItIsEmpty", removed, {"access in flight", "data race"}, wgmma},
        TemplateMutation{"KIsEmptyAfterOneConsumer",
                         {"Traits::key_readers $)", "4)"},
                         {"access in flight", "data race", "barrier misuse", "deadlock"},
                         wgmma},
        TemplateMutation{"ReleasesKBeforeTheWaitForS", removed, {"access in flight"}, wgmma},
        TemplateMutation{"ReleasesVBeforeTheWaitForO", moved_up(4), {"access in flight", "data race"}, wgmma},
        TemplateMutation{"NoWaitForS", removed, {"access in flight"}, wgmma},
        TemplateMutation{
            "NoWaitForFullV", removed, {"access in flight", "uninitialized read", "data race"}, wgmma},
        TemplateMutation{"NoFenceBeforeS", removed, {"access in flight", "barrier misuse"}, wgmma},
        TemplateMutation{"NoFenceBeforeO", removed, {"access in flight", "barrier misuse"}, wgmma},
        TemplateMutation{"ProxyFenceBehindO_None", removed, {"missing proxy fence"}, wgmma},
        TemplateMutation{
            "ProxyFenceBehindO_ByOneLane", {"$", "if (lane_id() == 0) $"}, {"missing proxy fence"}, wgmma},
        TemplateMutation{
            "NoWarpBarrierBeforeAnArrival", removed, {"data race", "missing proxy fence"}, wgmma},
        TemplateMutation{
            "WorkTileOfAnotherLaneThanItsArrival",
            {"0$pipeline_.producer_commit()", "5$if (lane_id() == 0) mbarrier_arrive(pipeline_.full())"},
            {"data race"},
            many_tiles},
        TemplateMutation{"LanesArrive_NotForWords", {"= $ || ", "= "}, {"data race"}, documents},
        TemplateMutation{"NoFenceBehindInit", removed, {"missing proxy fence"}, wgmma},
        TemplateMutation{
            "NoBarrierBehindInit", removed, {"data race", "barrier misuse", "uninitialized read"}, wgmma},
        TemplateMutation{"NoWaitForTheStore", removed, {"unfinished copy", "access in flight"}, wgmma},
        TemplateMutation{"AnnouncesTooFewBytes",
                         {"($)", "($ - 16)"},
                         {"wrong transaction count", "barrier misuse", "access in flight"},
                         wgmma},
        TemplateMutation{"ForgetsTheLastValues", removed, {"deadlock"}, wgmma},
        TemplateMutation{"OrderOfSoftmaxIsNotPassedOn", removed, {"deadlock"}, wgmma},
        TemplateMutation{"WorkIsNeverTaken", removed, {"deadlock"}, many_tiles},
        TemplateMutation{
            "WrongPanelStrideOfV", {");", " / 2);"}, {}, {.config = direct_o.config, .head_dim_v = 128}},
        TemplateMutation{"SwizzleKeyOfTheWrongRow", {"128", "256"}, {}, wgmma},
        TemplateMutation{"NoInfoOfPartialTiles", removed, {}, wgmma},
        TemplateMutation{"UpperHalfOfTheFirstConsumer", {" + $;", ";"}, {}, wgmma},
        TemplateMutation{"NoRescale", removed, {}, {.config = wgmma.config, .amplitude = 3}},
        TemplateMutation{"CounterIsSetBack_Never", removed, {}, many_tiles},
        TemplateMutation{
            "CounterIsSetBack_ByAPlainStore", {"store_relaxed($, 0)", "*$ = 0"}, {"data race"}, many_tiles},
        TemplateMutation{"ForgetsTheTileAfterTheFirst", {"+ $;", "+ 1 + $;"}, {}, many_tiles},
        TemplateMutation{"OutputOfTheNextWorkTile", {"done", "queries_.work()"}, {}, direct_o},
        TemplateMutation{
            "WritesWhatIsNone_Rows", {"if ($ (", "if (("}, {"out of bounds", "data race"}, direct_o},
        TemplateMutation{"WritesWhatIsNone_Columns", {" && $) {", ") {"}, {"data race"}, direct_o},
        TemplateMutation{"QuadsAreNotTransposed", removed, {}, direct_o},
        TemplateMutation{"QueriesAreNeverReleased", removed, {"deadlock"}, direct_o},
        TemplateMutation{"KeysOfTheFirstWarpgroup", {"lane_id() == $)", "$ == 0)"}, {}, close_keys},
        TemplateMutation{"SeenByTheLastRowsOfAWarpgroup", {"= $;", "= row;"}, {}, close_keys},
        TemplateMutation{"RangesOfTheFirstBatchEntry", {"+ $,", "+ 0 * i,"}, {"data race"}, documents},
        TemplateMutation{"LastTileOfADocumentIsLeftOut", {"+ $;", "+ __ffs(met) - 1;"}, {}, documents},
        TemplateMutation{"WordsOfTheFirstKeys", {"info.k_begin + i", "i"}, {}, documents},
        TemplateMutation{"WordsOfOneStage", {"stage $ 4", "0 * stage"}, {"data race"}, documents},
        TemplateMutation{
            "KeysBehindTheLastOne", {" & $()", ""}, {}, {.config = wgmma.config, .mask = "!prefix(50)"}},
        TemplateMutation{"TilesBehindAGap_ALater", {"+ $ *", "+ ($ + 1) *"}, {}, gaps},
        TemplateMutation{"TilesBehindAGap_AreFull", {", (", ", first != 0 || ("}, {}, gaps},
        TemplateMutation{"StoresTheOutputOfOneConsumer", {", $)", ", 0)"}, {}, wgmma},
        TemplateMutation{"LoadsTheQueriesOfOneConsumer", {" + $)", ")"}, {}, wgmma},
        TemplateMutation{"LseOfTheNextWorkTile",
                         moved_up(1),
                         {"deadlock", "barrier misuse", "data race", "uninitialized read"},
                         many_tiles},
        TemplateMutation{"LeavesOutATileOfKeys", {"1))", "1) + Config::tile_kv)"}, {}, wgmma},
        TemplateMutation{"KeepsSkippedValues",
                         removed,
                         {"deadlock", "barrier misuse", "access in flight", "data race"},
                         skipping,
                         /*or_by_numbers=*/true},
        TemplateMutation{"SkipsWithoutTheOrder", {"$pass();", ""}, {"deadlock", "barrier misuse"}, skipping},
        TemplateMutation{"OverflowGoesUnnoticed", {" ($) ", " (true) "}, {}, overflowing},
        TemplateMutation{"ReleasesKBeforeItIsMultipliedAgain",
                         moved_up(1),
                         {"access in flight", "data race"},
                         overflowing},
        TemplateMutation{"NoRescale_AfterAnOverflow", removed, {}, overflowing}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::template_mutations
