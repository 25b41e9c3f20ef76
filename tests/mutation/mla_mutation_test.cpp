// Mutations of the kernels whose values are columns of keys: what consumers hand over must come in time, and whole.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::mla_mutations {
namespace {

// A few more units than blocks, of several tiles.
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
// A tile each: consumers meet at nothing but sums between one part and the next.
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

constexpr const char* handover = "forward_mla_wgmma/handover.cuh";
constexpr const char* consumer = "forward_mla_wgmma/consumer.cuh";
constexpr const char* load_keys = "forward_mla_wgmma/load_keys.cuh";

INSTANTIATE_TEST_SUITE_P(
    Mla, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"ProbabilitiesOfAllStepsInOnePlace",
                         handover,
                         "(step * warpgroup_size + thread)",
                         "thread",
                         {},
                         by_tma},
        TemplateMutation{"TakenBeforeItIsGiven",
                         handover,
                         "    bar_sync(Traits::handover_barrier + consumer_, Traits::consumer_threads);\n",
                         "",
                         {"data race", "barrier", "access in flight", "uninitialized"},
                         by_tma},
        TemplateMutation{
            "MaximaThatAreNotTaken", handover, "      state.row_max[r] = max;\n", "", {}, by_tma},
        TemplateMutation{"SumsOfOneConsumer",
                         handover,
                         "of_consumer(0).load(row) + of_consumer(1).load(row)",
                         "of_consumer(0).load(row)",
                         {},
                         by_tma},
        TemplateMutation{"SumsOfAllPartsInOnePlace",
                         handover,
                         "(is_odd ? Traits::consumers : 0) + consumer",
                         "consumer",
                         {"data race"},
                         one_tile},
        TemplateMutation{
            "KeysReleasedBeforeTheyAreMultiplied",
            consumer,
            "    wgmma_wait_group<0>();\n    wgmma_hold(output_.registers[0]);\n    handover_.hold();\n    "
            "keys_.arrive_empty_before(back);\n",
            "    keys_.arrive_empty_before(back);\n    wgmma_wait_group<0>();\n    "
            "wgmma_hold(output_.registers[0]);\n    handover_.hold();\n",
            {"data race", "access in flight"},
            by_tma},
        TemplateMutation{"GivenWhileTheOthersAreMultiplied",
                         consumer,
                         "      exponentiate(scores_, state_, scale_log2_);\n      finish_values(2);\n",
                         "      exponentiate(scores_, state_, scale_log2_);\n      "
                         "keys_.arrive_empty_before(2);\n",
                         {"access in flight", "data race"},
                         by_tma},
        TemplateMutation{
            "NotRescaled", consumer, "    if (moves) output_.scale_rows(correction);\n", "", {}, by_tma},
        TemplateMutation{"RowsBehindTheSequence",
                         consumer,
                         "    if (Traits::uses_tma) clear_rows(parts_.note().seqlen_kv - note_.k_begin);\n",
                         "",
                         {"uninitialized", "not a number"},
                         room_for_more,
                         true},
        TemplateMutation{
            "ValuesOfTheTileBehind", consumer, "keys_.tile_before(2)", "keys_.tile_before(1)", {}, by_tma},
        TemplateMutation{
            "RowsWithoutProxyFence", load_keys, "    fence_proxy_async_shared();\n", "", {"proxy"}, by_rows},
        TemplateMutation{"FullWhenHalfOfTheRowsAreThere",
                         "forward_mla_wgmma/rings.cuh",
                         "layout.k_full, Config::stages, Traits::key_warps);",
                         "layout.k_full, Config::stages, 1);",
                         {"data race", "access in flight", "uninitialized", "proxy", "mbarrier"},
                         by_rows,
                         true},
        TemplateMutation{"HalfOfTheRowsTwice",
                         load_keys,
                         "Traits::key_warps + warp_) * group_rows",
                         "Traits::key_warps) * group_rows",
                         {"data race", "access in flight", "uninitialized"},
                         by_rows,
                         true},
        TemplateMutation{"BothWarpsLeaveNotes",
                         load_keys,
                         "notes_(Traits::key_warps == 1 || warp == 0)",
                         "notes_(true)",
                         {"data race", "deadlock", "mbarrier"},
                         by_rows,
                         true},
        TemplateMutation{"EarlierTileNotWaitedFor",
                         load_keys,
                         "end<1>(",
                         "end<2>(",
                         {"data race", "access in flight", "uninitialized", "proxy"},
                         by_rows},
        TemplateMutation{"NothingEndedBeforeAWaitForRoom",
                         load_keys,
                         "      copies_.finish_before_waiting(ring_);\n",
                         "",
                         {"deadlock"},
                         by_rows},
        TemplateMutation{"LastTileNotWaitedFor",
                         load_keys,
                         "if (is_last) end<0>(",
                         "if (is_last) end<1>(",
                         {"data race", "access in flight", "uninitialized", "proxy", "unfinished copy"},
                         by_rows}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::mla_mutations
