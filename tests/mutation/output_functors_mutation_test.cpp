// Mutations of output functors and their gradients: each must be noticed. With one key o is v, and its gradients are short
// sums, so that the numbers tell.
#include <cmath>

#include "tests/mutation/template_mutation.h"
#include "tests/support/device_tensor.h"

namespace jit::testing::output_functors_mutations {
namespace {

constexpr int heads = 2, seqlen_q = 70;

double gate(std::int64_t i) { return static_cast<double>(i * 7 % 31 - 15) / 8; }
double scale(std::int64_t i) { return 1 + static_cast<double>(i % 5) / 4; }
double gradient(std::int64_t i) { return static_cast<double>(i * 11 % 13 - 6) / 4; }
double value(std::int64_t i) { return 1 + static_cast<double>(i % 9) / 8; }
double sigma(double x) { return 1 / (1 + std::exp(-x)); }

/// A call with one key, whose k is 0.
struct Call {
  int head_dim;
  DeviceTensor q, k, v, o, raw, lse, gates, scales;
  AttentionSpec spec;

  explicit Call(int d)
      : head_dim(d),
        q(DType::bf16, {1, seqlen_q, heads, d}),
        k(DType::bf16, {1, 1, 1, d}),
        v(DType::bf16, {1, 1, 1, d}),
        o(DType::bf16, {1, seqlen_q, heads, d}),
        raw(DType::bf16, {1, seqlen_q, heads, d}),
        lse(DType::fp32, {1, heads, seqlen_q}),
        gates(DType::bf16, {1, seqlen_q, heads, d}),
        scales(DType::fp32, {1, seqlen_q, heads}),
        spec{.head_dim = d, .gqa_ratio = heads, .output = output::sigmoid_gate().then(output::scale())} {
    q.fill([](std::int64_t i) { return gate(i); });
    k.fill([](std::int64_t) { return 0.0; });
    v.fill([](std::int64_t i) { return value(i); });
    gates.fill([](std::int64_t i) { return gate(i); });
    scales.fill([](std::int64_t i) { return scale(i); });
    for (const DeviceTensor* tensor : {&q, &k, &v, &gates, &scales}) tensor->upload();
  }
  NamedTensors tensors() const { return {{"gate", gates.view()}, {"scale", scales.view()}}; }
};

bool differ(double got, double wanted) { return !(std::abs(got - wanted) <= 0.02 + std::abs(wanted) / 100); }

std::string noticed_of_forward(const TemplateMutation* mutation, const char* config, int head_dim) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  Call call(head_dim);
  try {
    attention(call.spec, parse_config(config), context)({.q = call.q.view(),
                                                         .k = call.k.view(),
                                                         .v = call.v.view(),
                                                         .o = call.o.view(),
                                                         .tensors = call.tensors(),
                                                         .o_raw = call.raw.view()});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  call.o.download();
  call.raw.download();
  for (std::int64_t flat = 0; flat < call.o.count(); ++flat) {
    const auto at = call.o.index(flat);
    const double raw = value(at[3]), wanted = raw * sigma(gate(flat)) * scale(at[1] * heads + at[2]);
    if (differ(call.raw.get(at), raw)) return fmt::format("{} was {}, not {}", flat, call.raw.get(at), raw);
    if (differ(call.o.get(at), wanted)) return fmt::format("{} is {}, not {}", flat, call.o.get(at), wanted);
  }
  return "";
}

// One pass where head dims are small, whose first kernel makes the functor's gradients, too; else two, with a kernel in front.
std::string noticed_of_gradients(const TemplateMutation* mutation, int head_dim) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  Call call(head_dim);
  const std::vector<std::int64_t> rows = {1, seqlen_q, heads, head_dim}, key = {1, 1, 1, head_dim};
  DeviceTensor dy(DType::bf16, rows), dq(DType::bf16, rows), dk(DType::bf16, key), dv(DType::bf16, key),
      d_gates(DType::bf16, rows), d_scales(DType::fp32, {1, seqlen_q, heads});
  dy.fill([](std::int64_t i) { return gradient(i); });
  call.raw.fill([&](std::int64_t i) { return value(i % head_dim); });
  call.lse.fill([](std::int64_t) { return 0.0; });
  for (const DeviceTensor* tensor : {&dy, &call.raw, &call.lse}) tensor->upload();
  for (DeviceTensor* tensor : {&dq, &dk, &dv, &d_gates, &d_scales}) {
    tensor->poison();
    tensor->upload();
  }
  try {
    attention_when_called(call.spec, context)
        .backward({.d_o = dy.view(),
                   .q = call.q.view(),
                   .k = call.k.view(),
                   .v = call.v.view(),
                   .o = call.raw.view(),
                   .lse = call.lse.view(),
                   .dq = dq.view(),
                   .dk = dk.view(),
                   .dv = dv.view(),
                   .tensors = call.tensors(),
                   .d_tensors = {{"gate", d_gates.view()}, {"scale", d_scales.view()}}});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  for (DeviceTensor* tensor : {&dq, &dk, &dv, &d_gates, &d_scales}) tensor->download();
  for (std::int64_t row = 0; row < seqlen_q * heads; ++row) {
    double of_scale = 0;
    for (int d = 0; d < head_dim; ++d) {
      const std::int64_t flat = row * head_dim + d;
      const double s = sigma(gate(flat)), y = gradient(flat), raw = value(d);
      of_scale += y * raw * s;
      const double of_gate = y * raw * scale(row) * s * (1 - s);
      if (const double got = d_gates.get(d_gates.index(flat)); differ(got, of_gate))
        return fmt::format("the gradient of gate {} is {}, not {}", flat, got, of_gate);
      if (const double got = dk.get({0, 0, 0, d}); differ(got, 0)) return fmt::format("dk is {}, not 0", got);
    }
    if (const double got = d_scales.get(d_scales.index(row)); differ(got, of_scale))
      return fmt::format("the gradient of scale {} is {}, not {}", row, got, of_scale);
  }
  for (int d = 0; d < head_dim; ++d) {
    double sum = 0, size = 0;
    for (std::int64_t row = 0; row < seqlen_q * heads; ++row) {
      const double one = gradient(row * head_dim + d) * scale(row) * sigma(gate(row * head_dim + d));
      sum += one;
      size += std::abs(one);
    }
    if (const double got = dv.get({0, 0, 0, d}); !(std::abs(got - sum) < size / 100))
      return fmt::format("dv {} is {}, not {}", d, got, sum);
  }
  return "";
}

constexpr const char* no_wait = "has no griddepcontrol.wait";
constexpr const char *by_wgmma = "family=forward_wgmma tile_q=64 tile_kv=64 output=separate",
                     *over_queries = "family=forward_wgmma tile_q=64 tile_kv=64 output=over_q",
                     *by_splits = "family=forward_split_wgmma";

struct OutputFunctorMutation {
  TemplateMutation mutation;
  int head_dim = 64;
  const char* config = nullptr;  ///< none: gradients
};
std::ostream& operator<<(std::ostream& out, const OutputFunctorMutation& subject) {
  return out << subject.mutation;
}
std::string noticed_of(const TemplateMutation* mutation, const OutputFunctorMutation& subject) {
  return subject.config == nullptr ? noticed_of_gradients(mutation, subject.head_dim)
                                   : noticed_of_forward(mutation, subject.config, subject.head_dim);
}

class OutputFunctorMutationTest : public MutationTestOf<OutputFunctorMutation> {};

TEST_P(OutputFunctorMutationTest, IsCaught) {
  const TemplateMutation& mutation = GetParam().mutation;
  const std::string text = noticed_of(&mutation, GetParam());
  // A kernel without its only wait is not even launched.
  if (mutation.caught_by == std::vector{no_wait}) {
    EXPECT_THAT(text, ::testing::HasSubstr(no_wait));
  } else {
    expect_caught(mutation, text);
  }
}

UNMUTATED_TEST(OutputFunctors, AreRightUnmutated) {
  for (const char* config : {by_wgmma, over_queries, by_splits})
    EXPECT_EQ(noticed_of_forward(nullptr, config, 72), "");
  for (const int head_dim : {64, 272}) EXPECT_EQ(noticed_of_gradients(nullptr, head_dim), "") << head_dim;
}

INSTANTIATE_TEST_SUITE_P(
    OutputFunctors, OutputFunctorMutationTest,
    ::testing::Values(
        OutputFunctorMutation{
            {"GatesOfAnotherRow", {"(context.q_begin + q)", "context.q_begin"}}, 64, by_wgmma},
        OutputFunctorMutation{
            {"GatesBehindTheLastColumn", removed, {"out of bounds", "data race"}}, 72, by_wgmma},
        OutputFunctorMutation{{"GatesOfRowsThatAreNone", removed, {"out of bounds"}}, 64, by_wgmma},
        OutputFunctorMutation{
            {"NumbersOfRowsThatAreNone", {"i < left", "true"}, {"out of bounds"}}, 64, over_queries},
        OutputFunctorMutation{{"SwizzleKeyOfTheRowBefore", {"% chunks", "* 0"}}, 64, over_queries},
        OutputFunctorMutation{{"NumbersOnTheirWay", removed, {"access in flight"}}, 64, over_queries},
        OutputFunctorMutation{{"NumbersOfOtherLanes", removed, {"data race"}}, 64, over_queries},
        OutputFunctorMutation{{"GatesOfAnotherPackedHead", {"place.head", "split.kv_head"}}, 64, by_splits},
        OutputFunctorMutation{
            {"GradientsOfAnotherRow", {"row * strides[1]", "0 * strides[1]"}, {"data race"}}},
        OutputFunctorMutation{{"GradientOfAColumn", {"+=", "="}}},
        OutputFunctorMutation{{"DeltaOfTheWholeOutput", {"piece.y[i], piece.o[i], sum", "0, 0, sum"}}},
        OutputFunctorMutation{{"GradientsOfTheOutput", removed, {no_wait}}, 272}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::output_functors_mutations
