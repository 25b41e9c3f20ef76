// Mutations of gradients from lists of keys, and of transposed lists: a list too much, or a wait too few, must be noticed.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <jit/list_gradients.h>
#include <jit/transpose_lists.h>

#include "tests/mutation/template_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::list_gradients_mutations {
namespace {

constexpr int head_dim = 64;
// The first rows of q and k are no sequence's, as the last ones.
constexpr std::array<int, 3> begins_q = {0, 4, 7}, begins_k = {6, 96, 136};
constexpr int rows_q = 8, rows_k = 140;

struct Problem {
  int block;
  int ratio = 4;
  int queries = 1;
  bool is_latent = false;
  bool is_causal = false;
  bool is_scored = false;  ///< by half of the score's square
  bool has_sinks = false;
  bool is_low =
      false;  ///< scores are far below 0, those of keys that are zeros are infinite relative to them
  std::int64_t part_bytes = 1 << 20;
  int entries = 12;
};

DeviceTensor ints(std::vector<std::int64_t> shape, const std::function<std::int64_t(std::int64_t)>& value) {
  DeviceTensor tensor(DType::int32, std::move(shape));
  tensor.fill([&](std::int64_t i) { return static_cast<double>(value(i)); });
  tensor.upload();
  return tensor;
}

// Numbers like random ones, by a rule.
double number(std::int64_t i, int salt) { return std::sin(static_cast<double>(i) * 1.7 + salt * 0.9); }

int entry(const Problem& problem, int list, int i) {
  const int keys = list * problem.queries < begins_q[1] ? 90 : 40;
  if (i == 4) return -1;
  if (i == 5) return std::numeric_limits<int>::min();
  return (list * 7 + i * 11) % ((keys + problem.block - 1) / problem.block + 2);
}
int count(const Problem& problem, int list) {
  return list == 1 ? problem.entries + 3 : list * 5 % problem.entries + 1;
}
unsigned members(int list, int i) { return static_cast<unsigned>(list * 3 + i * 5 + 1); }

// Keys of a row of q, rows of k each; as often as they are listed.
std::vector<int> seen(const Problem& problem, int row) {
  std::vector<int> rows;
  const int list = row / problem.queries, first = list * problem.queries,
            sequence = first < begins_q[1] ? 0 : 1;
  if (first >= begins_q[2] || row >= begins_q[sequence + 1]) return rows;
  const int length = begins_k[sequence + 1] - begins_k[sequence];
  const int last = row - begins_q[sequence] + length - (begins_q[sequence + 1] - begins_q[sequence]);
  for (int i = 0; i < std::min(problem.entries, count(problem, list)); ++i) {
    const std::int64_t listed = entry(problem, list, i);
    if (problem.queries > 1 && (members(list, i) >> (row - first) & 1) == 0) continue;
    for (std::int64_t key = listed * problem.block; key < (listed + 1) * problem.block; ++key)
      if (listed >= 0 && key < length && !(problem.is_causal && key > last))
        rows.push_back(begins_k[sequence] + static_cast<int>(key));
  }
  return rows;
}

struct Run {
  explicit Run(const Problem& given)
      : problem(given),
        heads(given.ratio),
        q(DType::bf16, {rows_q, heads, head_dim}),
        k(DType::bf16, {rows_k, 1, head_dim}),
        v(DType::bf16, {rows_k, 1, head_dim}),
        o(DType::bf16, {rows_q, heads, head_dim}),
        d_o(DType::bf16, {rows_q, heads, head_dim}),
        lse(DType::fp32, {heads, rows_q}),
        d_lse(DType::fp32, {heads, rows_q}),
        sinks(DType::fp32, {heads}),
        dq(DType::bf16, {rows_q, heads, head_dim}),
        dk(DType::bf16, {rows_k, 1, head_dim}),
        dv(DType::bf16, {rows_k, 1, head_dim}),
        d_sinks(DType::fp32, {heads}),
        right_q(static_cast<std::size_t>(dq.count())),
        right_k(static_cast<std::size_t>(dk.count())),
        right_v(static_cast<std::size_t>(dv.count())),
        right_sinks(static_cast<std::size_t>(heads)) {
    // Rows that are no sequence's hold no numbers.
    const auto of_rows = [&](double first, double each, int salt) {
      return [=, row = std::int64_t{heads} * head_dim](std::int64_t i) {
        return i < begins_q[2] * row ? first + each * number(i, salt)
                                     : std::numeric_limits<double>::quiet_NaN();
      };
    };
    q.fill(problem.is_low ? of_rows(-30, 1, 1) : of_rows(0, 1, 1));
    k.fill(
        [&](std::int64_t i) { return (problem.is_low ? 1 : 0) + (problem.is_low ? 0.1 : 1) * number(i, 2); });
    v.fill([](std::int64_t i) { return number(i, 3); });
    d_o.fill(of_rows(0, 1, 4));
    d_lse.fill([](std::int64_t i) { return number(i, 5); });
    sinks.fill([](std::int64_t i) { return number(i, 6); });
    for (int row = 0; row < rows_q; ++row)
      for (int head = 0; head < heads; ++head) differentiate(row, head);
    for (const DeviceTensor* tensor : {&q, &k, &v, &o, &d_o, &lse, &d_lse, &sinks, &dq, &dk, &dv, &d_sinks})
      tensor->upload();
  }

