// Mutations of what only kernels of 8 bits do: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing {
namespace {

constexpr const char* fp8_config =
    "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2 separate_o=true";

// Two heads with scales of their own, several tiles of keys, two panels of columns, a tile that ends with few keys.
// With `given_back`, values have a scale for each column and a mean, and LSE has lost something.
std::string noticed_of_fp8(const TemplateMutation* mutation, int promote_every = 0,
                           ScaleKind descale_per = ScaleKind::head, bool given_back = false) {
  const MutatedTemplates templates(mutation);
  Settings settings = shared_cache_settings();
  settings.templates = templates.folder();
  const Context context(settings);
  AttentionCase problem{.batch = 2, .heads_kv = 2, .seqlen_q = 40, .seqlen_kv = 210, .seed = 5};
  problem.spec.dtype = DType::fp8_e4m3;
  problem.spec.head_dim = 32;
  problem.spec.head_dim_v = 160;
  problem.spec.gqa_ratio = 2;
  problem.spec.descale_per = descale_per;
  problem.spec.v_mean = problem.spec.lse_shift = given_back;
  if (given_back) problem.spec.v_descale_per = ScaleKind::channel;
  AttentionRun run(problem);
  try {
    const std::string config = fmt::format("{} promote_every={}", fp8_config, promote_every);
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
  EXPECT_EQ(noticed_of_fp8(nullptr), "");
  EXPECT_EQ(noticed_of_fp8(nullptr, 2), "");
  EXPECT_EQ(noticed_of_fp8(nullptr, 0, ScaleKind::token), "");
  EXPECT_EQ(noticed_of_fp8(nullptr, 0, ScaleKind::head, true), "");
}

class Fp8MutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(Fp8MutationTest, IsCaught) {
  const bool is_promoted = std::string_view(GetParam().file) == "forward_wgmma/promoted_sums.cuh";
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), is_promoted ? 2 : 0));
}

constexpr const char* transpose = "forward_wgmma/transpose_values.cuh";
constexpr const char* scales = "forward_wgmma/head_scales.cuh";
constexpr const char* sums = "forward_wgmma/promoted_sums.cuh";
constexpr const char* softmax = "steps/softmax.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8, Fp8MutationTest,
    ::testing::Values(
        TemplateMutation{"BytesOfTheOtherColumn", transpose, "even = 0x6420", "even = 0x7531"},
        TemplateMutation{"KeysInAnotherOrder", transpose, "odd = 0x7531", "odd = 0x7351"},
        TemplateMutation{"RowsInTheOrderOfLanes", transpose, "(place >= 4) != (matrix % 2 != 0)",
                         "matrix % 2 != 0"},
        TemplateMutation{
            "KeysOfAnotherStep", transpose, "2 * (step + i) + matrix / 2", "2 * (step + i)", {"race"}},
        TemplateMutation{
            "OneChunkForAllWarps", transpose, "chunk += warps", "chunk += 2 * warps", {"uninitialized"}},
        TemplateMutation{"NoFenceBehindStores",
                         transpose,
                         "    fence_proxy_async_shared();\n",
                         "",
                         {"missing proxy fence"}},
        TemplateMutation{"RowsReleasedBeforeTheyAreRead",
                         transpose,
                         "    rings.v.wait_empty();\n",
                         "    rings.v.wait_empty();\n    rings.v_rows.arrive_empty();\n",
                         {"race", "barrier", "flight"}},
        TemplateMutation{"NoWaitForRoom", transpose, "    rings.v.wait_empty();\n", "", {"race", "flight"}},
        TemplateMutation{"ProbabilitiesOfNeighboursExchanged", "steps/wgmma_products.cuh",
                         "n = 4 * step + i / 2 * 2", "n = 4 * step + (1 - i / 2) * 2"},
        TemplateMutation{"NoEndOfValues",
                         "forward_wgmma/load_keys.cuh",
                         "value_note<Config>(smem, rings.v_rows.stage()), 0)",
                         "value_note<Config>(smem, rings.v_rows.stage()), 1)",
                         {"deadlock", "uninitialized", "race"},
                         {},
                         true},
        TemplateMutation{"ScaleOfAnotherHead", scales, "kv_head = work.head / Config::gqa_ratio",
                         "kv_head = 0"},
        TemplateMutation{"ScaleOfAnotherEntry", scales, "scales[work.batch * strides.batch +", "scales["},
        TemplateMutation{"KeysUnscaled", scales, " * this->read(descale.k, descale.k_strides, work)", ""},
        TemplateMutation{"ValuesUnscaled", scales,
                         "    of_values_ = read(descale_.v, descale_.v_strides, work);\n",
                         "    of_values_ = 1;\n"},
        TemplateMutation{"LseOfRaisedSums", softmax, "(lg2(sum) - raise)", "lg2(sum)"},
        TemplateMutation{"RaisedTwice", softmax, "sizeof(Element) == 1 ? 8.0f : 0.0f",
                         "sizeof(Element) == 1 ? 9.5f : 0.0f"},
        TemplateMutation{"PromotedSumsLost", sums, "      add(sums_, output);\n", ""},
        TemplateMutation{"PromotedSumsTwice", sums, "      output.clear();\n", ""},
        TemplateMutation{"PromotedSumsUnscaled", sums, "    sums_.scale_rows(factors);\n", ""}),
    ::testing::PrintToStringParamName());

