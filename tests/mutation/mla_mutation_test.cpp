// Mutations of the kernels whose values are columns of keys: what warpgroups hand over must come in time, and whole.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::mla_mutations {
namespace {

// A few more work tiles than blocks, of several tiles.
const Subject by_tma = {.config = "family=forward_mla_wgmma stages=2",
                        .mask = "none",
                        .head_dim = 128,
                        .head_dim_v = 128,
                        .gqa_ratio = 4,
                        .values_in_keys = true,
                        .heads = 140,
                        .seqlen_q = 2,
                        .seqlen_kv = 300};
const Subject by_rows = [] {
  Subject subject = by_tma;
  subject.config = "family=forward_mla_wgmma stages=2 copies=cp_async";
  return subject;
}();
// Parts of values that are more than one for each warpgroup, with keys behind them.
const Subject in_parts = [] {
  Subject subject = by_tma;
  subject.head_dim = 320;
  subject.head_dim_v = 256;
  return subject;
}();
const Subject by_rows_in_parts = [] {
  Subject subject = in_parts;
  subject.config = by_rows.config;
  return subject;
}();
// Whose maxima move with nearly every tile.
const Subject steep = [] {
  Subject subject = by_tma;
  subject.amplitude = 4;
  return subject;
}();
const Subject steep_rows = [] {
  Subject subject = steep;
  subject.config = by_rows.config;
  return subject;
}();
// A tile each: warpgroups meet at nothing but states of rows between one split and the next.
const Subject one_tile = [] {
  Subject subject = by_tma;
  subject.heads = 600;
  subject.seqlen_q = 1;
  subject.seqlen_kv = 40;
  return subject;
}();
const Subject room_for_more = [] {
  Subject subject = by_tma;
  subject.heads = 1;
  subject.seqlen_q = 1;
  subject.seqlen_kv = 100;
  subject.rows_behind = 1;
  return subject;
}();

// Blocks with tiles of rows that see no key, one behind another.
const Subject without_keys = [] {
  Subject subject = by_rows;
  subject.mask = "causal";
  subject.heads = 1;
  subject.seqlen_q = 9000;
  return subject;
}();

UNMUTATED_TEST(Mla, IsRightUnmutated) {
  for (const Subject& subject : reference::some_of<Subject>(
           {by_tma, by_rows, in_parts, by_rows_in_parts, one_tile, room_for_more, without_keys}, 2))
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

INSTANTIATE_TEST_SUITE_P(
    Mla, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"StepsOfPInOnePlace", {"2 * step + ", ""}, {"data race"}, by_tma},
        TemplateMutation{"NumbersOfOtherRows", {"numbers[r]", "numbers[1 - r]"}, {}, one_tile},
        TemplateMutation{"LatentRescaleNotTold", {"p.moves ? p_rescales : 0", "0"}, {}, steep},
        TemplateMutation{"LatentPOverPThatIsMultiplied", removed, {"data race", "access in flight"}, by_tma},
        TemplateMutation{
            "LatentPReleasedUnderTheProduct", moved_up(3), {"data race", "access in flight"}, by_tma},
        TemplateMutation{
            "LatentPartReleasedUnderItsProduct", moved_up(1), {"data race", "access in flight"}, in_parts},
        TemplateMutation{
            "LatentLastPartReleasedUnderItsProduct", moved_up(2), {"data race", "access in flight"}, by_tma},
        TemplateMutation{
            "KeysAloneReleasedUnderTheirProduct", moved_up(4), {"data race", "access in flight"}, in_parts},
        TemplateMutation{
            "NoWaitForAPartOfKeys", removed, {"data race", "access in flight", "uninitialized"}, by_tma},
        TemplateMutation{
            "NoWaitForKeysAlone", removed, {"data race", "access in flight", "uninitialized"}, in_parts},
        TemplateMutation{"HeldColumnsOfAnotherPart", {"column / ", "0 * column / "}, {}, in_parts},
        TemplateMutation{
            "LatentRowsBehindTheSequence", removed, {"uninitialized", "not a number"}, room_for_more, true},
        TemplateMutation{"StepsOfGivenPInOnePlace", {"2 * step + ", ""}, {"data race"}, by_rows},
        TemplateMutation{"GivenPWithoutProxyFence", removed, {"proxy"}, by_rows},
        TemplateMutation{"PTakenBeforeItIsGiven",
                         removed,
                         {"data race", "access in flight", "uninitialized", "proxy", "mbarrier"},
                         by_rows,
                         true},
        TemplateMutation{"SumsOfOwnTilesAlone", removed, {}, by_rows},
        TemplateMutation{"RescaleOfTheOtherForgotten", removed, {}, steep_rows},
        TemplateMutation{"OwnRescaleForgotten", removed, {}, steep_rows},
        TemplateMutation{
            "PWhereKeysAreMultiplied", removed, {"data race", "access in flight"}, by_rows_in_parts},
        TemplateMutation{"OwnPartReleasedUnderItsProduct",
                         moved_up(1),
                         {"data race", "access in flight", "mbarrier"},
                         by_rows_in_parts,
                         true},
        TemplateMutation{"LastOwnPartReleasedUnderItsProduct",
                         moved_up(3),
                         {"data race", "access in flight", "mbarrier"},
                         by_rows,
                         true},
        TemplateMutation{"RowsWithoutProxyFence", removed, {"proxy"}, by_rows},
        TemplateMutation{"NoWaitForAPartOfRows",
                         removed,
                         {"data race", "access in flight", "uninitialized", "proxy"},
                         by_rows_in_parts},
        TemplateMutation{"NoWaitForRowsAlone",
                         removed,
                         {"data race", "access in flight", "uninitialized", "proxy"},
                         by_rows_in_parts},
        TemplateMutation{"FullWhenHalfOfTheRowsAreThere",
                         {"Traits::row_arrivals", "warp_size"},
                         {"data race", "access in flight", "uninitialized", "proxy", "mbarrier"},
                         by_rows,
                         true},
        TemplateMutation{"RowsOverThoseThatAreMultiplied",
                         removed,
                         {"data race", "access in flight", "mbarrier"},
                         by_rows,
                         true},
        TemplateMutation{"StageFullBeforeItsRowsCame",
                         {"cp_async_mbarrier_arrive", "mbarrier_arrive"},
                         {"data race", "access in flight", "uninitialized", "proxy"},
                         by_rows,
                         true},
        TemplateMutation{"PlanTakenBeforeItIsThere",
                         removed,
                         {"data race", "uninitialized", "mbarrier", "deadlock"},
                         by_rows,
                         true},
        TemplateMutation{"PlanReleasedBeforeItIsRead", moved_up(1), {"data race"}, by_rows, true},
        TemplateMutation{"OwnQueriesWithoutWait",
                         removed,
                         {"data race", "access in flight", "uninitialized", "proxy", "unfinished copy"},
                         by_rows},
        TemplateMutation{"OwnQueriesOfOtherWarpsReadEarly",
                         removed,
                         {"data race", "access in flight", "uninitialized", "proxy"},
                         by_rows,
                         true}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::mla_mutations
