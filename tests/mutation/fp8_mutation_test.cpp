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
                           bool given_back = false, const Score& score = {}, bool v_along_sequence = false,
                           int seqlen_kv = 210) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  AttentionCase problem{.batch = 2, .heads_kv = 2, .seqlen_q = 40, .seqlen_kv = seqlen_kv, .seed = 5};
  problem.spec.dtype = DType::fp8_e4m3;
  problem.spec.head_dim = 32;
  problem.spec.head_dim_v = head_dim_v;
  problem.spec.alignment = head_dim_v % 16 == 0 ? 16 : 8;
  problem.spec.gqa_ratio = 2;
  problem.spec.descale_per = descale_per;
  problem.spec.score = score;
  problem.spec.v_along_sequence = v_along_sequence;
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

// ALiBi leaves scores below zero that grow from tile to tile.
TEST(Fp8, NegativeScoresDoNotHaveTheOrderOfIntegers) {
  const TemplateMutation mutation{"NegativeScoresAsIntegers", "steps/softmax.cuh", " || limits[r] < 0;", ";"};
  const auto noticed = [](const TemplateMutation* changed) {
    return noticed_of_fp8(changed, fp8_config, ScaleKind::head, 160, false, score::alibi());
  };
  EXPECT_EQ(noticed(nullptr), "");
  expect_caught(mutation, noticed(&mutation));
}

class Fp8MutationTest : public MutationTest {};

TEST_P(Fp8MutationTest, IsCaught) {
  const bool is_promoted = std::string_view(GetParam().file) == "forward_wgmma/promoted_sums.cuh";
  // So many keys that some tile is there before its consumer asks for it.
  constexpr int seqlen_kv = 330;
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), is_promoted ? promoted_config : fp8_config,
                                           ScaleKind::head, 160, false, {}, false, seqlen_kv));
}

constexpr const char* transpose = "forward_wgmma/transpose_values.cuh";
constexpr const char* scales = "steps/head_scales.cuh";
constexpr const char* key_scales = "forward_wgmma/key_scales.cuh";
constexpr const char* sums = "forward_wgmma/promoted_sums.cuh";
constexpr const char* softmax = "steps/softmax.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8, Fp8MutationTest,
    ::testing::Values(
        TemplateMutation{"BytesOfTheOtherColumn", transpose, "even = 0x6420", "even = 0x7531"},
        TemplateMutation{"KeysInAnotherOrder", transpose, "odd = 0x7531", "odd = 0x7351"},
        TemplateMutation{"RowsInTheOrderOfLanes", transpose, "matrix % 2 * 8 + place",
                         "2 * place + matrix % 2"},
        TemplateMutation{"KeysOfAnotherStep", transpose, "place, matrix / 2", "place, 0", {"race"}},
        TemplateMutation{"OneChunkForAllWarps",
                         transpose,
                         "step / key_steps * warps",
                         "step / key_steps * 2 * warps",
                         {"uninitialized"}},
        TemplateMutation{"NoFenceBehindStores",
                         transpose,
                         "    fence_proxy_async_shared();\n",
                         "",
                         {"missing proxy fence"}},
        TemplateMutation{"RowsReleasedBeforeTheyAreRead",
                         transpose,
                         "    rings.v.wait_empty();\n",
                         "    rings.v.wait_empty();\n    stored.v.arrive_empty();\n",
                         {"race", "barrier", "flight"}},
        TemplateMutation{"NoWaitForRoom", transpose, "    rings.v.wait_empty();\n", "", {"race", "flight"}},
        TemplateMutation{"ProbabilitiesOfNeighboursExchanged", "steps/e4m3_weights.cuh",
                         "n = 4 * step + i / 2 * 2", "n = 4 * step + (1 - i / 2) * 2"},
        TemplateMutation{"NoEndOfValues",
                         "forward_wgmma/load_keys.cuh",
                         "value_note<Config>(smem, rings.v.stage()), 0)",
                         "value_note<Config>(smem, rings.v.stage()), 1)",
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
        TemplateMutation{"KeysTakenUnseen",
                         "forward_wgmma/consumer_keys.cuh",
                         "load_key_note_flags_if(is_full, note",
                         "load_key_note_flags_if(true, note",
                         {"race", "uninitialized"}},
        TemplateMutation{"NextKeysAreTheLastOnes",
                         "forward_wgmma/consumer_keys.cuh",
                         "      flags_ = next_flags_;\n",
                         "",
                         {"deadlock", "race", "barrier"}},
        TemplateMutation{
            "PackedBeforeTheProductsEnd",
            "forward_wgmma/consumer.cuh",
            "            finish_output<passes_late>();\n            if constexpr (Traits::sums_by_products)",
            "            if constexpr (Traits::sums_by_products)",
            {"flight", "deadlock"}},
        TemplateMutation{"OutputOfEarlierMaxima", "forward_wgmma/consumer.cuh",
                         "    if (!(correction_[0] < 0)) output_.scale_rows(correction_);\n", ""},
        TemplateMutation{"OutputRescaledAgain", "forward_wgmma/consumer.cuh",
                         "correction_[r] = no_correction;", "correction_[r] = correction_[r];"},
        TemplateMutation{"FactorsOfOneTileLost", "forward_wgmma/consumer.cuh",
                         "start_scores_and_output(false, [&] { rescale_output(); });",
                         "start_scores_and_output(false, [] {});"},
        TemplateMutation{"FactorsOfTheLastTileLost", "forward_wgmma/consumer.cuh",
                         "      rescale_output();  // not under", "      // not under"},
        TemplateMutation{"HalfOfTheSums", "steps/exponentiate_by_steps.cuh", "row_sum[r] += sums[r];",
                         "row_sum[r] += 0;"},
        TemplateMutation{"MaximaStay", softmax, "may |= !(of_lane[r] <= limits[r]) || limits[r] < 0;",
                         "may |= limits[r] < 0;"},
        TemplateMutation{"PromotedSumsLost", sums, "      add(sums_, output);\n", ""},
        TemplateMutation{"PromotedSumsTwice", sums, "      output.clear();\n", ""},
        TemplateMutation{"PromotedSumsUnscaled", sums, "    sums_.scale_rows(factors);\n", ""}),
    ::testing::PrintToStringParamName());

