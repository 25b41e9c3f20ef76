// The tables of masks and scores, and that rows of one's own work wherever theirs do.
#include "generator/functors/functor_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/host_functor.h"
#include "generator/kernels/families.h"
#include "generator/problem/arguments.h"
#include "tests/support/error_of.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

// A query sees one of every `period` keys, beginning with the one that a tensor gives for the query.
constexpr std::array strided_parameters = {
    FunctorParameter{.name = "period",
                     .kind = ParameterKind::whole,
                     .is_legal = [](const FunctorArgument& period) { return std::get<int>(period) > 0; },
                     .rule = "must be positive"},
    FunctorParameter{
        .name = "origin", .kind = ParameterKind::alignment, .default_value = Alignment::bottom_right}};
constexpr std::array strided_tensors = {
    FunctorTensorRow{.name = "phases",
                     .dtype = DType::int32,
                     .dims = "[batch?], seqlen_q",
                     .typical = [](const Extents&, std::int64_t q) { return static_cast<double>(q); }}};
constexpr MaskRow strided{.functor = {.name = "strided",
                                      .device_type = "StridedMask<phases, period, origin>",
                                      .doc = "a query sees one of so many keys",
                                      .parameters = strided_parameters,
                                      .tensors = strided_tensors},
                          .key_words = 1,
                          .keep = [](const HostFunctor& f, const Place& at) {
                            const double distance = static_cast<double>(at.k) - f.tensors[0].at({at.b, at.q});
                            return std::fmod(distance, f.whole(0)) == 0;
                          }};

TEST(FunctorTable, ARowOfOnesOwnIsAMask) {
  const Mask mask = make_mask(strided, {4});
  EXPECT_EQ(mask.to_string(), "strided(4)");
  EXPECT_EQ(make_mask(strided, {4, Alignment::top_left}).to_string(), "strided(4, top_left)");
  EXPECT_EQ((mask && mask::causal()).to_string(), "strided(4) && causal");
  EXPECT_EQ(mask, make_mask(strided, {4, Alignment::bottom_right}));
  EXPECT_NE(mask, make_mask(strided, {5}));
  const Error error = error_of([] { make_mask(strided, {0}); });
  EXPECT_EQ(error.field(), "spec.mask.period");
  EXPECT_THAT(error.message(), HasSubstr("strided: period = 0 must be positive"));
}

TEST(FunctorTable, ARowOfOnesOwnStandsInPrograms) {
  AttentionSpec spec;
  spec.mask = mask::prefix_lengths() || make_mask(strided, {4});
  EXPECT_EQ(mask::prefix_lengths().tensors()[0], functor_tensors(spec)[0]);
  EXPECT_EQ(functor_tensors(spec)[1], (FunctorTensorSpec{"phases", DType::int32}));
  const std::string source = write_program(spec, {}).source;
  EXPECT_THAT(source, HasSubstr("OrMask<PrefixLengthsMask<0>, StridedMask<1, 4, Alignment::bottom_right>>;"));
  EXPECT_THAT(source, HasSubstr("has_row_range<Config::Mask> == false"));
  EXPECT_THAT(source, HasSubstr("key_words<Config::Mask> == 1"));
}

TEST(FunctorTable, ArgumentsOfARowOfOnesOwnAreChecked) {
  AttentionSpec spec;
  spec.mask = make_mask(strided, {4});
  const auto fill = [&](std::initializer_list<std::int64_t> shape) {
    AttentionArguments arguments =
        placeholder_arguments(spec, extents_of(spec, {.batch = 2, .seqlen_q = 3, .seqlen_kv = 5}));
    arguments.tensors.add(
        {"phases", TensorView::dense(reinterpret_cast<void*>(0x1000), DType::int32, shape)});
    AttentionParams params{};
    fill_params(spec, functor_tensor_uses(spec), arguments, params);
    return params.tensors[0].strides[0];
  };
  EXPECT_EQ(fill({3}), 0);
  EXPECT_EQ(fill({1, 3}), 0);
  EXPECT_EQ(fill({2, 3}), 3);
  EXPECT_THAT(error_of([&] { fill({5}); }).message(), HasSubstr("phases: has seqlen_q = 5; it must be 3"));
  EXPECT_THAT(error_of([&] {
                fill({1, 2, 3});
              }).message(),
              HasSubstr("it must be (seqlen_q) or (batch, seqlen_q)"));
}

TEST(FunctorTable, ARowOfOnesOwnMeansTheSameOnTheHost) {
  const std::array<std::int32_t, 3> phases = {0, 2, 4};
  const std::array<std::int64_t, 1> shape = {3};
  HostProblem problem{.sizes = {.seqlen_q = 3, .seqlen_kv = 5}};
  problem.tensors["phases"] = {
      .dtype = DType::int32, .shape = shape, .data = std::as_bytes(std::span(phases)).data()};
  const Mask mask = !make_mask(strided, {4}) && mask::causal(Alignment::top_left);
  EXPECT_TRUE(has_host_meaning(mask));
  const HostKeep keep = host_keep(mask, problem);
  std::string kept;  // query by query
  for (std::int64_t q = 0; q < 3; ++q) {
    for (std::int64_t k = 0; k < 5; ++k) kept += keep({.b = 0, .h = 0, .q = q, .k = k}) ? 'x' : '.';
  }
  EXPECT_EQ(kept, ".....xx....xx..");
}

TEST(FunctorTable, ScoresOfOnesOwnToo) {
  constexpr ScoreRow doubled{
      .functor = {.name = "doubled", .device_type = "DoubledScore", .doc = "2 score"},
      .is_steady = true,
      .apply = [](const HostFunctor&, double score, const Place&) { return 2 * score; }};
  const Score score = make_score(doubled).then(score::softcap(3));
  EXPECT_EQ(score.to_string(), "doubled, softcap(3)");
  EXPECT_TRUE(are_steady(score));
  EXPECT_FALSE(are_steady(score.then(score::alibi())));
  EXPECT_THAT(write_program({.score = score}, {}).source, HasSubstr("ThenScore<DoubledScore, SoftcapScore<"));
  EXPECT_NEAR(host_apply(score, {})(0.5, {}), 3 * std::tanh(1 / 3.0), 1e-12);
}

// The names between the brackets of a row's device type.
std::vector<std::string> template_arguments(const FunctorRow& row) {
  const std::string type(row.device_type);
  const std::regex name("[<,] ?([a-z_]+)");
  return {std::sregex_token_iterator(type.begin(), type.end(), name, 1), std::sregex_token_iterator()};
}

TEST(FunctorTable, RowsAreWhole) {
  std::set<std::string_view> names;
  const auto check = [&](const FunctorRow& row) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.doc.empty()) << row.name;
    bool may_end = false;
    for (const FunctorParameter& parameter : row.parameters) {
      may_end |= parameter.default_value.has_value();
      EXPECT_EQ(parameter.default_value.has_value(), may_end) << row.name << ": a default before none";
      EXPECT_EQ(parameter.is_legal == nullptr, parameter.rule.empty()) << parameter.name;
      if (parameter.default_value) {
        EXPECT_EQ(parameter.default_value->index(), static_cast<std::size_t>(parameter.kind));
      }
    }
    for (const std::string& name : template_arguments(row)) {
      const auto is_it = [&](const auto& known) { return known.name == name; };
      EXPECT_TRUE(name == "constants" || (name == "within" && row.has_within) ||
                  std::ranges::any_of(row.parameters, is_it) || std::ranges::any_of(row.tensors, is_it))
          << row.device_type << ": " << name;
    }
    for (const FunctorTensorRow& tensor : row.tensors) {
      EXPECT_GE(tensor.dims.count(), 1) << tensor.name;
      EXPECT_FALSE(tensor.dims[tensor.dims.count() - 1].may_broadcast) << tensor.name;
    }
  };
  for (const MaskRow& row : mask_table()) {
    check(row.functor);
    EXPECT_EQ(row.has_row_range, row.key_words == 0) << row.functor.name;
  }
  names.clear();
  for (const ScoreRow& row : score_table()) check(row.functor);
}

