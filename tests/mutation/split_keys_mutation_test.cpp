// Mutations of the families whose keys are split over blocks: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::split_keys_mutations {
namespace {

// A few more work tiles than blocks, of several tiles: blocks go from one to the next, and share them.
const Subject split_kv = {.config = "family=forward_split_kv tile_kv=64 stages=3 blocks_per_sm=1",
                          .heads = 140,
                          .seqlen_q = 5,
                          .seqlen_kv = 500,
                          .launches = 2};

// A kernel whose tiles TMA copies; and rows behind the sequence.
const Subject boxes = {.config = "family=forward_split_kv copies=tma tile_kv=64 stages=3 blocks_per_sm=1",
                       .heads = 140,
                       .seqlen_q = 5,
                       .seqlen_kv = 500,
                       .launches = 2};
const Subject boxes_with_room = {.config = "family=forward_split_kv copies=tma tile_kv=64 stages=2",
                                 .mask = "none",
                                 .heads = 1,
                                 .seqlen_q = 2,
                                 .seqlen_kv = 100,
                                 .rows_behind = 2};

const Subject split_wgmma = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2",
                             .heads = 140,
                             .seqlen_q = 5,
                             .seqlen_kv = 500,
                             .launches = 2};
// Many more work tiles than blocks, which see the same keys: they are scheduled.
const Subject scheduled = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_q=2",
                           .mask = "none",
                           .heads = 16,
                           .seqlen_q = 3100,
                           .seqlen_kv = 50};
const Subject room_for_more = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2",
                               .mask = "none",
                               .heads = 1,
                               .seqlen_q = 2,
                               .seqlen_kv = 100,
                               .rows_behind = 2};
// One work tile for all blocks: its splits are merged in groups.
const Subject many_splits = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=16 stages=2",
                             .mask = "none",
                             .heads = 1,
                             .seqlen_q = 2,
                             .seqlen_kv = 1000};

// Work tiles of many rows, which all of their blocks merge.
const Subject kv_by_all = {.config = "family=forward_split_kv tile_kv=64 stages=3 blocks_per_sm=1",
                           .gqa_ratio = 64,
                           .heads = 35,
                           .seqlen_q = 1,
                           .seqlen_kv = 500,
                           .launches = 2};
const Subject wgmma_by_all = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2",
                              .gqa_ratio = 64,
                              .heads = 140,
                              .seqlen_q = 1,
                              .seqlen_kv = 500,
                              .launches = 2};
// One work tile for all blocks: lanes of a warp share its splits.
const Subject many_by_all = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=16 stages=2",
                             .mask = "none",
                             .gqa_ratio = 64,
                             .heads = 1,
                             .seqlen_q = 1,
                             .seqlen_kv = 1000,
                             .launches = 4};

// Three tiles of rows of each head, on a strand each; the last one sees a tile of keys more than the others.
const Subject strands = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=16 stages=2",
                         .gqa_ratio = 64,
                         .heads = 10,
                         .seqlen_q = 3,
                         .seqlen_kv = 993,
                         .launches = 2};