// Of kernels that have sums of P by a product with ones, in three tiles of keys.
constexpr const char* summing_config =
    "family=forward_wgmma tile_q=64 tile_kv=96 stages_q=2 stages_v=2 output=separate converter_warps=2";

class SumsByProductsMutationTest : public MutationTest {};

TEST(SumsByProducts, IsRightUnmutated) { EXPECT_EQ(noticed_of_fp8(nullptr, summing_config), ""); }

TEST_P(SumsByProductsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), summing_config));
}

constexpr const char* summing_consumer = "forward_wgmma/consumer.cuh";
constexpr const char* summing_output = "forward_wgmma/consumer_output.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8, SumsByProductsMutationTest,
    ::testing::Values(
        TemplateMutation{"SumsOfTilesStay", summing_output,
                         "    clear_tile_sums();\n    wgmma_hold(tile_sums_);",
                         "    wgmma_hold(tile_sums_);"},
        TemplateMutation{"SumsOfTheLastTileLost", summing_consumer,
                         "    if constexpr (Traits::sums_by_products) output_.add_last_sums();\n", ""},
        TemplateMutation{
            "SumsOfOtherTilesLost", summing_consumer,
            "            if constexpr (Traits::sums_by_products) output_.add_sums(scores_.sums());\n", ""},
        TemplateMutation{"SumsOfTwoLanes", summing_output, "0.25f, sums[r]", "0.5f, sums[r]"},
        TemplateMutation{"NoOnes",
                         "forward_wgmma/kernel.cuh",
                         "  if constexpr (Traits::sums_by_products) leave_ones<Config>(smem);\n",
                         "",
                         {"uninitialized"}},
        TemplateMutation{"ExactSumsUnscaled", "forward_wgmma/consumer_scores.cuh",
                         "exact_sums_[r] *= correction[r]", "exact_sums_[r] *= 1"}),
    ::testing::PrintToStringParamName());

// Of kernels whose values lie along the sequence: panels of 64 keys, of which the last tile fills none.
class AlongSequenceMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

std::string noticed_along_sequence(const TemplateMutation* mutation) {
  return noticed_of_fp8(mutation, "family=forward_wgmma tile_q=64 tile_kv=192 stages_v=2 output=separate",
                        ScaleKind::head, 160, false, {}, true);
}

TEST(AlongSequence, IsRightUnmutated) { EXPECT_EQ(noticed_along_sequence(nullptr), ""); }

TEST_P(AlongSequenceMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_along_sequence(&GetParam()));
}

constexpr const char* weights = "steps/e4m3_weights.cuh";
constexpr const char* boxes = "forward_wgmma/tile_boxes.cuh";

INSTANTIATE_TEST_SUITE_P(
    AlongSequence, AlongSequenceMutationTest,
    ::testing::Values(
        TemplateMutation{"ProbabilitiesInTheOrderOfLanes", "steps/wgmma_products.cuh",
                         "if constexpr (values_along_sequence<Config>) {", "if constexpr (false) {"},
        TemplateMutation{"PairsOfOtherLanes", weights, "first_source ^ 1", "first_source ^ 2"},
        TemplateMutation{"PairsOfTheOtherBlock", weights, "is_odd ? odd_block : even_block",
                         "is_odd ? even_block : even_block"},
        TemplateMutation{"PairsExchangedInUpperLanes", weights, "is_upper ? 0x1054 : 0x5410", "0x5410"},
        TemplateMutation{"HighPairsExchangedInUpperLanes", weights, "is_upper ? 0x3276 : 0x7632", "0x7632"},
        TemplateMutation{"ValuesOfTheFirstTile", boxes, "first.seq + panel * Tile::columns",
                         "panel * Tile::columns"},
        TemplateMutation{"OnePanelForAll", boxes, "first.seq + panel * Tile::columns", "first.seq"}),
    ::testing::PrintToStringParamName());

// Of those of sequences that differ in length: pages of 64 keys, read by panels, ends at several rests by 16.
class AlongLengthsMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

// With `begins_elsewhere` the second sequence of ragged ones begins where TMA cannot, and so has no keys.
std::string noticed_along_lengths(const TemplateMutation* mutation, bool begins_elsewhere = false) {
  for (const SequenceKind keys : {SequenceKind::ragged, SequenceKind::paged}) {
    const MutatedTemplates templates(mutation);
    const Context context(templates.settings());
    AttentionCase problem{.batch = 3, .heads_kv = 2, .seqlen_q = 20, .seqlen_kv = 110, .seed = 5};
    problem.spec.dtype = DType::fp8_e4m3;
    problem.spec.head_dim = problem.spec.head_dim_v = 32;
    problem.spec.sequences_kv = keys;
    problem.spec.page_size = keys == SequenceKind::paged ? 64 : 0;
    problem.spec.v_along_sequence = true;
    problem.used_keys = {110, begins_elsewhere ? 0 : 33, 77};
    if (begins_elsewhere) problem.spare_rows = 40;
    AttentionRun run(problem);
    AttentionArguments arguments = run.arguments();
    const DeviceBuffer boundaries(0, 4 * sizeof(int)), used(0, 3 * sizeof(int));
    if (begins_elsewhere && keys == SequenceKind::ragged) {
      const int places[] = {0, 168, 208, 325}, lengths[] = {110, 33, 77};
      boundaries.upload(places, sizeof places);
      used.upload(lengths, sizeof lengths);
      arguments.cu_seqlens_k = TensorView::dense(boundaries.data(), DType::int32, {4});
      arguments.seqused_k = TensorView::dense(used.data(), DType::int32, {3});
    }
    try {
      const Attention kernel = attention(
          problem.spec, parse_config("family=forward_wgmma tile_q=64 tile_kv=96 stages_v=2 output=separate"),
          context);
      run.poison_outputs();
      kernel(arguments);
    } catch (const Error& error) {
      return fmt::format("{}: {}", to_string(error.code()), error.what());
    }
    if (std::string failure = run.check().failure; !failure.empty()) return failure;
    if (std::string races = disorder(context, nullptr); !races.empty()) return races;
  }
  return "";
}

