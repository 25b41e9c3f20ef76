// Mutations of the families whose keys are split over blocks: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::split_keys_mutations {
namespace {

// A few more units than blocks, of several tiles: blocks go from one to the next, and share them.
const Subject split_kv = {.config = "family=forward_split_kv tile_kv=64 stages=3 blocks_per_sm=1",
                          .heads = 140,
                          .seqlen_q = 5,
                          .seqlen_kv = 500,
                          .launches = 2};

// The same where TMA copies tiles; and with rows behind the sequence.
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
// Many more units than blocks, which see the same keys: they are dealt.
const Subject dealt = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_q=2",
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
// One unit for all blocks: its parts are merged in groups.
const Subject many_parts = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=16 stages=2",
                            .mask = "none",
                            .heads = 1,
                            .seqlen_q = 2,
                            .seqlen_kv = 1000};

// Units of many rows, which all of their blocks merge.
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
// One unit for all blocks: lanes of a warp share its parts.
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

constexpr const char* work_list = "split_keys/work_list.cuh";

TEST(SplitKeys, AreRightUnmutated) {
  for (const Subject& subject :
       reference::some_of<Subject>({split_kv, boxes, boxes_with_room, split_wgmma, dealt, room_for_more,
                                    many_parts, kv_by_all, wgmma_by_all, many_by_all, strands},
                                   3))
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

INSTANTIATE_TEST_SUITE_P(
    SplitKeys, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForTiles",
                         "forward_split_kv/kernel.cuh",
                         "    if (step >= 0) cp_async_wait_group<loads_ahead - 1>();\n",
                         "",
                         {"data race", "access in flight"},
                         split_kv},
        TemplateMutation{"NoBarrierBeforeResults",
                         "forward_split_kv/results.cuh",
                         "  team.sync();  // the other warps are done with the tiles that lie here\n",
                         "",
                         {"data race"},
                         split_kv},
        TemplateMutation{"NoBarrierBehindResults",
                         "forward_split_kv/results.cuh",
                         "  state = {};\n  team.sync();\n",
                         "  state = {};\n",
                         {"data race"},
                         split_kv},
        TemplateMutation{"StateOfThePartBefore",
                         "forward_split_kv/results.cuh",
                         "  output.clear();\n  state = {};\n",
                         "  output.clear();\n",
                         {},
                         split_kv},
        TemplateMutation{"NoWaitForBoxes",
                         "forward_split_kv/box_kernel.cuh",
                         "        ring_.wait_full();\n",
                         "",
                         {"data race", "access in flight", "uninitialized"},
                         boxes,
                         true},
        TemplateMutation{"ResultsWithoutProxyFence",
                         "forward_split_kv/box_kernel.cuh",
                         "      fence_proxy_async_shared();  // what was written here before TMA writes\n",
                         "",
                         {"proxy"},
                         boxes},
        TemplateMutation{"QueriesBesideBoxesWithoutWait",
                         "forward_split_kv/box_loader.cuh",
                         "    cp_async_wait_group<0>();\n",
                         "",
                         {"data race", "access in flight"},
                         boxes},
        TemplateMutation{"RowsBehindTheSequenceInBoxes",
                         "forward_split_kv/box_kernel.cuh",
                         "    if (keys < Config::tile_kv) clear_rows<Config>(v, keys);\n",
                         "",
                         {"uninitialized", "not a number"},
                         boxes_with_room,
                         true},
        TemplateMutation{"PartialResultsOfTwoUnitsInOnePlace",
                         "split_keys/block_results.cuh",
                         "2ll * note.first_block + 1",
                         "1ll * note.first_block + 1",
                         {"deadlock", "data race"},
                         split_kv,
                         true},
        TemplateMutation{"OneTileOfKeysTwice",
                         "scheduling/key_shares.cuh",
                         "const int before = (place + tile_cost - 1) / tile_cost;",
                         "const int before = place / tile_cost;",
                         {},
                         split_kv},
        TemplateMutation{"QueriesWithoutWait",
                         "split_keys/load_queries.cuh",
                         "    cp_async_wait_group<0>();\n",
                         "",
                         {"data race", "access in flight"},
                         split_wgmma},
        TemplateMutation{"QueriesWithoutProxyFence",
                         "split_keys/load_queries.cuh",
                         "    fence_proxy_async_shared();\n    ring.arrive_full();",
                         "    ring.arrive_full();",
                         {"proxy"},
                         split_wgmma},
        TemplateMutation{"QueriesReleasedTooEarly",
                         "forward_split_wgmma/consumer.cuh",
                         "if (brings_queries<Config>(parts_.note())) rings_.q.wait_full();\n",
                         "rings_.q.wait_full();\n      rings_.q.arrive_empty();\n",
                         {"data race", "access in flight", "mbarrier"},
                         dealt,
                         true},
        TemplateMutation{"RowsBehindTheSequence",
                         "forward_split_wgmma/consumer.cuh",
                         "if (keys < Config::tile_kv) clear_rows<Config>(rings_.v.tile(), keys, thread());",
                         "",
                         {"uninitialized", "not a number", "data race"},
                         room_for_more,
                         true},
        TemplateMutation{"SomeUnitsTwice",
                         "split_keys/work_list.cuh",
                         "skip(params, line_block());",
                         "skip(params, line_block() / 2);",
                         {"data race"},
                         dealt}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Strands, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{
            "AllHaveTheFirstRows", work_list, "strand_ * tile_rows", "0", {"data race"}, strands, true},
        TemplateMutation{"RowsOfOtherStrands",
                         work_list,
                         "unit.row_begin + shares.strands * tile_rows < rows()",
                         "unit.row_begin + tile_rows < rows()",
                         {"deadlock", "data race", "out of bounds"},
                         strands,
                         true},
        TemplateMutation{"UnitsAsLongAsTheyAre",
                         work_list,
                         "shares.strands > 1 ? head_tiles_ : tiles.count()",
                         "tiles.count()",
                         {"deadlock", "data race", "out of bounds"},
                         strands,
                         true},
        TemplateMutation{"AllInTheSamePlaces",
                         "scheduling/key_shares.cuh",
                         "return place.strand * strand_blocks + place.column;",
                         "return place.column;",
                         {"deadlock", "data race", "out of bounds"},
                         strands,
                         true}),
    ::testing::PrintToStringParamName());

