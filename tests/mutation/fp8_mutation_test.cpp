// Mutations of what only kernels of 8 bits do: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::fp8_mutations {
namespace {

constexpr const char* fp8_config =
    "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2 output=separate promote_every=0 "
    "converter_warps=4";
constexpr const char* promoted_config =
    "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2 output=separate promote_every=2 "
    "converter_warps=2";
constexpr const char* split_config = "family=forward_split_kv row_warps=1 key_warps=2 tile_kv=32 stages=2";
// With products of fp16, which sm_90a has for mma.sync.
constexpr const char* mma_config =
    "family=forward_mma_sync tile_q=32 tile_kv=64 warps=2 stages_k=2 stages_v=2";

// Two heads with scales of their own, several tiles of keys, two panels of columns, a tile that ends with few keys.
// With `given_back`, values have a scale for each column and a mean, and LSE has lost something.
std::string noticed_of_fp8(const TemplateMutation* mutation, const char* config,
                           ScaleKind descale_per = ScaleKind::head, int head_dim_v = 160,
                           bool given_back = false, const Score& score = {}, int seqlen_kv = 210,
                           const Mask& mask = {}, bool with_lse = true) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  AttentionCase problem{.batch = 2, .heads_kv = 2, .seqlen_q = 40, .seqlen_kv = seqlen_kv, .seed = 5};
  problem.with_lse = with_lse;
  problem.spec.dtype = DType::fp8_e4m3;
  problem.spec.head_dim = 32;
  problem.spec.head_dim_v = head_dim_v;
  problem.spec.alignment = head_dim_v % 16 == 0 ? 16 : 8;
  problem.spec.gqa_ratio = 2;
  problem.spec.descale_per = descale_per;
  problem.spec.score = score;
  problem.spec.mask = mask;
  problem.spec.v_mean = problem.spec.lse_shift = given_back;
  if (given_back) problem.spec.v_descale_per = ScaleKind::channel;
  AttentionRun run(problem);
  try {
    const Attention kernel = attention(problem.spec, parse_config(config), context);
    run.poison_outputs();
    kernel(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  const std::string failure = run.check().failure;
  return failure.empty() ? disorder(context, nullptr) : failure;
}

TEST(Fp8, IsRightUnmutated) {
  for (const int subject : reference::some_of<int>({0, 1, 2, 3}, 2)) {
    EXPECT_EQ(noticed_of_fp8(nullptr, subject == 0 ? promoted_config : fp8_config,
                             subject == 1 ? ScaleKind::token : ScaleKind::head, 160, subject == 2),
              "")
        << subject;
  }
}

// ALiBi leaves scores below zero that grow from tile to tile, where a mask lets tiles be visited from the first.
TEST(Fp8, NegativeScoresDoNotHaveTheOrderOfIntegers) {
  const TemplateMutation mutation{"Exceed_NegativeScoresAsIntegers", {" || $ 0", ""}};
  const auto noticed = [](const TemplateMutation* changed) {
    return noticed_of_fp8(changed, fp8_config, ScaleKind::head, 160, false, score::alibi(), 210,
                          mask::document());
  };
  EXPECT_EQ(noticed(nullptr), "");
  expect_caught(mutation, noticed(&mutation));
}

class Fp8MutationTest : public MutationTest {};

TEST_P(Fp8MutationTest, IsCaught) {
  const bool is_promoted = anchor_of(GetParam().name).file == "forward_wgmma/promoted_sums.cuh";
  // So many keys that some tile is there before its consumer asks for it.
  constexpr int seqlen_kv = 330;
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), is_promoted ? promoted_config : fp8_config,
                                           ScaleKind::head, 160, false, {}, seqlen_kv));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8, Fp8MutationTest,
    ::testing::Values(
        TemplateMutation{"TransposedBytes_OfTheOtherColumn", {"0x6420", "0x7531"}},
        TemplateMutation{"TransposedBytes_KeysInAnotherOrder", {"0x7531", "0x7351"}},
        TemplateMutation{"TransposedRows_InTheOrderOfLanes", {"matrix % $,", "2 * place + matrix % 2,"}},
        TemplateMutation{"TransposedRows_OfAnotherStep", {"matrix / 2", "0"}, {"race"}},
        TemplateMutation{"OneChunkForAllWarps", {"* $;", "* 2 * $;"}, {"uninitialized"}},
        TemplateMutation{"NoFenceBehindStores", removed, {"missing proxy fence"}},
        TemplateMutation{"RowsReleasedBeforeTheyAreRead",
                         {"$", "stored.v.consumer_release();\n    $"},
                         {"race", "barrier", "flight"}},
        TemplateMutation{"NoWaitForRoom", removed, {"race", "flight"}},
        TemplateMutation{"ProbabilitiesOfNeighborsExchanged", {"i / 2", "(1 - i / 2)"}},
        TemplateMutation{"NoEndOfValues", {", 0", ", 1"}, {"deadlock", "uninitialized", "race"}, {}, true},
        TemplateMutation{"ScaleOfAnotherHead", {"= $;", "= 0;"}},
        TemplateMutation{"ScaleOfAnotherEntry", {"[$ +", "["}},
        TemplateMutation{"KeysUnscaled", {" * $;", ";"}},
        TemplateMutation{"ValuesUnscaled", {"= $;", "= 1;"}},
        TemplateMutation{"LseOfRaisedSums", {"$ *", "lg2(sum) *"}},
        TemplateMutation{"RaisedTwice", {"8.0f", "9.5f"}},
        TemplateMutation{"KeysTakenUnseen", {"($,", "(true,"}, {"race", "uninitialized"}},
        TemplateMutation{"NextKeysAreTheLastOnes", removed, {"deadlock", "race", "barrier"}},
        TemplateMutation{"PackedBeforeTheProductsEnd", removed, {"flight", "deadlock"}},
        TemplateMutation{"OutputOfEarlierMaxima", removed},
        TemplateMutation{"OutputRescaledAgain", {"[r] $;", "[r] = correction_[r];"}},
        TemplateMutation{"FactorsOfOneTileLost", {"[&] { $ }", "[] {}"}},
        TemplateMutation{"FactorsOfTheLastTileLost", removed},
        TemplateMutation{"HalfOfTheSums", {"+= $;", "+= 0;"}},
        TemplateMutation{"Exceed_MaximaStay", {"!$ || ", ""}}, TemplateMutation{"PromotedSumsLost", removed},
        TemplateMutation{"PromotedSumsTwice", removed}, TemplateMutation{"PromotedSumsUnscaled", removed}),
    ::testing::PrintToStringParamName());

