// Mutations of forward_tcgen05, on an emulated sm_100a: what the roles hand over must be there, in tensor memory, too.
#include "tests/mutation/template_mutation.h"
#include "tests/support/backward_run.h"

namespace jit::testing::tcgen05_mutations {
namespace {

// More work tiles than blocks, of several tiles of keys.
const Subject subject = {.config = "family=forward_tcgen05 stages=1",
                         .mask = "none",
                         .heads = 160,
                         .seqlen_q = 20,
                         .seqlen_kv = 300};
// Whose maxima move with nearly every tile.
const Subject steep = [] {
  Subject steep = subject;
  steep.amplitude = 4;
  steep.heads = 2;
  steep.seqlen_kv = 800;
  return steep;
}();

// Blocks with several work tiles in a row that see no key.
const Subject keyless = [] {
  Subject keyless = subject;
  keyless.mask = "causal";
  keyless.heads = 60;
  keyless.seqlen_q = 1800;
  keyless.seqlen_kv = 30;
  return keyless;
}();

const Subject blocks = [] {
  Subject blocks = subject;
  blocks.mask = "block_mask(32, 16)";
  blocks.heads = 2;
  blocks.seqlen_q = 100;
  return blocks;
}();

// Each key has a scale, which lies beside its tile.
const Subject tokens = [] {
  Subject tokens = subject;
  tokens.config = "family=forward_tcgen05 stages=4";  // with fewer the release is told of by values, too
  tokens.dtype = DType::fp8_e4m3;
  tokens.descale_per = ScaleKind::token;
  tokens.heads = 2;
  tokens.seqlen_kv = 1200;
  return tokens;
}();

// By pairs of blocks: more work tiles than pairs, of several tiles of keys.
const Subject pairs = [] {
  Subject pairs = subject;
  pairs.head_dim_v = 144;
  pairs.heads = 80;
  return pairs;
}();
const Subject steep_pair = [] {
  Subject pair = steep;
  pair.head_dim_v = 144;
  return pair;
}();
const Subject keyless_pairs = [] {
  Subject pairs = keyless;
  pairs.head_dim_v = 144;
  return pairs;
}();

const std::vector<const char*> race = {"data race", "access in flight", "uninitialized",
                                       "mbarrier",  "unfinished copy",  "proxy"};

// Several groups of queries and keys, and halves of them.
std::string noticed_of_dropout(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const CurrentDevice scope(0);
  const AttentionCase problem{.spec = {.head_dim = 16, .gqa_ratio = 2, .dropout = true},
                              .seqlen_q = 70,
                              .seqlen_kv = 83,
                              .seed = 5,
                              .dropout_p = 0.25f};
  return BackwardRun(problem).check_forward(Context(templates.settings()), ForwardTcgen05{.stages = 1});
}

UNMUTATED_TEST(Tcgen05, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_dropout(nullptr), "");
  EXPECT_EQ(noticed(nullptr, subject), "");
  EXPECT_EQ(noticed(nullptr, steep), "");
  EXPECT_EQ(noticed(nullptr, pairs), "");
  EXPECT_EQ(noticed(nullptr, blocks), "");
  EXPECT_EQ(noticed(nullptr, tokens), "");
}

class Tcgen05MutationTest : public MutationTest {};
TEST_P(Tcgen05MutationTest, IsCaught) { expect_caught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Tcgen05, Tcgen05MutationTest,
    ::testing::Values(
        TemplateMutation{"KeysMultipliedBeforeTheyAreThere", removed, race, subject, true},
        TemplateMutation{"KeysNeverReleased", removed, {"deadlock"}, subject},
        TemplateMutation{"KeysReleasedAtOnce", {"tcgen05_commit", "mbarrier_arrive"}, race, subject},
        TemplateMutation{"ReleasesOutliveTheBlock", removed, race, subject},
        TemplateMutation{"ScoresReadBeforeTheyAreThere", removed, race, subject},
        TemplateMutation{"NoWaitForLoads", removed, race, subject},
        TemplateMutation{"PToldBeforeItIsStored", removed, race, subject},
        TemplateMutation{"NoFenceBehindP", removed, race, subject},
        TemplateMutation{"NoFenceBehindAWait", removed, race, subject},
        TemplateMutation{"ValuesMultipliedBeforePIsThere", removed, race, subject},
        TemplateMutation{"LastValuesMultipliedBeforePIsThere", removed, race, subject},
        TemplateMutation{"OReadBeforeTheLastProducts", moved_up(1), race, subject},
        TemplateMutation{"NoWaitForO", removed, race, subject},
        TemplateMutation{"OToldBeforeItIsRescaled", removed, race, steep},
        TemplateMutation{"FactorsOverFactorsThatWait", removed, race, keyless},
        TemplateMutation{"FactorsIgnored", {"factors_rescale", "0"}, {}, steep},
        TemplateMutation{
            "RescaleOfRowsNotTold", {"moves && !is_first ? factors_rescale : 0", "0"}, {}, steep},
        TemplateMutation{"OOfTheFirstTileIsRescaled", {"accumulates || step > begin", "true"}, race, subject},
        TemplateMutation{"ScalesReleasedBeforeTheyAreRead", moved_up(1), race, tokens},
        TemplateMutation{"KeptByTheLastSixteenKeys", {"kept |=", "kept ="}, {}, blocks},
        TemplateMutation{"PolynomialWithoutConstant", {"1.0f", "0.5f"}, {}, subject},
        TemplateMutation{"DescriptorWithoutVersion", {" | 1ull << 46", ""}, {"bad descriptor"}, subject},
        TemplateMutation{
            "LanesOfOneWarp", {" % 4 * warp_size", " * 0"}, {"illegal", "tensor memory"}, subject},
        TemplateMutation{"ColumnsKept", removed, {"tensor memory", "unfinished"}, subject}),
    ::testing::PrintToStringParamName());

class Tcgen05DropoutMutationTest : public MutationTest {};
TEST_P(Tcgen05DropoutMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_dropout(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(Tcgen05, Tcgen05DropoutMutationTest,
                         ::testing::Values(TemplateMutation{"BitsOfAnotherRow", {"first + i", "i"}},
                                           TemplateMutation{"SignsOfAnotherPair", {"0xbbaa", "0x9988"}},
                                           TemplateMutation{"WhatIsKeptStandsForItself_InTensorMemory",
                                                            {"* $ :", ":"}}),
                         ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Tcgen05Pairs, Tcgen05MutationTest,
    ::testing::Values(
        TemplateMutation{"BytesOfOneBlock", {"2 * bytes", "bytes"}, race, pairs},
        TemplateMutation{"PairStays", {"places_at", "2 * places_at"}, {}, pairs},
        TemplateMutation{"PToldToTheOwnBlock", {"_to(0)", "()"}, {"deadlock"}, pairs},
        TemplateMutation{"OOfAPairInProducts", removed, race, steep_pair},
        TemplateMutation{"KeysOfThePeerMissing", removed, race, pairs},
        TemplateMutation{"PeerKeepsItsQueries", removed, {"deadlock"}, keyless_pairs},
        TemplateMutation{"CommitsToTheLeaderAlone", {"short>(3)", "short>(1)"}, {"deadlock"}, pairs},
        TemplateMutation{"BlocksOfAPairEndAlone", {"cluster_sync()", "__syncthreads()"}, race, pairs},
        TemplateMutation{"KeysOfTheLeaderTwice", {"rank_in_tile<typename Traits::Config>()", "0"}, {}, pairs},
        TemplateMutation{"ColumnsOfTheLeaderTwice", {"rank_in_tile<Config>()", "0"}, {}, pairs}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::tcgen05_mutations