// Of kernels whose queries and keys have scales of their own.
class Fp8TokenMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(Fp8TokenMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), 0, ScaleKind::token));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Token, Fp8TokenMutationTest,
    ::testing::Values(TemplateMutation{"ScaleOfAnotherKey", scales,
                                       "minimum(k_begin + i, sequence.length - 1)",
                                       "minimum(i, sequence.length - 1)"},
                      TemplateMutation{"ScaleOfAnotherHeadsKey", scales,
                                       "work.head / Config::gqa_ratio * strides.head", "0 * strides.head"},
                      TemplateMutation{"ScaleOfAnotherQuery", scales,
                                       "of_head[(context.q_begin + query) * strides.seq]",
                                       "of_head[context.q_begin * strides.seq]"},
                      TemplateMutation{"ScalesOfOneStage",
                                       "forward_wgmma/rings.cuh",
                                       "layout.key_scales + stage * Config::tile_kv * 4",
                                       "layout.key_scales + 0 * stage",
                                       {"data race"}},
                      TemplateMutation{"ScalesWithoutArrivals",
                                       "forward_wgmma/rings.cuh",
                                       "Traits::has_key_words || Traits::has_key_scales> k;",
                                       "Traits::has_key_words> k;",
                                       {"data race"}}),
    ::testing::PrintToStringParamName());

// Of kernels whose blocks of queries and keys have scales of their own.
class Fp8BlockMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(Fp8BlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), 0, ScaleKind::block));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Block, Fp8BlockMutationTest,
    ::testing::Values(TemplateMutation{"ScaleOfAnotherBlock", scales,
                                       "minimum(k_begin + i * keys, sequence.length - 1)",
                                       "0 * (k_begin + i)"},
                      TemplateMutation{"MaximaWithoutFactors", "steps/block_factors.cuh",
                                       "largest * of_blocks_[i]", "largest"}),
    ::testing::PrintToStringParamName());

// Of kernels that give back what a quantiser has taken away.
class Fp8ColumnsMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(Fp8ColumnsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), 0, ScaleKind::head, true));
}

constexpr const char* columns = "steps/value_columns.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8Columns, Fp8ColumnsMutationTest,
    ::testing::Values(
        TemplateMutation{"ScaleOfTheNextBlock", columns, "scales_[column]", "scales_[column + 8]"},
        TemplateMutation{"MeanOfAnotherHead", columns, "kv_head = slice - batch * heads_kv", "kv_head = 0"},
        TemplateMutation{"ShiftOfAnotherQuery", "steps/lse_shift.cuh", "of_head[row * strides.seq]",
                         "of_head[0 * row]"}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing
