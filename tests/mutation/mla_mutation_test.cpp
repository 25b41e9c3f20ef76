// Mutations of the kernels whose values are columns of keys: what consumers hand over must come in time, and whole.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::mla_mutations {
namespace {

// A few more work tiles than blocks, of several tiles.
const Subject by_tma = {.config = "family=forward_mla_wgmma tile_kv=64 stages=2",
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
  subject.config = "family=forward_mla_wgmma tile_kv=64 stages=2 copies=cp_async";
  return subject;
}();
// A tile each: consumers meet at nothing but sums between one split and the next.
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

TEST(Mla, IsRightUnmutated) {
  for (const Subject& subject : reference::some_of<Subject>({by_tma, by_rows, one_tile, room_for_more}, 2))
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

INSTANTIATE_TEST_SUITE_P(
    Mla, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"ProbabilitiesOfAllStepsInOnePlace", {"+ ($)", "+ thread"}, {}, by_tma},
        TemplateMutation{"TakenBeforeItIsGiven",
                         removed,
                         {"data race", "barrier", "access in flight", "uninitialized"},
                         by_tma},
        TemplateMutation{"MaximaThatAreNotTaken", removed, {}, by_tma},
        TemplateMutation{"SumsOfOneConsumer", {" + $;", ";"}, {}, by_tma},
        TemplateMutation{"SumsOfAllSplitsInOnePlace", {"($) + ", ""}, {"data race"}, one_tile},
        TemplateMutation{
            "KeysReleasedBeforeTheyAreMultiplied", moved_up(3), {"data race", "access in flight"}, by_tma},
        TemplateMutation{"GivenWhileTheOthersAreMultiplied",
                         {"$", "keys_.consumer_release_before(2);"},
                         {"access in flight", "data race"},
                         by_tma},
        TemplateMutation{"NotRescaled", removed, {}, by_tma},
        TemplateMutation{
            "LatentRowsBehindTheSequence", removed, {"uninitialized", "not a number"}, room_for_more, true},
        TemplateMutation{"ValuesOfTheTileBehind", {"(2)", "(1)"}, {}, by_tma},
        TemplateMutation{"RowsWithoutProxyFence", removed, {"proxy"}, by_rows},
        TemplateMutation{"FullWhenHalfOfTheRowsAreThere",
                         {"Traits::key_warps", "1"},
                         {"data race", "access in flight", "uninitialized", "proxy", "mbarrier"},
                         by_rows,
                         true},
        TemplateMutation{"HalfOfTheRowsTwice",
                         {" + warp_", ""},
                         {"data race", "access in flight", "uninitialized"},
                         by_rows,
                         true},
        TemplateMutation{
            "BothWarpsLeaveInfos", {"($)", "(true)"}, {"data race", "deadlock", "mbarrier"}, by_rows, true},
        TemplateMutation{"EarlierTileNotWaitedFor",
                         {"<1>", "<2>"},
                         {"data race", "access in flight", "uninitialized", "proxy"},
                         by_rows},
        TemplateMutation{"NothingEndedBeforeAWaitForRoom", removed, {"deadlock"}, by_rows},
        TemplateMutation{"LastTileNotWaitedFor",
                         {"<0>", "<1>"},
                         {"data race", "access in flight", "uninitialized", "proxy", "unfinished copy"},
                         by_rows}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::mla_mutations