TEST(AlongLengths, IsRightUnmutated) {
  for (const bool begins_elsewhere : {false, true})
    EXPECT_EQ(noticed_along_lengths(nullptr, begins_elsewhere), "") << begins_elsewhere;
}

TEST_P(AlongLengthsMutationTest, IsCaught) {
  const bool is_of_begins = std::string_view(GetParam().name).find("Elsewhere") != std::string_view::npos;
  expect_caught(GetParam(), noticed_along_lengths(&GetParam(), is_of_begins));
}

constexpr const char* column_boxes = "tiles/bounded_columns.cuh";

INSTANTIATE_TEST_SUITE_P(
    AlongLengths, AlongLengthsMutationTest,
    ::testing::Values(
        TemplateMutation{
            "BoxesThatDoNotEnd", "tiles/bounded_copy.cuh",
            "  if (box.missing == 0) {\n    cp_async_bulk_tensor_load(panel, map.whole, full, box.first, 0",
            "  if (true) {\n    cp_async_bulk_tensor_load(panel, map.whole, full, box.first, 0"},
        TemplateMutation{"OneRestForAll", "tiles/bounded_copy.cuh",
                         "place.rest == 0 ? map.part : map.more[place.rest - 1]", "map.more[14]"},
        TemplateMutation{"RestsWithoutAKey",
                         column_boxes,
                         ".key = before + rest - there",
                         ".key = before - there",
                         {"illegal instruction"}},
        TemplateMutation{"ValuesOfTheFirstPanel", boxes, "lane_id() * rows, row = keys.begin",
                         "0, row = keys.begin"},
        TemplateMutation{"ValuesInBoxesOfKeys", boxes, "lane_box<Config, Traits::v_panel_columns,",
                         "lane_box<Config, Traits::box_rows,"},
        TemplateMutation{"BeginsElsewhere",
                         "problem/variable_sequences.cuh",
                         "        rows.length = 0;\n",
                         "",
                         {"illegal instruction"}}),
    ::testing::PrintToStringParamName());

// Of kernels whose queries and keys have scales of their own.
class Fp8TokenMutationTest : public MutationTest {};

TEST_P(Fp8TokenMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), fp8_config, ScaleKind::token));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Token, Fp8TokenMutationTest,
    ::testing::Values(
        TemplateMutation{"ScaleOfAnotherKey", key_scales, "minimum(k_begin + i, sequence.length - 1)",
                         "minimum(i, sequence.length - 1)"},
        TemplateMutation{"ScaleOfAnotherHeadsKey", key_scales, "work.head / Config::gqa_ratio * strides.head",
                         "0 * strides.head"},
        TemplateMutation{"ScaleOfAnotherQuery", "steps/token_scales.cuh",
                         "of_head[(context.q_begin + minimum(row, context.seqlen_q - 1)) *",
                         "of_head[context.q_begin *"},
        TemplateMutation{"ScalesOfOneStage",
                         "forward_wgmma/rings.cuh",
                         "layout.key_scales + stage * Config::tile_kv * 4",
                         "layout.key_scales + 0 * stage",
                         {"data race"}},
        TemplateMutation{"ScalesWithoutArrivals",
                         "forward_wgmma/rings.cuh",
                         "KernelTraits<Config>::has_key_words || KernelTraits<Config>::has_key_scales;",
                         "KernelTraits<Config>::has_key_words;",
                         {"data race"}}),
    ::testing::PrintToStringParamName());

// Of kernels by mma.sync, whose values have half a step of columns more than whole ones.
class Fp8MmaMutationTest : public MutationTest {};

constexpr const char* mma_scales = "forward_mma_sync/key_scales.cuh";

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
    ::testing::Values(TemplateMutation{"EvenPairsTwice", "split_keys/kv_products.cuh",
                                       "widen_fp8<fp16, Stored>(four >> 16)",
                                       "widen_fp8<fp16, Stored>(four)"},
                      TemplateMutation{"ScaleOfAnotherQuery", "split_keys/kv_scales.cuh",
                                       "(part.q_begin + place.query) /", "part.q_begin /"},
                      TemplateMutation{"ScalesOfTheFirstKeys", "split_keys/kv_scales.cuh",
                                       "(first_key + Layout::lane_column(lane_id())) * 4",
                                       "Layout::lane_column(lane_id()) * 4"}),
    ::testing::PrintToStringParamName());

