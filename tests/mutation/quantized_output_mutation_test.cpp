// Mutations of o of 8 bits, of means of scores and of their gradients: each must be noticed.
#include <cmath>
#include <vector>

#include "tests/mutation/template_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::quantized_output_mutations {
namespace {

constexpr int heads = 2, seqlen_q = 70, seqlen_kv = 150;

// With one key o is v. The largest magnitude stands in one column.
double value(std::int64_t d) { return d == 13 ? -127 : static_cast<double>(d * 37 % 61 - 30); }

std::string noticed_of_bytes(const TemplateMutation* mutation, const char* config, int head_dim) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  DeviceTensor q(DType::bf16, {1, seqlen_q, heads, head_dim}), k(DType::bf16, {1, 1, 1, head_dim}),
      v(DType::bf16, {1, 1, 1, head_dim}), o(DType::int8, {1, seqlen_q, heads, head_dim}),
      scales(DType::fp32, {1, heads, seqlen_q});
  for (DeviceTensor* zeros : {&q, &k}) zeros->fill([](std::int64_t) { return 0.0; });
  v.fill(value);
  for (DeviceTensor* tensor : {&q, &k, &v}) tensor->upload();
  for (DeviceTensor* tensor : {&o, &scales}) {
    tensor->poison();
    tensor->upload();
  }
  try {
    attention({.head_dim = head_dim, .gqa_ratio = heads, .out_dtype = DType::int8, .o_descale = true},
              parse_config(config), context)(
        {.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .o_descale = scales.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  o.download();
  scales.download();
  for (std::int64_t flat = 0; flat < o.count(); ++flat) {
    const auto at = o.index(flat);
    if (const double got = scales.get({0, at[2], at[1]}); got != 1)
      return fmt::format("the scale of row {} is {}, not 1", at[1], got);
    if (const double got = o.get(at); got != value(at[3]))
      return fmt::format("{} is {}, not {}", flat, got, value(at[3]));
  }
  return "";
}

// Rows of which one element is not 0: scores of query and key, which rise along the keys, so that maxima move.
double query(std::int64_t i) { return 1 + static_cast<double>(i % 5) / 4; }
double key(std::int64_t j) { return static_cast<double>(j); }
constexpr double sink = 19;
constexpr int head_dim = 64;

DeviceTensor rows(int seqlen, double (*number)(std::int64_t)) {
  DeviceTensor tensor(DType::bf16, {1, seqlen, heads, head_dim});
  for (std::int64_t flat = 0; flat < tensor.count(); ++flat) {
    const auto at = tensor.index(flat);
    tensor.set(at, at[3] == 5 ? number(at[1]) : 0);
  }
  tensor.upload();
  return tensor;
}

/// A row's scores, and what follows from them.
struct Row {
  double lse = 0, mean = 0, sink_share = 0;
  std::vector<double> s, p;

  Row(int i, bool has_sink) : s(seqlen_kv), p(seqlen_kv) {
    double sum = has_sink ? std::exp(sink) : 0;
    for (int j = 0; j < seqlen_kv; ++j)
      sum += std::exp(s[static_cast<std::size_t>(j)] = query(i) * key(j) / 8);
    lse = std::log(sum);
    for (std::size_t j = 0; j < s.size(); ++j) mean += (p[j] = std::exp(s[j] - lse)) * s[j];
    sink_share = has_sink ? std::exp(sink - lse) : 0;
  }
};

bool differ(double got, double wanted, double size) { return !(std::abs(got - wanted) <= 0.01 * size); }

std::string noticed_of_means(const TemplateMutation* mutation, const char* config, bool has_sink) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const DeviceTensor q = rows(seqlen_q, query), k = rows(seqlen_kv, key), v = rows(seqlen_kv, key);
  const DeviceTensor o(DType::bf16, {1, seqlen_q, heads, head_dim});
  DeviceTensor mean(DType::fp32, {1, heads, seqlen_q}), sinks(DType::fp32, {heads});
  mean.poison();
  sinks.fill([](std::int64_t) { return sink; });
  for (DeviceTensor* tensor : {&mean, &sinks}) tensor->upload();
  AttentionArguments call{
      .q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .mean_score = mean.view()};
  if (has_sink) call.sinks = sinks.view();
  try {
    attention({.head_dim = head_dim, .sinks = has_sink, .mean_score = true}, parse_config(config),
              context)(call);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  mean.download();
  for (int i = 0; i < seqlen_q; ++i) {
    const double wanted = Row(i, has_sink).mean;
    if (const double got = mean.get({0, 1, i}); differ(got, wanted, 0.01))
      return fmt::format("the mean of row {} is {}, not {}", i, got, wanted);
  }
  return "";
}

// Symptoms in the gradients of a loss that is the sum of the means. Rows that TMA does not copy have two passes.
std::string noticed_of_gradients(const TemplateMutation* mutation, int alignment) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const DeviceTensor q = rows(seqlen_q, query), k = rows(seqlen_kv, key), v = rows(seqlen_kv, key);
  DeviceTensor o(DType::bf16, {1, seqlen_q, heads, head_dim}),
      dq(DType::bf16, {1, seqlen_q, heads, head_dim}), dk(DType::bf16, {1, seqlen_kv, heads, head_dim}),
      dv(DType::bf16, {1, seqlen_kv, heads, head_dim}), lse(DType::fp32, {1, heads, seqlen_q}),
      mean(DType::fp32, {1, heads, seqlen_q}), ones(DType::fp32, {1, heads, seqlen_q}),
      sinks(DType::fp32, {heads}), d_sinks(DType::fp32, {heads});
  o.fill([](std::int64_t) { return 0.0; });
  lse.fill([](std::int64_t flat) { return Row(static_cast<int>(flat % seqlen_q), true).lse; });
  mean.fill([](std::int64_t flat) { return Row(static_cast<int>(flat % seqlen_q), true).mean; });
  ones.fill([](std::int64_t) { return 1.0; });
  sinks.fill([](std::int64_t) { return sink; });
  for (DeviceTensor* tensor : {&dq, &dk, &dv, &d_sinks}) tensor->poison();
  for (DeviceTensor* tensor : {&o, &lse, &mean, &ones, &sinks, &dq, &dk, &dv, &d_sinks}) tensor->upload();
  try {
    attention_when_called({.head_dim = head_dim, .alignment = alignment, .sinks = true, .mean_score = true},
                          context)
        .backward({.d_o = o.view(),
                   .q = q.view(),
                   .k = k.view(),
                   .v = v.view(),
                   .o = o.view(),
                   .lse = lse.view(),
                   .dq = dq.view(),
                   .dk = dk.view(),
                   .dv = dv.view(),
                   .sinks = sinks.view(),
                   .d_sinks = d_sinks.view(),
                   .mean_score = mean.view(),
                   .d_mean_score = ones.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  for (DeviceTensor* tensor : {&dq, &dk, &d_sinks}) tensor->download();
  double of_sink = 0;
  std::vector<double> of_keys(seqlen_kv);
  for (int i = 0; i < seqlen_q; ++i) {
    const Row row(i, true);
    double of_query = 0, size = 0;
    for (std::size_t j = 0; j < row.s.size(); ++j) {
      const double ds = row.p[j] * (1 + row.s[j] - row.mean);
      of_query += ds * key(static_cast<std::int64_t>(j)) / 8;
      size += std::abs(ds * key(static_cast<std::int64_t>(j)) / 8);
      of_keys[j] += ds * query(i) / 8;
    }
    of_sink -= row.sink_share * row.mean;
    if (const double got = dq.get({0, i, 1, 5}); differ(got, of_query, size))
      return fmt::format("dq of row {} is {}, not {}", i, got, of_query);
  }
  for (int j = 0; j < seqlen_kv; ++j) {
    const double wanted = of_keys[static_cast<std::size_t>(j)];
    if (const double got = dk.get({0, j, 1, 5}); differ(got, wanted, 5))
      return fmt::format("dk of key {} is {}, not {}", j, got, wanted);
  }
  if (const double got = d_sinks.get({1}); differ(got, of_sink, std::abs(of_sink)))
    return fmt::format("the gradient of a sink is {}, not {}", got, of_sink);
  return "";
}

enum class What { bytes, means, means_with_sinks, gradients_of_two_passes, gradients };
constexpr const char *direct = "family=forward_wgmma tile_q=64 tile_kv=64 output=direct",
                     *separate = "family=forward_wgmma tile_q=64 tile_kv=64 output=separate",
                     *by_splits = "family=forward_split_kv", *by_split_wgmma = "family=forward_split_wgmma",
                     *by_mma = "family=forward_mma_sync tile_kv=32";

struct Mutation {
  TemplateMutation mutation;
  What what = What::gradients;
  const char* config = nullptr;
  int head_dim = 64;
};
std::ostream& operator<<(std::ostream& out, const Mutation& subject) { return out << subject.mutation; }
std::string noticed_of(const TemplateMutation* mutation, const Mutation& subject) {
  if (subject.what == What::bytes) return noticed_of_bytes(mutation, subject.config, subject.head_dim);
  if (subject.what == What::gradients) return noticed_of_gradients(mutation, 16);
  if (subject.what == What::gradients_of_two_passes) return noticed_of_gradients(mutation, 8);
  return noticed_of_means(mutation, subject.config, subject.what == What::means_with_sinks);
}

class QuantizedOutputMutationTest : public MutationTestOf<Mutation> {};

TEST_P(QuantizedOutputMutationTest, IsCaught) {
  expect_caught(GetParam().mutation, noticed_of(&GetParam().mutation, GetParam()));
}

UNMUTATED_TEST(QuantizedOutputs, AreRightUnmutated) {
  for (const char* config : {direct, by_splits})
    EXPECT_EQ(noticed_of_bytes(nullptr, config, 72), "") << config;
  EXPECT_EQ(noticed_of_bytes(nullptr, separate, 64), "");
  EXPECT_EQ(noticed_of_means(nullptr, by_mma, false), "");
  for (const char* config : {direct, by_splits, by_split_wgmma})
    EXPECT_EQ(noticed_of_means(nullptr, config, true), "") << config;
  for (const int alignment : {8, 16}) EXPECT_EQ(noticed_of_gradients(nullptr, alignment), "") << alignment;
}

INSTANTIATE_TEST_SUITE_P(
    QuantizedOutputs, QuantizedOutputMutationTest,
    ::testing::Values(
        Mutation{{"ScaleOfSomeColumns", {"reduce_row", "reduce_lane"}}, What::bytes, direct},
        Mutation{{"ScaleOfSomePieces", {"__shfl_xor_sync(full_warp, magnitude, distance)", "0.0f"}},
                 What::bytes,
                 by_splits},
        Mutation{{"BytesAreNotTransposed", removed}, What::bytes, direct},
        Mutation{
            {"BytesOfRowsThatAreNone", removed, {"out of bounds", "data race"}}, What::bytes, direct, 72},
        Mutation{
            {"BytesBehindTheLastColumn", {"if (column + 8 < columns)", ""}, {"out of bounds", "data race"}},
            What::bytes,
            direct,
            72},
        Mutation{{"ProxyFenceBehindBytes", removed, {"missing proxy fence"}}, What::bytes, separate},
        Mutation{{"MeanOfOneLane", {"Layout::reduce(x, [](float a, float b) { return a + b; })", "x"}},
                 What::means,
                 by_mma},
        Mutation{{"MeanOfTheMaximumBefore", {"(shift,", "(0.0f,"}}, What::means, by_mma},
        Mutation{{"MeanBesideASink", {"? $ :", "? 1.0f :"}}, What::means_with_sinks, direct},
        Mutation{{"ScoresOfExponents", {"weighted * ln_2", "weighted"}}, What::means, by_splits},
        Mutation{{"PackedMeanOfOneLane",
                  {"Layout::reduce(softmax.weighted[r], [](float x, float y) { return x + y; })",
                   "softmax.weighted[r]"}},
                 What::means,
                 by_split_wgmma},
        Mutation{{"MeanLeftOutOfDelta", {"gradients.d_mean_of_delta(batch, head, query)", "0.0f"}},
                 What::gradients_of_two_passes},
        Mutation{{"MeanWithoutItsScores", removed}, What::gradients_of_two_passes},
        Mutation{{"MeanLeftOutOfSinks", {"layout.factor", "(1e9f * layout.factor)"}},
                 What::gradients_of_two_passes},
        Mutation{{"MeanLeftOutOfPreparedDelta", {"gradients.d_mean_of_delta(batch, head, query)", "0.0f"}}},
        Mutation{{"MeansRelativeToNothing", removed}},
        Mutation{{"MeansAreNotAwaited", {"? 2 :", "? 1 :"}, {"data race", "uninitialized", "mbarrier"}}},
        Mutation{{"MeanWithoutItsScoresByWgmma", {"__fmaf_rn(d_mean, distance, d_score)", "d_score"}}},
        Mutation{{"MeanOfSinksByWgmma", {"log2_e + lse", "log2_e"}}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::quantized_output_mutations