  // Forward and backward of a row in double precision.
  void differentiate(int row, int head) {
    const DeviceTensor& values = problem.is_latent ? k : v;
    const std::vector<int> keys = seen(problem, row);
    std::vector<double> raw, scores;
    double total = problem.has_sinks ? std::exp(sinks.get({head})) : 0;
    for (const int key : keys) {
      double s = 0;
      for (int d = 0; d < head_dim; ++d) s += q.get({row, head, d}) * k.get({key, 0, d});
      raw.push_back(s / std::sqrt(head_dim));
      scores.push_back(problem.is_scored ? raw.back() * raw.back() / 2 : raw.back());
      total += std::exp(scores.back());
    }
    const double own_lse = total > 0 ? std::log(total) : -std::numeric_limits<double>::infinity();
    lse.set({head, row}, own_lse);
    double delta = 0;
    for (int d = 0; d < head_dim; ++d) {
      double sum = 0;
      for (std::size_t i = 0; i < keys.size(); ++i)
        sum += std::exp(scores[i] - own_lse) * values.get({keys[i], 0, d});
      o.set({row, head, d}, sum);
      delta += sum * d_o.get({row, head, d});
    }
    if (total == 0 || row >= begins_q[2]) return;
    delta -= d_lse.get({head, row});
    if (problem.has_sinks)
      right_sinks[static_cast<std::size_t>(head)] -= std::exp(sinks.get({head}) - own_lse) * delta;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const double p = std::exp(scores[i] - own_lse);
      double dp = 0;
      for (int d = 0; d < head_dim; ++d) dp += values.get({keys[i], 0, d}) * d_o.get({row, head, d});
      const double ds = p * (dp - delta) * (problem.is_scored ? raw[i] : 1) / std::sqrt(head_dim);
      for (int d = 0; d < head_dim; ++d) {
        const auto at_q = static_cast<std::size_t>((row * heads + head) * head_dim + d),
                   at_k = static_cast<std::size_t>(keys[i] * head_dim + d);
        right_q[at_q] += ds * k.get({keys[i], 0, d});
        right_k[at_k] += ds * q.get({row, head, d});
        (problem.is_latent ? right_k : right_v)[at_k] += p * d_o.get({row, head, d});
      }
    }
  }