TEST(Fp8Mma, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_fp8(nullptr, split_config, ScaleKind::token, 40), "");

  for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token})
    EXPECT_EQ(noticed_of_fp8(nullptr, mma_config, kind, 40), "");
}

constexpr const char* products = "steps/mma_sync_products.cuh";
constexpr const char* output = "forward_mma_sync/direct_output.cuh";
constexpr const char* kernel = "forward_mma_sync/kernel.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8Mma, Fp8MmaMutationTest,
    ::testing::Values(
        TemplateMutation{"BytesOfTheOtherColumn", products, "{0x6420, 0x7531}", "{0x7531, 0x6420}"},
        TemplateMutation{"KeysInAnotherOrder", products, "{0x6420, 0x7531}", "{0x6240, 0x7351}"},
        TemplateMutation{"ValuesOfAnotherStep", products,
                         "ldmatrix_x4_trans(pairs, VTile::advance(address, mma_k * step, chunk))",
                         "ldmatrix_x4_trans(pairs, VTile::advance(address, 0 * step, chunk))"},
        TemplateMutation{"HalvesOfProbabilitiesExchanged", products, "i / 2 * 2 + half",
                         "i / 2 * 2 + 1 - half"},
        TemplateMutation{"EvenPairsTwice", "ptx/mma.cuh", "widen_fp8<fp16, A>(a[i] >> 16 * odd)",
                         "widen_fp8<fp16, A>(a[i])"},
        TemplateMutation{"RawProbabilities", kernel,
                         "online_softmax<Config::rescale, Element>(scores, output, state, scale_log2);",
                         "online_softmax<Config::rescale>(scores, output, state, scale_log2);"},
        TemplateMutation{"NeighboursExchanged", output, "kept(n + 1, 0), kept(n, 1)",
                         "kept(n, 1), kept(n + 1, 0)"},
        TemplateMutation{"LanesInTheOrderOfBlocks",
                         "tiles/accumulator.cuh",
                         "return thread % 4 * 4; }",
                         "return thread % 4 * 2; }",
                         {"race", "misaligned"}},
        TemplateMutation{
            "RowsBehindTheLast", output, "    if (row >= row_end) return;\n", "", {"race", "out of bounds"}},
        TemplateMutation{"ColumnsBehindTheLast",
                         output,
                         "      if (first_column + column >= Config::head_dim_v) break;\n",
                         "",
                         {"race", "out of bounds"}},
        TemplateMutation{"NoScaleOfValues", "forward_mma_sync/epilogue.cuh",
                         "  scales.scale_output(output);\n", ""},
        TemplateMutation{"TokensOfTheFirstTile", mma_scales, "of_head_ + key /", "of_head_ + place /"},
        TemplateMutation{"TokensOfOneStage",
                         kernel,
                         "layout.key_scales + stage * Config::tile_kv * 4",
                         "layout.key_scales + 0 * stage",
                         {"data race", "flight"}},
        TemplateMutation{"TokensUnscaled", kernel, "    scales.scale_scores(scores, key_scales(stage_k));\n",
                         ""}),
    ::testing::PrintToStringParamName());

// Of kernels whose blocks of queries and keys have scales of their own.
class Fp8BlockMutationTest : public MutationTest {};

TEST_P(Fp8BlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), fp8_config, ScaleKind::block));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Block, Fp8BlockMutationTest,
    ::testing::Values(TemplateMutation{"ScaleOfAnotherBlock", key_scales,
                                       "minimum(k_begin + i * keys, sequence.length - 1)",
                                       "0 * (k_begin + i)"},
                      TemplateMutation{"MaximaWithoutFactors", "steps/block_factors.cuh",
                                       "largest * of_blocks_[i]", "largest"}),
    ::testing::PrintToStringParamName());

