// Mutations of scores of keys and of the choice from scores: each must be noticed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <jit/score_blocks.h>
#include <jit/score_keys.h>
#include <jit/top_k.h>

#include "tests/mutation/template_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::selection_mutations {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int poison = -77;

// A row of which `k` columns are chosen.
struct Choice {
  int columns;
  int k;
  double (*score)(int column);
  int page_size = 0;
};

std::vector<int> chosen(const Choice& choice) {
  std::vector<int> order;
  for (int i = 0; i < choice.columns; ++i)
    if (choice.score(i) != -infinity) order.push_back(i);
  const auto rank = [&](int i) { return std::isnan(choice.score(i)) ? -infinity : choice.score(i); };
  std::ranges::stable_sort(order, [&](int i, int j) { return rank(i) > rank(j); });
  order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(choice.k)));
  std::ranges::sort(order);
  return order;
}

std::string noticed_of_choice(const TemplateMutation* mutation, const Choice& choice) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const int pages = choice.page_size == 0 ? 1 : choice.columns / choice.page_size - 1;
  DeviceTensor scores(DType::fp32, {1, 1, choice.columns}), indices(DType::int32, {1, 1, choice.k}),
      counts(DType::int32, {1, 1}), table(DType::int32, {1, pages + 1});
  scores.fill([&](std::int64_t i) { return choice.score(static_cast<int>(i)); });
  indices.fill([](std::int64_t) { return poison; });
  counts.fill([](std::int64_t) { return poison; });
  table.fill([](std::int64_t page) { return static_cast<double>(page); });
  for (const DeviceTensor* tensor : {&scores, &indices, &counts, &table}) tensor->upload();
  TopKArguments arguments{.scores = scores.view(), .indices = indices.view(), .counts = counts.view()};
  if (choice.page_size != 0) {
    arguments.page_table = table.view();
    arguments.page_table.shape[1] = pages;  // of the columns but for the last ones
  }
  try {
    top_k({.k = choice.k, .page_size = choice.page_size}, context)(arguments);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  indices.download();
  counts.download();
  const std::vector<int> wanted = chosen(choice);
  if (const double count = counts.get({0, 0}); count != static_cast<double>(wanted.size()))
    return fmt::format("{} columns are chosen, not {}", count, wanted.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(choice.k); ++i) {
    int index = i < wanted.size() ? wanted[i] : -1;
    if (choice.page_size != 0 && index >= pages * choice.page_size) index = -1;
    if (const double got = indices.get({0, 0, static_cast<std::int64_t>(i)}); got != index)
      return fmt::format("place {} has column {}, not {}", i, got, index);
  }
  return "";
}