// What blocks leave for one another, without what makes it more than chance that it is right.
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

constexpr const char* relaxed = "ptx/relaxed.cuh";
constexpr const char* block_results = "split_keys/block_results.cuh";
constexpr const char* merge_parts = "split_keys/merge_parts.cuh";
constexpr const char* merge_shares = "split_keys/merge_shares.cuh";
constexpr const char* merge_strips = "split_keys/merge_strips.cuh";
constexpr const char* result_pieces = "split_keys/result_pieces.cuh";

INSTANTIATE_TEST_SUITE_P(
    SplitKeys, MailboxMutationTest,
    ::testing::Values(
        TemplateMutation{"PlainStores",
                         relaxed,
                         "st.relaxed.gpu.global.v2.f32",
                         "st.global.v2.f32",
                         {"data race"},
                         split_kv},
        TemplateMutation{"PlainStoresByWgmma",
                         relaxed,
                         "st.relaxed.gpu.global.v2.f32",
                         "st.global.v2.f32",
                         {"data race"},
                         split_wgmma},
        TemplateMutation{"PlainLoads",
                         relaxed,
                         "ld.relaxed.gpu.global.v4.f32",
                         "ld.global.v4.f32",
                         {"data race"},
                         split_kv},
        TemplateMutation{
            "ItStaysSaidThatABlockHasBegun",
            merge_shares,
            "  if (team.thread == 0) store_relaxed(begun_notice(split, note.first_block + note.part), "
            "empty_word);\n",
            "",
            {"a word of a mailbox is not empty"},
            wgmma_by_all},
        TemplateMutation{"StoresForTheBlockOnly",
                         relaxed,
                         "st.relaxed.gpu.global.v4.f32",
                         "st.relaxed.cta.global.v4.f32",
                         {"data race"},
                         split_kv},
        TemplateMutation{
            "WaitsForNothing", result_pieces, "return is_empty(most);", "return false;", {}, split_wgmma},
        TemplateMutation{
            "ValuesStay",
            block_results,
            "store_relaxed(reinterpret_cast<float4*>(values), make_float4(none, none, none, none));",
            "{}",
            {},
            split_kv},
        TemplateMutation{"StatesStay",
                         merge_parts,
                         "results.put_state(place + i / rows, i % rows, 0, {none, none});",
                         "{}",
                         {},
                         split_wgmma},
        TemplateMutation{"AllMerge",
                         merge_parts,
                         "if (is_group ? note.part % parts_of_group != 0 : note.part != 0) return;",
                         "",
                         {},
                         split_kv},
        TemplateMutation{"GroupsInPlacesOfParts",
                         merge_parts,
                         "results.put(note.parts + note.part / parts_of_group",
                         "results.put(note.part / parts_of_group",
                         {"deadlock"},
                         many_parts},
        TemplateMutation{"OneGroupIsNotThere",
                         merge_parts,
                         "note.part % parts_of_group != 0 :",
                         "note.part != 0 :",
                         {"deadlock"},
                         many_parts},
        TemplateMutation{"WordsOfTheFirstPartAlone",
                         block_results,
                         "const int next = first + i + 1 < count ? distance : 0;",
                         "const int next = 0;",
                         {},
                         split_kv}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    SplitKeysByAll, MailboxMutationTest,
    ::testing::Values(
        TemplateMutation{
            "WaitsForNothing", result_pieces, "return word == empty_word;", "return false;", {}, many_by_all},
        TemplateMutation{
            "ValuesStay",
            merge_strips,
            "store_relaxed(reinterpret_cast<float4*>(values), make_float4(none, none, none, none));",
            "{}",
            {},
            kv_by_all},
        TemplateMutation{"StatesStay",
                         merge_strips,
                         "store_relaxed(reinterpret_cast<float2*>(state), make_float2(none, none));",
                         "{}",
                         {},
                         wgmma_by_all},
        TemplateMutation{"AShareIsMissed",
                         merge_shares,
                         "end = strips * (share + 1) / note.mergers;",
                         "end = strips * (share + 1) / (note.mergers + 1);",
                         {},
                         wgmma_by_all},
        TemplateMutation{"AStripOfTwoShares",
                         merge_shares,
                         "int begin = strips * share / note.mergers",
                         "int begin = maximum(0, strips * share / note.mergers - 1)",
                         {"deadlock"},
                         many_by_all},
        TemplateMutation{"SharesThatAreLeftStay",
                         merge_shares,
                         "} while (is_first && left.next(share));",
                         "} while (false);",
                         {},
                         many_by_all},
        TemplateMutation{"NoticesOfSharesStay",
                         merge_shares,
                         "store_relaxed(share_notice(split, note.first_block + block), empty_word);",
                         "{}",
                         {},
                         kv_by_all},
        TemplateMutation{"BlocksHaveBegunForEver",
                         merge_shares,
                         "store_relaxed(begun_notice(split, note.first_block + note.part), empty_word);",
                         "{}",
                         {},
                         kv_by_all},
        TemplateMutation{"PartsOfAnotherGroup",
                         merge_strips,
                         "return parts * (group() + 1) / groups;",
                         "return parts * (group() + 1) / groups + 1;",
                         {"deadlock"},
                         many_by_all},
        TemplateMutation{"GroupsThatDoNotMeet",
                         merge_strips,
                         "piece = join_lanes(merged[0], place);",
                         "piece = merged[0];",
                         {},
                         many_by_all},
        TemplateMutation{"WordsOfTheFirstPartAlone", merge_strips, "values += distance;", "", {}, kv_by_all}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::split_keys_mutations