// Kernels that have sums of P by a product with ones, where LSE is not wanted, in three tiles of keys.
constexpr const char* summing_config =
    "family=forward_wgmma tile_q=64 tile_kv=96 stages_q=2 stages_v=2 output=separate converter_warps=2";

std::string noticed_of_sums(const TemplateMutation* mutation) {
  return noticed_of_fp8(mutation, summing_config, ScaleKind::head, 160, false, {}, 210, {}, false);
}

class SumsByProductsMutationTest : public MutationTest {};

UNMUTATED_TEST(SumsByProducts, IsRightUnmutated) { EXPECT_EQ(noticed_of_sums(nullptr), ""); }

TEST_P(SumsByProductsMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_sums(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(Fp8, SumsByProductsMutationTest,
                         ::testing::Values(TemplateMutation{"SumsOfTilesStay", removed},
                                           TemplateMutation{"SumsOfTheLastTileLost", removed},
                                           TemplateMutation{"SumsOfOtherTilesLost", removed},
                                           TemplateMutation{"SumsOfTwoLanes", {"share,", "2 * share,"}},
                                           TemplateMutation{"NoOnes", removed, {"uninitialized"}}),
                         ::testing::PrintToStringParamName());

// Kernels whose queries and keys have scales of their own.
class Fp8TokenMutationTest : public MutationTest {};

TEST_P(Fp8TokenMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), fp8_config, ScaleKind::token));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Token, Fp8TokenMutationTest,
    ::testing::Values(TemplateMutation{"ScaleOfAnotherKey", {"($ i", "(i"}},
                      TemplateMutation{"ScaleOfAnotherHeadsKey", {"+ $ *", "+ 0 *"}},
                      TemplateMutation{"ScaleOfAnotherQuery", {"[$ *", "[context.q_begin *"}},
                      TemplateMutation{"ScalesOfOneStage", {"stage $ 4", "0 * stage"}, {"data race"}},
                      TemplateMutation{"LanesArrive_NotForScales", {" || $;", ";"}, {"data race"}}),
    ::testing::PrintToStringParamName());

// Kernels by mma.sync, whose values have half a step of columns more than whole ones.
class Fp8MmaMutationTest : public MutationTest {};

TEST_P(Fp8MmaMutationTest, IsCaught) {
  const bool is_of_tokens = std::string_view(GetParam().name).find("Token") != std::string_view::npos;
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), mma_config,
                                           is_of_tokens ? ScaleKind::token : ScaleKind::head, 40));
}

class Fp8SplitMutationTest : public MutationTest {};

TEST_P(Fp8SplitMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), split_config, ScaleKind::token, 40));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Split, Fp8SplitMutationTest,
    ::testing::Values(TemplateMutation{"EvenPairsOfFourTwice", {" >> 16", ""}},
                      TemplateMutation{"ScaleOfQuery_Another", {"query /", "split.q.begin /"}},
                      TemplateMutation{"ScalesOfTheFirstKeys", {"+ (first_key $)", "$"}}),
    ::testing::PrintToStringParamName());

