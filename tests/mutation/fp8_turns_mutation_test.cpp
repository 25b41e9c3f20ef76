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

TEST(Fp8Turns, IsRightUnmutated) {
  for (const Subject& subject : {turns, maskless, keyless, wide_turns})
    EXPECT_EQ(noticed(nullptr, subject), "");
}

class Fp8TurnsMutationTest : public MutationTest {};

TEST_P(Fp8TurnsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed(&GetParam(), GetParam().subject));
}

constexpr const char* consumer = "forward_wgmma/consumer.cuh";
constexpr const char* scores = "forward_wgmma/consumer_scores.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8, Fp8TurnsMutationTest,
    ::testing::Values(TemplateMutation{"QueriesReleasedWithEveryProduct",
                                       consumer,
                                       "queries_.release_if(keys_.is_last())",
                                       "queries_.release_if(true)",
                                       {"race", "barrier", "flight"},
                                       turns},
                      TemplateMutation{"QueriesReleasedUnderTheProduct",
                                       consumer,
                                       "    wgmma_wait_group<1>();\n    release_last_queries();\n",
                                       "    release_last_queries();\n    wgmma_wait_group<1>();\n",
                                       {"race", "flight"},
                                       turns},
                      TemplateMutation{"QueriesKept",
                                       consumer,
                                       "queries_.release_if(keys_.is_last())",
                                       "queries_.release_if(false)",
                                       {"deadlock"},
                                       turns},
                      TemplateMutation{
                          "QueriesWithoutKeysKept",
                          consumer,
                          "        if constexpr (releases_early) queries_.release();\n        finish_rows",
                          "        finish_rows",
                          {"deadlock"},
                          keyless},
                      TemplateMutation{"KeysKept",
                                       scores,
                                       "    if constexpr (!passes_early) keys.release_k_behind(move);\n",
                                       "",
                                       {"deadlock"},
                                       turns},
                      TemplateMutation{"KeysKeptWhereMaximaStay",
                                       "ptx/mbarrier.cuh",
                                       "\"@is_not mbarrier.arrive.shared::cta.b64 _, [%0];\\n\"\n",
                                       "",
                                       {"deadlock"},
                                       turns},
                      TemplateMutation{"KeysKeptWhereMaximaMove",
                                       "ptx/mbarrier.cuh",
                                       "\"@is_so mbarrier.arrive.shared::cta.b64 _, [%0];\\n\"\n",
                                       "",
                                       {"deadlock"},
                                       turns},
                      TemplateMutation{"KeysReleasedByAllLanes",
                                       "tiles/tile_ring.cuh",
                                       "mbarrier_arrive_if_behind(by_lanes || lane_id() == 0, known",
                                       "mbarrier_arrive_if_behind(true, known",
                                       {"barrier", "race", "flight"},
                                       maskless},
                      TemplateMutation{"TurnsKeptBehindTheWait",
                                       consumer,
                                       "    if constexpr (passes_turn) scores_.turns().pass();\n",
                                       "",
                                       {"deadlock"},
                                       turns},
                      TemplateMutation{"TurnsKeptBehindMaxima",
                                       scores,
                                       "    if constexpr (passes_early) turns_.pass_behind(move);\n",
                                       "",
                                       {"deadlock"},
                                       wide_turns},
                      TemplateMutation{"TurnsKeptBehindFirstMaxima",
                                       scores,
                                       "    if constexpr (passes_early && in_turn) turns_.pass();\n",
                                       "",
                                       {"deadlock"},
                                       wide_turns},
                      TemplateMutation{"TurnsKeptWhereMaximaStay",
                                       "ptx/warpgroup.cuh",
                                       "\"@!known bar.arrive %0, %1;\\n\"\n",
                                       "",
                                       {"deadlock"},
                                       wide_turns},
                      TemplateMutation{"OwnValuesForgotten",
                                       "forward_wgmma/load_keys.cuh",
                                       "      if constexpr (Traits::transposes_v) {",
                                       "      if constexpr (false) {",
                                       {"deadlock"},
                                       turns}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_turns_mutations