TEST(FunctorTable, UsagesShowWhatMayBeLeftOut) {
  EXPECT_EQ(usage(mask_row("sliding_window").functor, true),
            "sliding_window(window_size_left[, window_size_right][, alignment])");
  EXPECT_EQ(usage(mask_row("sliding_window").functor, false), "sliding_window(window_size_left)");
  EXPECT_EQ(usages(score_table(), true), "none, softcap(cap), alibi, bias([dtype])");
}

TEST(FunctorTable, ADraftSeesItsBitsAndWhatLiesBefore) {
  const auto kept_by = [](const std::vector<std::int32_t>& words, std::vector<std::int64_t> shape,
                          int seqlen_q, int seqlen_kv) {
    HostProblem problem{.sizes = {.seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv}};
    problem.tensors["draft_tree"] = {
        .dtype = DType::int32, .shape = shape, .data = std::as_bytes(std::span(words)).data()};
    const HostKeep keep = host_keep(mask::draft_tree(), problem);
    std::string kept;
    for (std::int64_t q = 0; q < seqlen_q; ++q) {
      for (std::int64_t k = 0; k < seqlen_kv; ++k) kept += keep({.b = 0, .h = 0, .q = q, .k = k}) ? 'x' : '.';
      kept += ' ';
    }
    return kept;
  };
  EXPECT_EQ(kept_by({1, 3, 5}, {3, 1}, 3, 5), "xxx.. xxxx. xxx.x ");
  EXPECT_EQ(kept_by({1, 3, 5}, {1, 3, 1}, 3, 2), ".. x. .x ");  // the draft's first key does not exist
  // The sign bit is a bit as others are; the second word is that of key 32.
  std::vector<std::int32_t> words(66);
  words[0] = std::numeric_limits<std::int32_t>::min();
  words[3] = 1;
  EXPECT_EQ(kept_by(words, {33, 2}, 33, 33).substr(0, 68),
            std::string(31, '.') + "x. " + std::string(32, '.') + "x ");
  // More queries than a row has bits.
  std::string causal;
  for (std::size_t q = 0; q < 33; ++q) causal += std::string(q + 1, 'x') + std::string(32 - q, '.') + ' ';
  EXPECT_EQ(kept_by(std::vector<std::int32_t>(33), {33, 1}, 33, 33), causal);
}

// The host's view of a mask's device struct, for every way in which masks combine.
TEST(FunctorTable, TraitsOfCombinedMasksFollowFromTheirParts) {
  const auto traits = [](const char* text) {
    const Mask mask = parse_mask(text, {{.name = "t", .body = "return (q + k) % 2 == 0;"}});
    return std::pair(has_row_range(mask), key_words(mask));
  };
  EXPECT_EQ(traits("none"), std::pair(true, 0));
  EXPECT_EQ(traits("causal && prefix_lengths"), std::pair(true, 0));
  EXPECT_EQ(traits("causal || prefix(3)"), std::pair(true, 0)) << "both begin with the first key";
  EXPECT_EQ(traits("causal_per_request || prefix_lengths && causal"), std::pair(true, 0));
  EXPECT_EQ(traits("causal || sliding_window(3)"), std::pair(false, 0));
  EXPECT_EQ(traits("!sliding_window(1, 2)"), std::pair(false, 0));
  EXPECT_EQ(traits("causal && document"), std::pair(false, 1));
  EXPECT_EQ(traits("tree && causal"), std::pair(false, 1));
  EXPECT_EQ(traits("causal_per_request && prefix(3)"), std::pair(true, 0));
  EXPECT_EQ(traits("draft_tree && sliding_window(8)"), std::pair(false, 2));
  EXPECT_EQ(traits("document || !document"), std::pair(false, 2));
  EXPECT_EQ(traits("text(t)"), std::pair(false, 2));
}

}  // namespace
}  // namespace jit