UNMUTATED_TEST(Fp8Mma, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_fp8(nullptr, split_config, ScaleKind::token, 40), "");

  for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token})
    EXPECT_EQ(noticed_of_fp8(nullptr, mma_config, kind, 40), "");
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Mma, Fp8MmaMutationTest,
    ::testing::Values(
        TemplateMutation{"UpcastBytes_OfTheOtherColumn", {"0x6420, 0x7531", "0x7531, 0x6420"}},
        TemplateMutation{"UpcastBytes_KeysInAnotherOrder", {"0x6420, 0x7531", "0x6240, 0x7351"}},
        TemplateMutation{"ValuesOfAnotherStep", {"mma_k", "0"}},
        TemplateMutation{"HalvesOfProbabilitiesExchanged", {"* 2 + ", "* 2 + 1 - "}},
        TemplateMutation{"EvenPairsTwice", {"] >> $)", "])"}},
        TemplateMutation{"RawProbabilities", {", Element", ""}},
        TemplateMutation{"NeighborsExchanged", {"(n + 1, 0), kept(n, 1)", "(n, 1), kept(n + 1, 0)"}},
        TemplateMutation{"LanesInTheOrderOfBlocks", {"* 4;", "* 2;"}, {"race", "misaligned"}},
        TemplateMutation{"RowsBehindTheLast", removed, {"race", "out of bounds"}},
        TemplateMutation{"ColumnsBehindTheLast", removed, {"race", "out of bounds"}},
        TemplateMutation{"NoScaleOfValues", removed},
        TemplateMutation{"TokensOfTheFirstTile", {"key", "place"}},
        TemplateMutation{"TokensOfOneStage", {"stage $ 4", "0 * stage"}, {"data race", "flight"}},
        TemplateMutation{"TokensUnscaled", removed}),
    ::testing::PrintToStringParamName());

// Kernels whose blocks of queries and keys have scales of their own.
class Fp8BlockMutationTest : public MutationTest {};

TEST_P(Fp8BlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), fp8_config, ScaleKind::block));
}

INSTANTIATE_TEST_SUITE_P(Fp8Block, Fp8BlockMutationTest,
                         ::testing::Values(TemplateMutation{"ScaleOfAnotherBlock",
                                                            {"= $;", "= 0 * (k_begin + i);"}},
                                           TemplateMutation{"MaximaWithoutFactors", {" * $[i]", ""}}),
                         ::testing::PrintToStringParamName());

// Scales of blocks by mma.sync: two blocks in a tile of keys, and, where keys are split, a scale for each
// key.
class Fp8MmaBlockMutationTest : public MutationTest {};

constexpr const char* many_blocks =
    "family=forward_mma_sync tile_q=32 tile_kv=128 warps=2 stages_k=1 stages_v=1";

const char* config_of_blocks(const TemplateMutation& mutation) {
  const std::string& file = anchor_of(mutation.name).file;
  const bool splits = file.starts_with("split_keys/") || file == "problem/paged_kv.cuh";
  return splits ? split_config : many_blocks;
}

TEST_P(Fp8MmaBlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), config_of_blocks(GetParam()), ScaleKind::block, 40));
}

UNMUTATED_TEST(Fp8MmaBlock, IsRightUnmutated) {
  for (const int subject : reference::some_of<int>({0, 1, 2, 3}, 2)) {
    const char* const config = subject / 2 == subject % 2 ? many_blocks : split_config;
    const bool given_back = subject >= 2;
    EXPECT_EQ(
        noticed_of_fp8(nullptr, config, given_back ? ScaleKind::head : ScaleKind::block, 40, given_back), "")
        << config << ", " << given_back;
  }
}

INSTANTIATE_TEST_SUITE_P(Fp8MmaBlock, Fp8MmaBlockMutationTest,
                         ::testing::Values(TemplateMutation{"OneScaleATile", {" + $;", ";"}},
                                           TemplateMutation{"SoftmaxWithoutFactors", {"($)", "(false)"}},
                                           TemplateMutation{"TokensForBlocks", {"/ $ *", "% 2 *"}},
                                           TemplateMutation{"ScaleOfQuery_AnotherHead",
                                                            {", place$,", ", 0,"}}),
                         ::testing::PrintToStringParamName());

// Kernels that restore what a quantizer took away.
class Fp8ColumnsMutationTest : public MutationTest {};

TEST_P(Fp8ColumnsMutationTest, IsCaught) {
  const std::string_view file = anchor_of(GetParam().name).file;
  const char* const config = file.find("split_k") != std::string_view::npos            ? split_config
                             : file.find("forward_mma_sync") != std::string_view::npos ? mma_config
                                                                                       : fp8_config;
  expect_caught(GetParam(),
                noticed_of_fp8(&GetParam(), config, ScaleKind::head, config == fp8_config ? 160 : 40, true));
}

INSTANTIATE_TEST_SUITE_P(Fp8Columns, Fp8ColumnsMutationTest,
                         ::testing::Values(TemplateMutation{"ScaleOfTheNextBlock", {"[$]", "[$ + 8]"}},
                                           TemplateMutation{"MeanOfAnotherHead", {"slice - $;", "0;"}},
                                           TemplateMutation{"ShiftOfAnotherQuery", {"[row $]", "[0 * row]"}},
                                           TemplateMutation{"OddColumnsUnfinished", removed},
                                           TemplateMutation{"LseUnshifted", {"$<", "if (false) $<"}},
                                           TemplateMutation{"ColumnsOfTheFirstHead", {"+ info$ *", "+ 0 *"}},
                                           TemplateMutation{"NoMeanOfAColumn", removed},
                                           TemplateMutation{"ShiftOfScaledExponents", {"($,", "(1,"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_mutations