// Several items for each block, and more than a round of the rings.
std::string noticed_of_scores(const TemplateMutation* mutation, bool has_scales) {
  constexpr int tokens = 270, keys = 1100, heads = 128, head_dim = 64;
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  DeviceTensor q(DType::bf16, {tokens, heads, head_dim}), k(DType::bf16, {keys, head_dim}),
      weights(DType::fp32, {tokens, heads}), k_scale(DType::fp32, {keys}),
      scores(DType::fp32, {tokens, keys}), ends(DType::int32, {tokens});
  // Rows of which one element is not 0.
  const auto of_query = [](std::int64_t token, std::int64_t head) {
    return static_cast<double>((token * 3 + head) % 7) - 3;
  };
  const auto of_key = [](std::int64_t key) { return static_cast<double>(key % 11) - 5; };
  const auto weight = [](std::int64_t token, std::int64_t head) {
    return static_cast<double>((token + head * 5) % 9) - 4;
  };
  const auto end = [](std::int64_t token) { return 1030 + token * 5 % 70; };
  q.fill([&](std::int64_t i) {
    return i % head_dim == 3 ? of_query(i / head_dim / heads, i / head_dim % heads) : 0;
  });
  k.fill([&](std::int64_t i) { return i % head_dim == 3 ? of_key(i / head_dim) : 0; });
  weights.fill([&](std::int64_t i) { return weight(i / heads, i % heads); });
  k_scale.fill([](std::int64_t key) { return key % 5 + 1; });
  ends.fill([&](std::int64_t token) { return static_cast<double>(end(token)); });
  scores.fill([](std::int64_t) { return poison; });
  for (const DeviceTensor* tensor : {&q, &k, &weights, &k_scale, &ends, &scores}) tensor->upload();
  try {
    score_keys({.dtype = DType::bf16, .heads = heads, .head_dim = head_dim, .k_scale = has_scales},
               context)({.q = q.view(),
                         .k = k.view(),
                         .k_scale = has_scales ? k_scale.view() : TensorView{},
                         .weights = weights.view(),
                         .ends = ends.view(),
                         .scores = scores.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  scores.download();
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t key = 0; key < keys; ++key) {
      double wanted = poison;
      if (key < end(token)) {
        wanted = 0;
        for (int head = 0; head < heads; ++head)
          wanted += weight(token, head) * std::max(0.0, of_query(token, head) * of_key(key));
        if (has_scales) wanted *= static_cast<double>(key % 5 + 1);
      }
      if (const double got = scores.get({token, key}); got != wanted)
        return fmt::format("key {} of token {} has {}, not {}", key, token, got, wanted);
    }
  }
  return "";
}

// Two sequences, more work than thread blocks, and rings that go round.
std::string noticed_of_blocks(const TemplateMutation* mutation, bool sums_heads) {
  constexpr int heads = 20, head_dim = 256, block_size = 64, blocks = 11, behind = 3;
  const std::vector<int> queries = {500, 150}, keys = {630, 150};
  const int total_q = 650 + behind, total_k = 780;
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  DeviceTensor q(DType::bf16, {total_q, heads, head_dim}), k(DType::bf16, {total_k, 1, head_dim}),
      scores(DType::fp32, {total_q, sums_heads ? 1 : heads, blocks}), lse(DType::fp32, {heads, total_q}),
      cu_q(DType::int32, {3}), cu_k(DType::int32, {3});
  const auto of_query = [](std::int64_t row, std::int64_t head) {
    return static_cast<double>((row * 3 + head) % 7) - 3;
  };
  const auto of_key = [](std::int64_t row) { return static_cast<double>(row % 61) - 30; };
  q.fill([&](std::int64_t i) {
    return i % head_dim == 3 ? of_query(i / head_dim / heads, i / head_dim % heads) : 0;
  });
  k.fill([&](std::int64_t i) { return i % head_dim == 3 ? of_key(i / head_dim) : 0; });
  cu_q.fill([&](std::int64_t i) { return i == 0 ? 0 : i == 1 ? queries[0] : total_q - behind; });
  cu_k.fill([&](std::int64_t i) { return i == 0 ? 0 : i == 1 ? keys[0] : total_k; });
  scores.fill([](std::int64_t) { return poison; });
  lse.fill([](std::int64_t) { return 0; });
  for (const DeviceTensor* tensor : {&q, &k, &scores, &lse, &cu_q, &cu_k}) tensor->upload();
  const AttentionSpec attention{.head_dim = head_dim,
                                .gqa_ratio = heads,
                                .sequences_q = SequenceKind::varlen,
                                .sequences_kv = SequenceKind::varlen,
                                .mask = mask::causal(),
                                .softmax_scale = sums_heads ? 1.0F / 16 : 1.0F};
  const ScoreBlocksSpec spec{.attention = attention,
                             .block_size = block_size,
                             .reduction = sums_heads ? BlockReduction::probability : BlockReduction::max};
  try {
    score_blocks(spec, context)({.q = q.view(),
                                 .k = k.view(),
                                 .lse = sums_heads ? lse.view() : TensorView{},
                                 .scores = scores.view(),
                                 .cu_seqlens_q = cu_q.view(),
                                 .cu_seqlens_k = cu_k.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  scores.download();
  for (std::int64_t row = 0; row < total_q; ++row) {
    const bool is_second = row >= queries[0], is_behind = row >= total_q - behind;
    const std::int64_t first = is_second ? keys[0] : 0, length = keys[is_second ? 1 : 0];
    const std::int64_t last = row - (is_second ? queries[0] : 0) + length - queries[is_second ? 1 : 0];
    for (int head = 0; head < (sums_heads ? 1 : heads); ++head) {
      for (int block = 0; block < blocks; ++block) {
        double wanted = is_behind ? poison : sums_heads ? 0 : -infinity;
        for (std::int64_t j = block * block_size;
             !is_behind && j < (block + 1) * block_size && j <= last && j < length; ++j) {
          if (!sums_heads) wanted = std::max(wanted, of_query(row, head) * of_key(first + j));
          for (int own = 0; sums_heads && own < heads; ++own)
            wanted += std::exp(of_query(row, own) * of_key(first + j) / 16);
        }
        const double allowed = sums_heads ? 1e-4 * std::abs(wanted) : 0;
        if (const double got = scores.get({row, head, block});
            got != wanted && !(std::abs(got - wanted) <= allowed))
          return fmt::format("block {} of row {} of head {} has {}, not {}", block, row, head, got, wanted);
      }
    }
  }
  return "";
}

double few_values(int column) { return column * 7919 % 97 - 40; }
double distinct(int column) { return column * 597 % 1009; }
double three(int column) { return column % 150 == 3 ? 2 : column % 3 == 0 ? 1 : 0; }
double equal(int) { return 3; }
double zeros(int column) { return column % 2 == 0 ? -0.0 : 0.0; }
double nans(int column) {
  return column % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : few_values(column);
}
double mostly_none(int column) { return column % 100 == 7 ? column : -infinity; }

constexpr Choice of_a_warp{.columns = 700, .k = 50, .score = equal}, of_a_block{2100, 300, few_values},
    of_a_long_row{9000, 50, few_values}, of_a_long_row_of_ties{9000, 50, equal},
    of_a_long_row_of_three{9000, 50, three}, of_zeros{700, 50, zeros}, of_nans{700, 50, nans},
    of_few{1500, 64, mostly_none}, of_pages{1500, 64, few_values, 64}, of_shared_rows{16500, 700, few_values},
    of_few_distinct{700, 16, distinct};

struct SelectionMutation {
  TemplateMutation mutation;
  const Choice* choice = nullptr;  ///< none: scores of keys, or of blocks
  bool has_scales = true;
  bool are_blocks = false;
  bool sums_heads = false;
};
std::ostream& operator<<(std::ostream& out, const SelectionMutation& subject) {
  return out << subject.mutation;
}

constexpr const char* no_wait = "has no griddepcontrol.wait";

class SelectionMutationTest : public MutationTestOf<SelectionMutation> {};

TEST_P(SelectionMutationTest, IsCaught) {
  const auto& [mutation, choice, has_scales, are_blocks, sums_heads] = GetParam();
  const std::string text = are_blocks          ? noticed_of_blocks(&mutation, sums_heads)
                           : choice == nullptr ? noticed_of_scores(&mutation, has_scales)
                                               : noticed_of_choice(&mutation, *choice);
  // A kernel without its only wait is not even launched.
  if (mutation.caught_by == std::vector{no_wait}) {
    EXPECT_THAT(text, ::testing::HasSubstr(no_wait));
  } else {
    expect_caught(mutation, text);
  }
}

UNMUTATED_TEST(Selection, IsRightUnmutated) {
  for (const Choice* choice :
       {&of_a_warp, &of_a_block, &of_a_long_row, &of_a_long_row_of_ties, &of_zeros, &of_nans, &of_few,
        &of_pages, &of_shared_rows, &of_few_distinct, &of_a_long_row_of_three})
    EXPECT_EQ(noticed_of_choice(nullptr, *choice), "");
  EXPECT_EQ(noticed_of_scores(nullptr, true), "");
  EXPECT_EQ(noticed_of_blocks(nullptr, false), "");
  EXPECT_EQ(noticed_of_blocks(nullptr, true), "");
}

constexpr const char *race = "data race", *outside = "out of bounds", *fence = "missing proxy fence",
                     *in_flight = "access in flight", *unwritten = "uninitialized read of shared memory",
                     *deadlock = "deadlock";

INSTANTIATE_TEST_SUITE_P(
    Choices, SelectionMutationTest,
    ::testing::Values(
        SelectionMutation{{"NanIsTheLargest", {"nan_key", "0xffffffffu"}}, &of_nans},
        SelectionMutation{{"NegativeZeroIsLess", removed}, &of_zeros},
        SelectionMutation{{"MinusInfinityIsChosen", removed}, &of_few},
        SelectionMutation{{"PagesBehindTheTable", removed}, &of_pages},
        SelectionMutation{{"TiesOfEveryWord", removed, {outside}}, &of_a_warp},
        SelectionMutation{{"SumsOfWarpsReadEarly", removed, {race, unwritten}}, &of_a_block},
        SelectionMutation{{"CountsBeforeTheyAreZero", removed, {race, unwritten}}, &of_a_block},
        SelectionMutation{{"CountsReadEarly", removed, {race}}, &of_a_block},
        SelectionMutation{{"BinReadEarly", removed, {race, unwritten}}, &of_a_block},
        SelectionMutation{{"CandidatesBehindTheirRoom", removed, {race, outside}}, &of_a_long_row_of_ties},
        SelectionMutation{{"BitsBeforeTheyAreZero", removed, {race, unwritten}}, &of_a_block},
        SelectionMutation{{"BitsReadEarly", removed, {race}}, &of_a_block},
        SelectionMutation{{"ChosenReadEarly", removed, {race, unwritten}}, &of_a_block},
        SelectionMutation{{"CountOfCandidatesBeforeItIsZero", removed, {race, unwritten}}, &of_a_block},
        SelectionMutation{{"CandidatesReadEarly", removed, {race, unwritten}}, &of_a_long_row},
        SelectionMutation{{"ColumnsReadEarly", removed, {race, unwritten}}, &of_a_long_row},
        SelectionMutation{{"CountGoneBeforeItIsRead", removed, {race}}, &of_a_long_row_of_ties},
        SelectionMutation{{"CountOfOthersBeforeItIsZero", removed, {race}}, &of_a_long_row_of_three},
        SelectionMutation{{"OtherColumnsReadEarly", removed, {race}}, &of_a_long_row_of_three},
        SelectionMutation{{"OtherKeysReadEarly", removed, {race}}, &of_a_long_row_of_three},
        SelectionMutation{{"FewKeysReadEarly", removed, {race, unwritten}}, &of_few_distinct},
        SelectionMutation{{"CandidatesOfOthersReadEarly", removed, {race, unwritten}}, &of_shared_rows},
        SelectionMutation{{"CountOfAllBeforeItIsRead", removed, {race}}, &of_shared_rows},
        SelectionMutation{{"CandidatesGoneBeforeTheyAreRead", removed, {race, "ended"}}, &of_shared_rows},
        SelectionMutation{{"TopKOfScoresThatAreNotThere", removed, {no_wait}}, &of_a_block}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    ScoresOfKeys, SelectionMutationTest,
    ::testing::Values(
        SelectionMutation{{"ScoreTilesLoadedEarly", removed, {race, in_flight}}},
        SelectionMutation{{"NobodyWaitsForScales",
                           {"cp_async_mbarrier_arrive", "mbarrier_arrive"},
                           {race, in_flight, unwritten}}},
        SelectionMutation{{"ScalesOfOtherLanes", removed, {race}}, nullptr, false},
        SelectionMutation{{"ResidentTileReadEarly", removed, {race, in_flight, unwritten}}},
        SelectionMutation{{"ResidentTileNeverReleased", removed, {deadlock}}},
        SelectionMutation{{"StreamedTileReadEarly", removed, {race, in_flight, unwritten}}},
        SelectionMutation{{"StreamedTileNeverReleased", removed, {deadlock}}},
        SelectionMutation{{"NoFenceBeforeScores", removed, {"missing wgmma fence", in_flight, race}}},
        SelectionMutation{{"ScoresReadEarly", removed, {in_flight}}},
        SelectionMutation{{"NoRelu", {"max_nan(scores.at(r, n, j), 0.0f)", "scores.at(r, n, j)"}}},
        SelectionMutation{
            {"ScoresOfOthersKeys", {"key >= start && key < end", "true"}, {outside, race}, {}, true}},
        SelectionMutation{{"ScoresNoFenceBehindInit", removed, {fence}}},
        SelectionMutation{{"ScoresOfTensorsThatAreNotThere", removed, {no_wait}}},
        SelectionMutation{{"ScoresNoBarrierBehindInit", removed, {race, unwritten}}}),
    ::testing::PrintToStringParamName());

SelectionMutation of_blocks(const TemplateMutation& mutation) { return {mutation, nullptr, true, true}; }
SelectionMutation of_groups(const TemplateMutation& mutation) {
  return {mutation, nullptr, true, true, true};
}

INSTANTIATE_TEST_SUITE_P(
    ScoresOfBlocks, SelectionMutationTest,
    ::testing::Values(
        of_blocks({"MaskedKeysHaveScores", {"if (is_partial_)", "if (false)"}}),
        of_blocks({"BlocksBehindTheLastOne", {" && block < params_.blocks", ""}, {race, outside}, {}, true}),
        of_groups({"ResidentTileReadEarly", removed, {race, in_flight, unwritten}}),
        of_groups({"ResidentTileNeverReleased", removed, {deadlock}}),
        of_groups(
            {"GroupBlocksBehindTheLastOne", {" && block < params_.blocks", ""}, {race, outside}, {}, true})),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::selection_mutations