UNMUTATED_TEST(SplitKeys, AreRightUnmutated) {
  for (const Subject& subject :
       reference::some_of<Subject>({split_kv, boxes, boxes_with_room, split_wgmma, scheduled, room_for_more,
                                    many_splits, kv_by_all, wgmma_by_all, many_by_all, strands},
                                   3))
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

INSTANTIATE_TEST_SUITE_P(
    SplitKeys, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForTiles", removed, {"data race", "access in flight"}, split_kv},
        TemplateMutation{"NoBarrierBeforeResults", removed, {"data race"}, split_kv},
        TemplateMutation{"NoBarrierBehindResults", removed, {"data race"}, split_kv},
        TemplateMutation{"StateOfTheSplitBefore", removed, {}, split_kv},
        TemplateMutation{
            "NoWaitForBoxes", removed, {"data race", "access in flight", "uninitialized"}, boxes, true},
        TemplateMutation{"ResultsWithoutProxyFence", removed, {"proxy"}, boxes},
        TemplateMutation{"QueriesBesideBoxesWithoutWait", removed, {"data race", "access in flight"}, boxes},
        TemplateMutation{"RowsBehindTheSequenceInBoxes",
                         removed,
                         {"uninitialized", "not a number"},
                         boxes_with_room,
                         true},
        TemplateMutation{"PartialResultsOfTwoWorkTilesInOnePlace",
                         {"2ll", "1ll"},
                         {"deadlock", "data race"},
                         split_kv,
                         true},
        TemplateMutation{"OneTileOfKeysTwice", {"($)", "place"}, {}, split_kv},
        TemplateMutation{"QueriesWithoutWait", removed, {"data race", "access in flight"}, split_wgmma},
        TemplateMutation{"QueriesWithoutProxyFence", removed, {"proxy"}, split_wgmma},
        TemplateMutation{"QueriesReleasedTooEarly",
                         {"$", "q_pipeline_.consumer_wait();\n      q_pipeline_.consumer_release();"},
                         {"data race", "access in flight", "mbarrier"},
                         scheduled,
                         true},
        TemplateMutation{"RowsBehindTheSequence",
                         removed,
                         {"uninitialized", "not a number", "data race"},
                         room_for_more,
                         true},
        TemplateMutation{
            "SomeWorkTilesTwice", {"this->block()", "this->block() / 2"}, {"data race"}, scheduled}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(Strands, TemplateMutationTest,
                         ::testing::Values(
                             TemplateMutation{
                                 "AllHaveTheFirstRows", {"strand_ $,", "0,"}, {"data race"}, strands, true},
                             TemplateMutation{"RowsOfOtherStrands",
                                              {"+ $ * ", "+ "},
                                              {"deadlock", "data race", "out of bounds"},
                                              strands,
                                              true},
                             TemplateMutation{"WorkTilesAsLongAsTheyAre",
                                              {"(shares$ : ", "("},
                                              {"deadlock", "data race", "out of bounds"},
                                              strands,
                                              true},
                             TemplateMutation{"AllInTheSamePlaces",
                                              {"return $ + ", "return "},
                                              {"deadlock", "data race", "out of bounds"},
                                              strands,
                                              true}),
                         ::testing::PrintToStringParamName());

// Messages between blocks, without what makes it more than chance that they are right.
class MailboxMutationTest : public MutationTest {};

TEST_P(MailboxMutationTest, IsCaught) {
  const TemplateMutation& mutation = GetParam();
  const std::string text = noticed(&mutation, mutation.subject);
  if (mutation.caught_by.empty()) {
    EXPECT_NE(text, "") << "not caught";
  } else {
    EXPECT_THAT(text, ::testing::HasSubstr(mutation.caught_by.front()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    SplitKeys, MailboxMutationTest,
    ::testing::Values(
        TemplateMutation{"PlainStores", {"relaxed.gpu.", ""}, {"data race"}, split_kv},
        TemplateMutation{"PlainStores_ByWgmma", {"relaxed.gpu.", ""}, {"data race"}, split_wgmma},
        TemplateMutation{"PlainLoads", {"relaxed.gpu.", ""}, {"data race"}, split_kv},
        TemplateMutation{
            "BlocksHaveBegun_ItStaysSaid", removed, {"a word of a mailbox is not empty"}, wgmma_by_all},
        TemplateMutation{"StoresForTheBlockOnly", {"gpu", "cta"}, {"data race"}, split_kv},
        TemplateMutation{"WaitsForNothing", {"$", "return false;"}, {}, split_wgmma},
        TemplateMutation{"ValuesStay", {"$", "{}"}, {}, split_kv},
        TemplateMutation{"StatesOfSplitsStay", {"$", "{}"}, {}, split_wgmma},
        TemplateMutation{"WhoMerges_All", removed, {}, split_kv},
        TemplateMutation{"GroupsInPlacesOfSplits", {"($ + ", "("}, {"deadlock"}, many_splits},
        TemplateMutation{"WhoMerges_OneGroupDoesNot", {"% $ !=", "!="}, {"deadlock"}, many_splits},
        TemplateMutation{"WordsOfTheFirstSplitAlone", {"= $ 0", "= 0"}, {}, split_kv}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    SplitKeysByAll, MailboxMutationTest,
    ::testing::Values(
        TemplateMutation{"WaitsForNoWord", {"{ $ }", "{ return false; }"}, {}, many_by_all},
        TemplateMutation{"ValuesOfColumnSlicesStay", {"$", "{}"}, {}, kv_by_all},
        TemplateMutation{"StatesOfColumnSlicesStay", {"$", "{}"}, {}, wgmma_by_all},
        TemplateMutation{"SharesOfColumnSlices_OneIsMissed", {") / $;", ") / ($ + 1);"}, {}, wgmma_by_all},
        TemplateMutation{"SharesOfColumnSlices_AColumnSliceOfTwo",
                         {"begin = $,", "begin = maximum(0, $ - 1),"},
                         {"deadlock"},
                         many_by_all},
        TemplateMutation{"SharesThatAreLeftStay", {" ($);", " (false);"}, {}, many_by_all},
        TemplateMutation{"NoticesOfSharesStay", {"$", "{}"}, {}, kv_by_all},
        TemplateMutation{"BlocksHaveBegun_ForEver", {") $;", ") {}"}, {}, kv_by_all},
        TemplateMutation{"SplitsOfAnotherGroup", {"/ $;", "/ $ + 1;"}, {"deadlock"}, many_by_all},
        TemplateMutation{"GroupsThatDoNotMeet", {"= $;", "= merged[0];"}, {}, many_by_all},
        TemplateMutation{"WordsOfTheFirstColumnSliceAlone", removed, {}, kv_by_all}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::split_keys_mutations