  // Where a tensor is wrong, if it is.
  std::string wrong(const char* name, DeviceTensor& tensor, std::span<const double> right) const {
    tensor.download();
    const double tolerance = problem.is_low ? 0.06 : 0.015;
    double most = 1e-3;
    for (const double x : right) most = std::max(most, std::abs(x));
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
      const double got = tensor.get(tensor.index(i)), expected = right[static_cast<std::size_t>(i)];
      if (!(std::abs(got - expected) <= tolerance * most))
        return fmt::format("{} has {} at {}, not {}", name, got, i, expected);
    }
    return "";
  }

  std::string noticed(const Context& context) {
    const int lists = (rows_q + problem.queries - 1) / problem.queries, entries = problem.entries;
    const DeviceTensor key_lists = ints({lists, 1, entries}, [&](std::int64_t i) {
      return entry(problem, static_cast<int>(i) / entries, static_cast<int>(i) % entries);
    });
    const DeviceTensor key_members = ints({lists, 1, entries}, [&](std::int64_t i) {
      return members(static_cast<int>(i) / entries, static_cast<int>(i) % entries);
    });
    const DeviceTensor full = ints({lists, 1}, [&](std::int64_t) { return entries; });
    const DeviceTensor key_counts =
        ints({lists, 1}, [&](std::int64_t i) { return count(problem, static_cast<int>(i)); });
    const auto array = [](const std::array<int, 3>& begins) {
      return ints({3}, [&](std::int64_t i) { return begins[static_cast<std::size_t>(i)]; });
    };
    const DeviceTensor cu_seqlens_q = array(begins_q), cu_seqlens_k = array(begins_k);
    ListGradientsSpec spec{.attention = {.head_dim = head_dim,
                                         .gqa_ratio = problem.ratio,
                                         .sequences_q = SequenceKind::varlen,
                                         .sequences_kv = SequenceKind::varlen,
                                         .sinks = problem.has_sinks,
                                         .values_in_keys = problem.is_latent,
                                         .list_block = problem.block,
                                         .list_queries = problem.queries},
                           .part_bytes = problem.part_bytes};
    if (problem.is_latent) spec.attention.head_dim_v = head_dim;
    if (problem.is_causal) spec.attention.mask = mask::causal();
    if (problem.is_scored)
      spec.attention.score = score::text({.name = "square", .body = "return score * score * 0.5f;"});
    BackwardArguments arguments{.d_o = d_o.view(),
                                .q = q.view(),
                                .k = k.view(),
                                .v = problem.is_latent ? TensorView{} : v.view(),
                                .o = o.view(),
                                .lse = lse.view(),
                                .dq = dq.view(),
                                .dk = dk.view(),
                                .dv = problem.is_latent ? TensorView{} : dv.view()};
    arguments.d_lse = d_lse.view();
    if (problem.has_sinks) {
      arguments.sinks = sinks.view();
      arguments.d_sinks = d_sinks.view();
    }
    arguments.cu_seqlens_q = cu_seqlens_q.view();
    arguments.cu_seqlens_k = cu_seqlens_k.view();
    try {
      const ListGradients gradients = list_gradients(spec, context);
      for (const DeviceTensor* counts : {&full, &key_counts}) {  // the first leaves other numbers in memory
        arguments.tensors = {{"key_lists", key_lists.view()}, {"key_counts", counts->view()}};
        if (problem.queries > 1) arguments.tensors.add({"key_members", key_members.view()});
        gradients(arguments);
      }
    } catch (const Error& error) {
      return fmt::format("{}: {}", to_string(error.code()), error.what());
    }
    std::string text = wrong("dq", dq, right_q) + wrong("dk", dk, right_k);
    if (!problem.is_latent) text += wrong("dv", dv, right_v);
    if (problem.has_sinks) text += wrong("d_sinks", d_sinks, right_sinks);
    return text;
  }

  Problem problem;
  int heads;
  DeviceTensor q, k, v, o, d_o, lse, d_lse, sinks, dq, dk, dv, d_sinks;
  std::vector<double> right_q, right_k, right_v, right_sinks;
};

// Entries of many lists, whose places lie in two windows, and more entries than a step of the scan has.
std::string noticed_of_transposing(const Context& context) {
  constexpr int rows = 600, room = 900, limit = 4200;
  const auto listed = [](int row, int i) { return i == 0 ? 7 : i == row % 50 + 1 ? row % 9 - 1 : -1; };
  const auto own_count = [](int row) { return row % 3 == 0 ? 1 : 60; };
  const DeviceTensor indices = ints({rows, 1, room}, [&](std::int64_t i) {
    return i % room == 70 ? 9 : listed(static_cast<int>(i) / room, static_cast<int>(i) % room);
  });
  const DeviceTensor counts = ints({rows, 1}, [&](std::int64_t i) { return own_count(static_cast<int>(i)); });
  DeviceTensor starts(DType::int32, {1, limit + 1}), places(DType::int32, {1, rows * room});
  starts.upload();
  places.upload();
  try {
    transpose_lists(context)({.indices = indices.view(),
                              .counts = counts.view(),
                              .starts = starts.view(),
                              .places = places.view(),
                              .limit = limit});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  starts.download();
  places.download();
  std::vector<std::vector<int>> expected(limit);
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < own_count(row); ++i)
      if (const int own = listed(row, i); own >= 0)
        expected[static_cast<std::size_t>(own)].push_back(row * room + i);
  int at = 0;
  for (int own = 0; own <= limit; ++own) {
    if (starts.get({0, own}) != at)
      return fmt::format("entry {} begins at {}, not {}", own, starts.get({0, own}), at);
    if (own == limit) break;
    for (const int place : expected[static_cast<std::size_t>(own)]) {
      if (places.get({0, at}) != place)
        return fmt::format("place {} is {}, not {}", at, places.get({0, at}), place);
      ++at;
    }
  }
  return "";
}

