// Mutations of masses of listed keys, and of an indexer's loss and its gradients: a wait too few, or a key too much,
// must be noticed.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <jit/index_loss.h>
#include <jit/list_mass.h>

#include "tests/mutation/template_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::index_loss_mutations {
namespace {

constexpr int tokens = 3, heads = 20, head_dim = 64, keys = 40, entries = 150;
constexpr int mass_heads = 80;  // two groups of them

// Numbers like random ones, by a rule.
double number(std::int64_t i, int salt) { return std::sin(static_cast<double>(i) * 1.7 + salt * 0.9); }

int entry(std::int64_t token, std::int64_t i) {
  if (i == 4) return -1;
  return i == 5 ? keys : static_cast<int>((token * 7 + i * 11) % keys);
}
int count(std::int64_t token) { return token == 1 ? 70 : entries + 3; }
bool is_key(int token, int i) {
  const int own = entry(token, i);
  return i < count(token) && own >= 0 && own < keys;
}

DeviceTensor made(DType dtype, std::vector<std::int64_t> shape,
                  const std::function<double(std::int64_t)>& value) {
  DeviceTensor tensor(dtype, std::move(shape));
  tensor.fill(value);
  tensor.upload();
  return tensor;
}
DeviceTensor lists() {
  return made(DType::int32, {tokens, 1, entries},
              [](std::int64_t i) { return entry(i / entries, i % entries); });
}
DeviceTensor list_counts() {
  return made(DType::int32, {tokens, 1}, [](std::int64_t i) { return count(i); });
}

std::string wrong(const char* name, DeviceTensor& tensor, std::span<const double> right, double tolerance) {
  tensor.download();
  double most = 0;
  for (const double x : right) most = std::max(most, std::abs(x));
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    const double got = tensor.get(tensor.index(i)), expected = right[static_cast<std::size_t>(i)];
    if (!(std::abs(got - expected) <= tolerance * most))
      return fmt::format("{} has {} at {}, not {}", name, got, i, expected);
  }
  return "";
}