// The same by mma.sync: two blocks in a tile of keys, and, where keys are split, a scale for each key.
class Fp8MmaBlockMutationTest : public MutationTest {};

constexpr const char* many_blocks =
    "family=forward_mma_sync tile_q=32 tile_kv=128 warps=2 stages_k=1 stages_v=1";

const char* config_of_blocks(const TemplateMutation& mutation) {
  return std::string_view(mutation.file).find("split_k") != std::string_view::npos ? split_config
                                                                                   : many_blocks;
}

TEST_P(Fp8MmaBlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_fp8(&GetParam(), config_of_blocks(GetParam()), ScaleKind::block, 40));
}

TEST(Fp8MmaBlock, IsRightUnmutated) {
  for (const int subject : reference::some_of<int>({0, 1, 2, 3}, 2)) {
    const char* const config = subject / 2 == subject % 2 ? many_blocks : split_config;
    const bool given_back = subject >= 2;
    EXPECT_EQ(
        noticed_of_fp8(nullptr, config, given_back ? ScaleKind::head : ScaleKind::block, 40, given_back), "")
        << config << ", " << given_back;
  }
}

INSTANTIATE_TEST_SUITE_P(Fp8MmaBlock, Fp8MmaBlockMutationTest,
                         ::testing::Values(TemplateMutation{"OneScaleATile", mma_scales,
                                                            "first_key + place * keys;", "first_key;"},
                                           TemplateMutation{"SoftmaxWithoutFactors", kernel,
                                                            "if constexpr (has_block_factors<Config>) {",
                                                            "if constexpr (false) {"},
                                           TemplateMutation{
                                               "TokensForBlocks", "split_keys/kv_rows.cuh",
                                               "(place + row) / rows_together * strides.seq : nullptr",
                                               "(place + row) % 2 * strides.seq : nullptr"},
                                           TemplateMutation{"BlockOfAnotherHead", "split_keys/kv_scales.cuh",
                                                            "place.head, (part.q_begin", "0, (part.q_begin"}),
                         ::testing::PrintToStringParamName());

// Of kernels that give back what a quantiser has taken away.
class Fp8ColumnsMutationTest : public MutationTest {};

TEST_P(Fp8ColumnsMutationTest, IsCaught) {
  const std::string_view file = GetParam().file;
  const char* const config = file.find("split_k") != std::string_view::npos            ? split_config
                             : file.find("forward_mma_sync") != std::string_view::npos ? mma_config
                                                                                       : fp8_config;
  expect_caught(GetParam(),
                noticed_of_fp8(&GetParam(), config, ScaleKind::head, config == fp8_config ? 160 : 40, true));
}

constexpr const char* columns = "steps/value_columns.cuh";

INSTANTIATE_TEST_SUITE_P(
    Fp8Columns, Fp8ColumnsMutationTest,
    ::testing::Values(
        TemplateMutation{"ScaleOfTheNextBlock", columns, "scales_[column]", "scales_[column + 8]"},
        TemplateMutation{"MeanOfAnotherHead", columns, "kv_head = slice - batch * heads_kv", "kv_head = 0"},
        TemplateMutation{"ShiftOfAnotherQuery", "steps/lse_shift.cuh", "of_head[row * strides.seq]",
                         "of_head[0 * row]"},
        TemplateMutation{"OddColumnsUnfinished", output, "      columns.finish(output, r, n + 1);\n", ""},
        TemplateMutation{"LseUnshifted", "forward_mma_sync/epilogue.cuh",
                         "    add_lse_shift<Config, typename Traits::Output>(",
                         "    if (false) add_lse_shift<Config, typename Traits::Output>("},
        TemplateMutation{"ColumnsOfTheFirstHead", "split_keys/row_end.cuh", "note.kv_head * strides.head",
                         "0 * strides.head"},
        TemplateMutation{"NoMeanOfAColumn", "split_keys/row_end.cuh", "  finish(values.w, 3);\n", ""},
        TemplateMutation{"ShiftOfScaledExponents", "split_keys/row_end.cuh",
                         "__fmaf_rn(params.softmax_scale, shift", "__fmaf_rn(1, shift"}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_mutations