constexpr const char* no_wait = "has no griddepcontrol.wait";
constexpr Problem tokens{.block = 1, .is_latent = true, .has_sinks = true};
constexpr Problem blocks{.block = 4};
constexpr Problem causal{.block = 4, .is_causal = true, .is_scored = true};
constexpr Problem shared{.block = 8, .queries = 2, .has_sinks = true};
constexpr Problem in_turns{.block = 4, .part_bytes = 1};
constexpr Problem many_rows{.block = 16, .ratio = 80};  // two groups of them, and several tiles of keys

// By wgmma: consumers of rows or with roles, some queries of a tile, lists that take turns, and a block that has two items.
constexpr Problem chosen_rows{.block = 128};
constexpr Problem chosen_roles{.block = 64, .has_sinks = true};
constexpr Problem chosen_causal{.block = 128, .ratio = 16, .is_causal = true, .is_scored = true};
constexpr Problem chosen_shared{.block = 64, .queries = 2, .has_sinks = true};
constexpr Problem chosen_many{.block = 64, .ratio = 64, .entries = 120};
constexpr Problem chosen_low{.block = 128, .is_low = true};
constexpr Problem chosen_in_turns{.block = 64, .part_bytes = 1};
constexpr Problem of_two_items{.block = 128, .ratio = 64, .entries = 120};

struct GradientMutation {
  TemplateMutation mutation;
  std::optional<Problem> problem = {};  ///< none: lists are transposed
};
std::ostream& operator<<(std::ostream& out, const GradientMutation& subject) {
  return out << subject.mutation;
}

std::string noticed_of(const TemplateMutation* mutation, const std::optional<Problem>& problem) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  return problem ? Run(*problem).noticed(context) : noticed_of_transposing(context);
}

class ListGradientsMutationTest : public MutationTestOf<GradientMutation> {};

TEST_P(ListGradientsMutationTest, IsCaught) {
  const auto& [mutation, problem] = GetParam();
  const std::string text = noticed_of(&mutation, problem);
  // A kernel without its only wait is not even launched.
  if (mutation.caught_by == std::vector{no_wait}) {
    EXPECT_THAT(text, ::testing::HasSubstr(no_wait));
  } else {
    expect_caught(mutation, text);
  }
}

UNMUTATED_TEST(ListGradients, AreRightUnmutated) {
  for (const Problem& problem :
       {tokens, blocks, causal, shared, in_turns, many_rows, chosen_rows, chosen_roles, chosen_causal,
        chosen_shared, chosen_many, chosen_low, chosen_in_turns, of_two_items})
    EXPECT_EQ(noticed_of(nullptr, problem), "") << problem.block << " " << problem.ratio;
  EXPECT_EQ(noticed_of(nullptr, {}), "");
}