std::string noticed_of_mass(const Context& context) {
  const DeviceTensor q = made(DType::bf16, {tokens, mass_heads, head_dim},
                              [](std::int64_t i) { return number(i, 1); }),
                     k = made(DType::bf16, {keys, 1, head_dim}, [](std::int64_t i) { return number(i, 2); }),
                     lse =
                         made(DType::fp32, {mass_heads, tokens}, [](std::int64_t i) { return number(i, 3); });
  const DeviceTensor indices = lists(), counts = list_counts();
  DeviceTensor mass(DType::fp32, {tokens, 1, entries});
  mass.upload();
  std::vector<double> right(static_cast<std::size_t>(mass.count()));
  for (int token = 0; token < tokens; ++token)
    for (int i = 0; i < entries; ++i)
      for (int head = 0; is_key(token, i) && head < mass_heads; ++head) {
        double s = 0;
        for (int d = 0; d < head_dim; ++d) s += q.get({token, head, d}) * k.get({entry(token, i), 0, d});
        right[static_cast<std::size_t>(token * entries + i)] += std::exp(s / 8 - lse.get({head, token}));
      }
  try {
    list_mass({.head_dim = head_dim, .heads = mass_heads}, context)({.q = q.view(),
                                                                     .k = k.view(),
                                                                     .lse = lse.view(),
                                                                     .indices = indices.view(),
                                                                     .counts = counts.view(),
                                                                     .mass = mass.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return wrong("mass", mass, right, 1e-4);
}

struct Loss {
  Loss()
      : q(made(DType::bf16, {tokens, heads, head_dim}, [](std::int64_t i) { return number(i, 1); })),
        k(made(DType::bf16, {keys, head_dim}, [](std::int64_t i) { return number(i, 2); })),
        weights(made(DType::fp32, {tokens, heads}, [](std::int64_t i) { return number(i, 3) / 8; })),
        targets(
            made(DType::fp32, {tokens, 1, entries}, [](std::int64_t i) { return std::abs(number(i, 4)); })),
        d_loss(made(DType::fp32, {tokens}, [](std::int64_t i) { return number(i + 1, 5); })),
        loss(DType::fp32, {tokens}),
        dq(DType::bf16, {tokens, heads, head_dim}),
        dk(DType::bf16, {keys, head_dim}),
        d_weights(DType::fp32, {tokens, heads}),
        right_loss(tokens),
        right_q(static_cast<std::size_t>(dq.count())),
        right_k(static_cast<std::size_t>(dk.count())),
        right_weights(tokens * heads) {
    for (int token = 0; token < tokens; ++token) differentiate(token);
    for (const DeviceTensor* tensor : {&loss, &dq, &dk, &d_weights}) tensor->upload();
  }

  // The loss of a token and its gradients in double precision.
  void differentiate(int token) {
    std::vector<int> own;
    for (int i = 0; i < entries; ++i)
      if (is_key(token, i)) own.push_back(i);
    std::vector<std::array<double, heads>> products(own.size());
    std::vector<double> scores(own.size());
    double sum = 0, all = 0;
    for (std::size_t n = 0; n < own.size(); ++n) {
      for (int head = 0; head < heads; ++head) {
        double& x = products[n][static_cast<std::size_t>(head)];
        for (int d = 0; d < head_dim; ++d) x += q.get({token, head, d}) * k.get({entry(token, own[n]), d});
        scores[n] += weights.get({token, head}) * std::max(x, 0.0);
      }
      sum += std::exp(scores[n]);
      all += targets.get({token, 0, own[n]});
    }
    for (std::size_t n = 0; n < own.size(); ++n) {
      const double p = targets.get({token, 0, own[n]}) / all, found = std::exp(scores[n]) / sum;
      if (p > 0) right_loss[static_cast<std::size_t>(token)] += p * std::log(p / found);
      const double slope = d_loss.get({token}) * (found - p);
      for (int head = 0; head < heads; ++head) {
        const double x = products[n][static_cast<std::size_t>(head)];
        if (x <= 0) continue;
        right_weights[static_cast<std::size_t>(token * heads + head)] += slope * x;
        const double weight = weights.get({token, head});
        for (int d = 0; d < head_dim; ++d) {
          const int key = entry(token, own[n]);
          right_q[static_cast<std::size_t>((token * heads + head) * head_dim + d)] +=
              slope * weight * k.get({key, d});
          right_k[static_cast<std::size_t>(key * head_dim + d)] += slope * weight * q.get({token, head, d});
        }
      }
    }
  }

  std::string noticed(const Context& context) {
    const DeviceTensor indices = lists(), counts = list_counts();
    IndexLossArguments arguments{.q = q.view(),
                                 .k = k.view(),
                                 .weights = weights.view(),
                                 .indices = indices.view(),
                                 .counts = counts.view(),
                                 .targets = targets.view(),
                                 .loss = loss.view(),
                                 .d_loss = d_loss.view(),
                                 .dq = dq.view(),
                                 .dk = dk.view(),
                                 .d_weights = d_weights.view()};
    try {  // in two turns
      index_loss({.heads = heads, .head_dim = head_dim, .part_bytes = 2 * entries * head_dim * 4},
                 context)(arguments);
    } catch (const Error& error) {
      return fmt::format("{}: {}", to_string(error.code()), error.what());
    }
    return wrong("loss", loss, right_loss, 1e-4) + wrong("dq", dq, right_q, 0.01) +
           wrong("dk", dk, right_k, 0.01) + wrong("d_weights", d_weights, right_weights, 1e-3);
  }

  DeviceTensor q, k, weights, targets, d_loss, loss, dq, dk, d_weights;
  std::vector<double> right_loss, right_q, right_k, right_weights;
};

constexpr const char* no_wait = "has no griddepcontrol.wait";

struct IndexMutation {
  TemplateMutation mutation;
  bool is_of_mass = false;
};
std::ostream& operator<<(std::ostream& out, const IndexMutation& subject) { return out << subject.mutation; }

std::string noticed_of(const TemplateMutation* mutation, bool is_of_mass) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  return is_of_mass ? noticed_of_mass(context) : Loss().noticed(context);
}

class IndexLossMutationTest : public MutationTestOf<IndexMutation> {};

TEST_P(IndexLossMutationTest, IsCaught) {
  const auto& [mutation, is_of_mass] = GetParam();
  const std::string text = noticed_of(&mutation, is_of_mass);
  // A kernel without its only wait is not even launched.
  if (mutation.caught_by == std::vector{no_wait}) {
    EXPECT_THAT(text, ::testing::HasSubstr(no_wait));
  } else {
    expect_caught(mutation, text);
  }
}

TEST(IndexLoss, IsRightUnmutated) {
  EXPECT_EQ(noticed_of(nullptr, true), "");
  EXPECT_EQ(noticed_of(nullptr, false), "");
}

INSTANTIATE_TEST_SUITE_P(
    IndexLoss, IndexLossMutationTest,
    ::testing::Values(
        IndexMutation{{"RowsBehindTheKeys", {"row < rows", "row < rows + 1"}, {"out of bounds"}, {}, true},
                      true},
        IndexMutation{{"MassKeysCopiedBeforeTheirPlaces", removed, {"data race", "access in flight"}}, true},
        IndexMutation{{"MassOfKeysOnTheirWay", removed, {"access in flight", "data race"}}, true},
        IndexMutation{{"MassOfKeysOfOtherThreads", removed, {"data race"}}, true},
        IndexMutation{{"MassesOfSumsThatAreNotThere", removed, {"data race"}}, true},
        IndexMutation{{"MassOfNoKey", removed}, true},
        IndexMutation{{"MassOfEarlierGroupsLeftOut", {"is_first ?", "true ?"}}, true},
        IndexMutation{{"MassOfListsThatAreNotThere", removed, {no_wait}}, true},
        IndexMutation{{"LossOfScoresThatAreNotThere", removed, {"data race"}}},
        IndexMutation{{"NumbersOfWarpsOverThoseInUse", removed, {"data race"}}},
        IndexMutation{{"NumbersOfWarpsReadEarly", removed, {"data race"}}},
        IndexMutation{{"LossOfNoKeys", {"score != negative_infinity()", "true"}}},
        IndexMutation{{"IndexKeysOnTheirWay", removed, {"access in flight", "data race"}}},
        IndexMutation{{"IndexKeysOfOtherThreads", removed, {"data race"}}},
        IndexMutation{{"IndexKeysCopiedBeforeTheirPlaces", removed, {"data race", "access in flight"}}},
        IndexMutation{{"ScoresOfSumsThatAreNotThere", removed, {"data race"}}},
        IndexMutation{{"PlacesOverThoseInUse", removed, {"data race", "access in flight"}}},
        IndexMutation{{"IndexKeysCopiedBeforeTheirSlopes", removed, {"data race", "access in flight"}}},
        IndexMutation{{"IndexGradientsOfWeightsThatAreNotThere", removed, {"data race"}}},
        IndexMutation{{"GradientsOfInactiveHeads", {"x > 0", "true"}}},
        IndexMutation{{"IndexPartsBehindTheList", removed, {"data race", "out of bounds"}, {}, true}},
        IndexMutation{{"IndexSumsOfEarlierListsLeftOut", {"params.is_first ?", "true ?"}}},
        IndexMutation{{"IndexLossOfListsThatAreNotThere", removed, {no_wait}}}));

}  // namespace
}  // namespace jit::testing::index_loss_mutations
