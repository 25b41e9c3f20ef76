// Mutations of when consumers of 8 bits let go of queries, keys and turns: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::fp8_turns_mutations {
namespace {

// More work tiles than an H100 has multiprocessors, and one buffer of Q: the next ones come under the last softmax. Two
// consumers, whose turns end behind the wait for O, and three tiles of keys, whose words each lane reads for itself.
const Subject turns = {.config =
                           "family=forward_wgmma tile_q=128 tile_kv=32 stages_q=1 stages_k=2 stages_v=2 "
                           "output=separate order=ping_pong rescale=lazy converter_warps=2",
                       .mask = "document",
                       .head_dim = 32,
                       .head_dim_v = 32,
                       .dtype = DType::fp8_e4m3,
                       .heads = 140,
                       .seqlen_q = 100,
                       .seqlen_kv = 90};
// Without words.
const Subject maskless = [] {
  Subject subject = turns;
  subject.mask = "none";
  return subject;
}();
// Most tiles of queries see no key.
const Subject keyless = [] {
  Subject subject = turns;
  subject.mask = "causal";
  subject.heads = 100;
  subject.seqlen_q = 600;
  return subject;
}();
// Whose turns end with the maxima.
const Subject wide_turns = [] {
  Subject subject = maskless;
  subject.head_dim = subject.head_dim_v = 192;
  return subject;
}();

UNMUTATED_TEST(Fp8Turns, IsRightUnmutated) {
  for (const Subject& subject : {turns, maskless, keyless, wide_turns})
    EXPECT_EQ(noticed(nullptr, subject), "");
}

class Fp8TurnsMutationTest : public MutationTest {};

TEST_P(Fp8TurnsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), GetParam().subject));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8, Fp8TurnsMutationTest,
    ::testing::Values(
        TemplateMutation{
            "QueriesReleased_WithEveryProduct", {"keys_$()", "true"}, {"race", "barrier", "flight"}, turns},
        TemplateMutation{"QueriesReleasedUnderTheProduct", moved_up(1), {"race", "flight"}, turns},
        TemplateMutation{"QueriesReleased_Never", {"keys_$()", "false"}, {"deadlock"}, turns},
        TemplateMutation{"QueriesWithoutKeysKept", removed, {"deadlock"}, keyless},
        TemplateMutation{"KeysKept", removed, {"deadlock"}, turns},
        TemplateMutation{"KeysKeptWhereMaximaStay", removed, {"deadlock"}, turns},
        TemplateMutation{"KeysKeptWhereMaximaMove", removed, {"deadlock"}, turns},
        TemplateMutation{
            "KeysReleasedByAllLanes", {"by_lanes $ 0", "true"}, {"barrier", "race", "flight"}, maskless},
        TemplateMutation{"OrderKeptBehindTheWait", removed, {"deadlock"}, turns},
        TemplateMutation{"OrderKeptBehindMaxima", removed, {"deadlock"}, wide_turns},
        TemplateMutation{"OrderKeptBehindFirstMaxima", removed, {"deadlock"}, wide_turns},
        TemplateMutation{"OrderKeptWhereMaximaStay", removed, {"deadlock"}, wide_turns},
        TemplateMutation{"OwnValuesForgotten", {"($)", "(false)"}, {"deadlock"}, turns}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_turns_mutations
