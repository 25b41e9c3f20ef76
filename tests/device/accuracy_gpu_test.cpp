// How near results come to exact ones where few keys carry a row: as near as with a tiled softmax that follows the
// maximum of each row, which is what other libraries compute (docs/records/performance.md).
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <jit/attention.h>
#include <jit/device_buffer.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/attention_exact.h"
#include "tests/support/attention_tiled.h"
#include "tests/support/float16.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

using Random = std::mt19937_64;
using Values = std::vector<float>;

Values normal(Random& random, std::size_t count, float deviation = 1) {
  std::normal_distribution<float> distribution(0, deviation);
  Values values(count);
  for (float& x : values) x = distribution(random);
  return values;
}

/// q, k and v of (1, seqlen, heads, head_dim).
struct Inputs {
  Values q, k, v;
};

/// As the FlashAttention-3 paper has them: N(0, 1), and one in a thousand with N(0, 100) on top.
Inputs with_outliers(Random& random, std::size_t count) {
  Inputs inputs;
  for (Values* values : {&inputs.q, &inputs.k, &inputs.v}) {
    *values = normal(random, count);
    for (float& x : *values) {
      if (random() % 1000 == 0) x += normal(random, 1, 10)[0];
    }
  }
  return inputs;
}

/// Scores so large that few keys carry a row.
Inputs peaked(Random& random, std::size_t count) {
  return {normal(random, count, 4), normal(random, count, 2), normal(random, count)};
}

Inputs plain(Random& random, std::size_t count) {
  return {normal(random, count), normal(random, count), normal(random, count)};
}

struct Kind {
  std::string name;
  Inputs (*inputs)(Random&, std::size_t);
  /// The largest ratio of the error to that with true maxima; above what chance makes of it in one of 10,000
  /// runs.
  double most;
  int emulated_heads;  ///< more where chance makes more
};

struct AccuracyCase {
  std::string name;
  Kind kind;
  DType dtype;
  bool causal;
  std::string family;
  std::optional<Arch> arch;  ///< that the family is for
  int index;
};

void PrintTo(const AccuracyCase& accuracy, std::ostream* out) { *out << accuracy.name; }