INSTANTIATE_TEST_SUITE_P(
    ListGradients, ListGradientsMutationTest,
    ::testing::Values(
        GradientMutation{{"RowsOverThoseInUse", removed, {"data race", "access in flight"}}, many_rows},
        GradientMutation{{"KeysCopiedBeforeTheirPlaces", removed, {"data race", "access in flight"}},
                         many_rows},
        GradientMutation{{"ScoresOfKeysOnTheirWay", removed, {"access in flight", "data race"}}, blocks},
        GradientMutation{{"ScoresOfKeysOfOtherThreads", removed, {"data race"}}, blocks},
        GradientMutation{{"ProductsOfScoresThatAreNotThere", removed, {"data race"}}, blocks},
        GradientMutation{{"RowsBehindTheSequenceHaveGradients", {" && query < owner_.queries", ""}}, shared},
        GradientMutation{{"BlocksOfEntriesThatAreNone", {" : -1", " : 3"}, {"uninitialized read"}, {}, true},
                         blocks},
        GradientMutation{{"ListsWithoutGradientOfLse", {"d_lse", "0 * d_lse"}}, blocks},
        GradientMutation{{"GradientsOfOtherMembers", {" & 1) != 0", " & 1) != 2"}}, shared},
        GradientMutation{{"GradientsOfMaskedKeys", {"mask.keeps(where)", "true"}}, causal},
        GradientMutation{{"SlopesOfListedScores", removed}, causal},
        GradientMutation{{"PartsBehindTheList", removed, {"data race", "out of bounds"}, {}, true}, blocks},
        GradientMutation{{"RowsOfEarlierGroupsLeftOut", {"to->x + sum.x, to->y + sum.y", "sum.x, sum.y"}},
                         many_rows},
        GradientMutation{{"LatentsWithoutGradientsOfValues", {"Config::shares_values", "false"}}, tokens},
        GradientMutation{{"DqOfListsUnscaled", {"attention_.softmax_scale", "1.0f"}}, blocks},
        GradientMutation{{"KeysBeforeTheFirstSequence", removed, {"out of bounds"}, {}, true}, blocks},
        GradientMutation{{"SumsOfEarlierListsLeftOut", {"params.is_first ?", "true ?"}}, in_turns},
        GradientMutation{{"SinksSummedTooEarly", removed, {"data race"}}, tokens},
        GradientMutation{{"GradientsOfListsThatAreNotThere", removed, {no_wait}}, blocks},
        GradientMutation{{"SlopesOfListedRows", removed}, chosen_causal},
        GradientMutation{{"ListedRowsUnmasked", {"s = negative_infinity();", ";"}}, chosen_causal},
        GradientMutation{{"TheEndOfListedKeysIsNotMasked", {"has_end_of_keys", "false"}}, chosen_low},
        GradientMutation{{"DkOfListsUnscaled", {"params_.softmax_scale", "1.0f"}}, chosen_rows},
        GradientMutation{
            {"SumsBeforeTheyAreThere", {"< before", "< 0"}, {"data race", "uninitialized read"}, {}, true},
            of_two_items},
        GradientMutation{{"LanesReadSumsTooEarly", removed, {"data race"}}, of_two_items},
        GradientMutation{{"SumsOfOtherLanesAreSaidToBeThere", removed, {"data race"}}, of_two_items},
        GradientMutation{
            {"SumsOfEarlierItemsLeftOut", {"!work.is_first || item.number > 0", "item.number > 0"}},
            chosen_in_turns},
        GradientMutation{{"SlotsOfTheFirstTile", {"item.first_tile * tile_slots + own", "own"}}, chosen_rows},
        GradientMutation{{"QueriesBehindTheSequence", {"member < owner.queries", "true"}}, chosen_shared},
        GradientMutation{{"EntriesOfRowsBeside", {" & 1) != 0", " & 1) != 2"}}, chosen_shared},
        GradientMutation{{"ListedKeysAreOverwritten", removed, {"data race", "access in flight"}, {}, true},
                         chosen_many},
        GradientMutation{{"ListedQueriesAreOverwritten", removed, {"data race", "access in flight"}},
                         of_two_items},
        GradientMutation{{"ListedDoIsOverwritten", removed, {"data race", "access in flight"}}, chosen_many},
        GradientMutation{{"NumbersOfOtherLanesAreSaidToBeThere", removed, {"data race"}}, chosen_rows},
        GradientMutation{{"DeltasOfOtherLanesAreSaidToBeThere", removed, {"data race"}}, chosen_rows},
        GradientMutation{{"BarriersOfListsAreNotThereYet", removed, {"data race", "barrier"}}, chosen_rows},
        GradientMutation{{"LoadsListsThatAreNotThere", removed, {no_wait}}, chosen_rows},
        GradientMutation{{"RowsOfListsThatAreNotThere", removed, {no_wait}}, chosen_rows},
        GradientMutation{{"BlocksOfListedEntriesThatAreNone", {" : -1", " : 1"}}, chosen_rows},
        GradientMutation{{"NumbersOfRowsBehindTheSequence", {" < owner.queries", " < 99"}, {}, {}, true},
                         chosen_shared},
        GradientMutation{{"ListedRowsWithoutGradientOfLse", {"gradients.d_lse[", "0 * gradients.d_lse["}},
                         chosen_rows},
        GradientMutation{{"DqOfListedRowsUnscaled", {"attention.softmax_scale", "1.0f"}}, chosen_rows},
        GradientMutation{{"EntriesBehindTheCount", removed}},
        GradientMutation{{"EntriesOutsideOfTheLimit", {"entry >= 0 && ", ""}, {"out of bounds"}, {}, true}},
        GradientMutation{{"SumsBeforeWarpsHaveThem", removed, {"data race"}}},
        GradientMutation{{"NextSumsOverTheseOnes", removed, {"data race"}}},
        GradientMutation{{"PlacesInAnyOrder", {"unordered[i] < place", "unordered[i] > place"}}},
        GradientMutation{{"PlacesMarkedBeforeTheyAreCleared", removed, {"data race"}}},
        GradientMutation{{"PlacesCountedBeforeTheyAreMarked", removed, {"data race"}}},
        GradientMutation{{"NextPlacesClearedUnderThese", removed, {"data race"}}},
        GradientMutation{{"TransposesListsThatAreNotThere", removed, {no_wait}}}));

}  // namespace
}  // namespace jit::testing::list_gradients_mutations