double rms(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class AccuracyTest : public GpuTest, public ::testing::WithParamInterface<AccuracyCase> {};

TEST_P(AccuracyTest, IsThatOfTrueMaxima) {
  const AccuracyCase& accuracy = GetParam();
  if (accuracy.arch && native_arch(device_) != *accuracy.arch)
    GTEST_SKIP() << accuracy.family << " runs on " << to_string(*accuracy.arch);
  if (!is_in_this_run(accuracy.index, 3))
    GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
  const int seqlen = sized(2048, 640), head_dim = sized(128, 64);
  const int heads = sized(4, accuracy.kind.emulated_heads);
  const DType dtype = accuracy.dtype;
  const Shape shape{.seqlen = seqlen, .heads = heads, .head_dim = head_dim};
  const std::size_t count = static_cast<std::size_t>(seqlen) * heads * head_dim;
  Random random(reference::test_seed());
  const Inputs inputs = accuracy.kind.inputs(random, count);

  std::vector<std::vector<std::uint16_t>> bits;
  std::vector<DeviceBuffer> memory;
  for (const Values* values : {&inputs.q, &inputs.k, &inputs.v}) {
    bits.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) bits.back()[i] = reference::from_float(dtype, (*values)[i]);
    memory.emplace_back(0, count * 2);
    memory.back().upload(bits.back().data(), count * 2);
  }
  const DeviceBuffer o_memory(0, count * 2), lse_memory(0, std::size_t{4} * heads * seqlen);
  const AttentionArguments arguments{
      .q = TensorView::bshd(memory[0].data(), dtype, shape),
      .k = TensorView::bshd(memory[1].data(), dtype, shape),
      .v = TensorView::bshd(memory[2].data(), dtype, shape),
      .o = TensorView::bshd(o_memory.data(), dtype, shape),
      .lse = TensorView::bhs(lse_memory.data(), 1, heads, seqlen),
  };
  AttentionSpec spec{.dtype = dtype, .head_dim = head_dim};
  if (accuracy.causal) spec.mask = mask::causal();
  std::optional<KernelConfig> config;
  if (accuracy.family == "forward_mma_sync") config = ForwardMmaSync{};
  if (accuracy.family == "forward_tcgen05") config = ForwardTcgen05{};
  const Attention attention = jit::attention(spec, config, context());
  attention(arguments);
  EXPECT_EQ(family_name(attention.kernel(arguments).config()), accuracy.family);

  reference::Problem problem{.dtype = dtype,
                             .heads_q = heads,
                             .seqlen_q = seqlen,
                             .seqlen_kv = seqlen,
                             .head_dim = head_dim,
                             .head_dim_v = head_dim,
                             .softmax_scale = 1 / std::sqrt(static_cast<float>(head_dim))};
  for (auto [tensor, data] :
       {std::pair{&problem.q, &bits[0]}, {&problem.k, &bits[1]}, {&problem.v, &bits[2]}}) {
    *tensor = {.data = data->data(), .seq_stride = heads * head_dim, .head_stride = head_dim};
  }
  if (accuracy.causal) problem.keep = [](int, int, int q, int k) { return k <= q; };
  const std::vector<reference::Row> rows = reference::all_rows(problem);
  const reference::Output exact = reference::attention_exact(problem, rows);
  const reference::Output tiled = reference::attention_tiled(problem, rows, {.tile_kv = 128});

  std::vector<std::uint16_t> o_bits(count);
  o_memory.download(o_bits.data(), count * 2);
  std::vector<float> lse(static_cast<std::size_t>(heads) * seqlen);
  lse_memory.download(lse.data(), lse.size() * 4);
  std::vector<double> o;
  double lse_error = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [b, h, q] = rows[i];
    for (int d = 0; d < head_dim; ++d)
      o.push_back(
          reference::to_float(dtype, o_bits[(static_cast<std::size_t>(q) * heads + h) * head_dim + d]));
    lse_error = std::max(lse_error, std::abs(lse[static_cast<std::size_t>(h) * seqlen + q] - exact.lse[i]));
  }
  const double ratio = rms(o, exact.o) / rms(tiled.o, exact.o);
  RecordProperty("error", std::to_string(rms(o, exact.o)));
  RecordProperty("ratio", std::to_string(ratio));
  EXPECT_LE(ratio, accuracy.kind.most) << rms(o, exact.o) << " beside " << rms(tiled.o, exact.o);
  EXPECT_LE(lse_error, 1e-4);  // about 100 in units of the last place: sums are not rounded to 16 bits
}

std::vector<AccuracyCase> accuracy_cases() {
  // With outliers few rows make the error: the largest 10 of a head's 2,048 a quarter of its square. Simulated on the
  // host, bf16 without a mask, the ratio is 1.046 ± 0.006 of the 4 heads of a GPU. Without the look for keys that dominate
  // their rows it is 1.43 ± 0.04, and of peaked rows 1.37, with it 1.001.
  const std::vector<Kind> kinds = {
      {"Plain", plain, 1.07, 2}, {"Outliers", with_outliers, 1.08, 8}, {"Peaked", peaked, 1.03, 2}};
  struct OfFamily {
    std::string short_name, name;
    std::optional<Arch> arch = {};
  };
  const std::vector<OfFamily> families = {{"Wgmma", "forward_wgmma", Arch{9, 0, 'a'}},
                                          {"MmaSync", "forward_mma_sync"},
                                          {"Tcgen05", "forward_tcgen05", Arch{10, 0, 'a'}},
                                          {"MmaTma", "forward_mma_tma", Arch{12, 0, 'a'}}};
  std::vector<AccuracyCase> cases;
  for (const OfFamily& family : families) {
    for (const Kind& kind : kinds) {
      for (const DType dtype : {DType::bf16, DType::fp16}) {
        for (const bool causal : {false, true}) {
          const std::string name = family.short_name + kind.name + (dtype == DType::bf16 ? "Bf16" : "Fp16") +
                                   (causal ? "Causal" : "");
          cases.push_back(
              {name, kind, dtype, causal, family.name, family.arch, static_cast<int>(cases.size())});
        }
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, AccuracyTest, ::testing::ValuesIn(accuracy_cases()),
                         [](const ::testing::TestParamInfo<AccuracyCase>& info) { return info.param.name; });

}  // namespace
}  // namespace jit::testing
