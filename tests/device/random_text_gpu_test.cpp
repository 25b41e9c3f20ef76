// Random texts in kernels, beside what each means on the host. Which keys a query sees, and how much of each, is read off
// the output itself: queries and keys are 0, so that all scores are, and values are the columns of the identity.
#include <jit/attention.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/device_tensor.h"
#include "tests/support/random_mask_text.h"
#include "tests/support/random_score_text.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

constexpr int batch = 2, heads = 2, seqlen_q = 150, seqlen_kv = 256;  // several tiles of queries and of keys
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The value of a text for a score of 0; −∞ is a key that is not seen, NaN what C++ does not define.
using Meaning = std::function<double(int b, int h, int q, int k)>;

struct Text {
  AttentionSpec spec;
  std::string body;
  Meaning score;
};

AttentionSpec spec_of(const Mask& mask, const Score& score) {
  return {.head_dim = 16, .head_dim_v = seqlen_kv, .mask = mask, .score = score};
}

Text random_mask(reference::Random& random) {
  static constexpr RandomMaskText (*kinds[])(std::mt19937_64&) = {random_mask_text, random_range_text,
                                                                  random_part_text};
  const RandomMaskText text = kinds[random() % 3](random);
  const Mask mask = mask::text({.name = "random",
                                .body = text.body,
                                .constants = {{"width", std::int64_t{128}},
                                              {"wide", std::int64_t{1} << 40},
                                              {"half", 0.5},
                                              {"on", true}},
                                .tensors = {{"ids", DType::int32}, {"bias", DType::bf16}}});
  return {spec_of(mask, {}), text.body, [keep = text.keep](int b, int h, int q, int k) {
            const std::optional<bool> kept = keep({q, k, b, h, heads, seqlen_q, seqlen_kv});
            return !kept ? std::nan("") : *kept ? 0 : -infinity;
          }};
}

Text random_score(reference::Random& random) {
  const RandomScoreText text = random_score_text(random);
  const Score score = score::text({.name = "random",
                                   .body = text.body,
                                   .constants = {{"drop", -1e300}, {"width", std::int64_t{40}}},
                                   .tensors = {{"ids", DType::int32}, {"bias", DType::fp32}}});
  return {spec_of({}, score), text.body, [value = text.value](int, int, int q, int k) {
            const double made = value({.q = q, .k = k, .score = 0, .as_duals = false});
            if (made < -0x1p80) return -infinity;
            return std::abs(made) < 1e4 ? made : std::nan("");  // beyond, the exponentials tell nothing
          }};
}

std::vector<double> meaning_of(const Text& text) {
  std::vector<double> scores;
  for (int b = 0; b < batch; ++b) {
    for (int h = 0; h < heads; ++h) {
      for (int q = 0; q < seqlen_q; ++q) {
        for (int k = 0; k < seqlen_kv; ++k) scores.push_back(text.score(b, h, q, k));
      }
    }
  }
  return scores;
}

class RandomTextTest : public GpuTest {
 protected:
  static void expect_right(const Text& text, const std::vector<double>& scores,
                           const std::optional<KernelConfig>& config) {
    const AttentionSpec& spec = text.spec;
    DeviceTensor q(spec.dtype, {batch, seqlen_q, heads, spec.head_dim}),
        k(spec.dtype, {batch, seqlen_kv, heads, spec.head_dim}),
        v(spec.dtype, {batch, seqlen_kv, heads, seqlen_kv}),
        o(spec.dtype, {batch, seqlen_q, heads, seqlen_kv}), lse(DType::fp32, {batch, heads, seqlen_q}),
        ids(DType::int32, {1024});
    const DType of_bias = spec.score == Score() ? DType::bf16 : DType::fp32;
    DeviceTensor bias(of_bias, {1024});
    for (DeviceTensor* tensor : {&q, &k, &bias}) tensor->fill([](std::int64_t) { return 0; });
    v.fill([&](std::int64_t flat) { return v.index(flat)[1] == v.index(flat)[3] ? 1 : 0; });
    ids.fill([](std::int64_t i) { return random_text_id(i); });
    for (const DeviceTensor* tensor : {&q, &k, &v, &o, &lse, &ids, &bias}) tensor->upload();
    AttentionArguments arguments{
        .q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lse = lse.view()};
    const auto read = functor_tensors(spec);
    for (const FunctorTensorSpec& tensor : read)
      arguments.tensors.add({tensor.name, tensor.name == "ids" ? ids.view() : bias.view()});
    attention(spec, config, context())(arguments);
    o.download();
    lse.download();

    auto score = scores.begin();
    for (int b = 0; b < batch; ++b) {
      for (int h = 0; h < heads; ++h) {
        for (int row = 0; row < seqlen_q; ++row, score += seqlen_kv) {
          const double most = *std::max_element(score, score + seqlen_kv);
          double sum = 0;
          for (int key = 0; key < seqlen_kv; ++key)
            sum += most == -infinity ? 0 : std::exp(score[key] - most);
          const double right = most + std::log(sum), got = lse.get({b, h, row});
          ASSERT_TRUE(sum == 0 ? got == -infinity : std::abs(got - right) <= 1e-3 + 1e-5 * std::abs(right))
              << fmt::format("lse of b {}, h {}, q {} is {}, should be {}", b, h, row, got, right);
          for (int key = 0; key < seqlen_kv; ++key) {
            const double weight = sum == 0 ? 0 : std::exp(score[key] - most) / sum,
                         made = o.get({b, row, h, key});
            ASSERT_TRUE(std::abs(made - weight) <= 0.01 * weight + 1e-5) << fmt::format(
                "of b {}, h {}, q {} key {} weighs {}, should weigh {}", b, h, row, key, made, weight);
          }
        }
      }
    }
  }

  void expect_all_right(Text (*draw_text)(reference::Random&), int count) const {
    const std::uint64_t seed = reference::test_seed();
    reference::Random random(seed);
    for (int i = 0; i < count; ++i) {
      std::vector<double> scores;
      std::optional<Text> text;
      do {  // until C++ defines it everywhere
        text = draw_text(random);
        scores = meaning_of(*text);
      } while (std::any_of(scores.begin(), scores.end(), [](double x) { return std::isnan(x); }));
      std::optional<KernelConfig> config;
      if (i % 2 != 0) config = reference::random_config(text->spec, device_limits(device_), random);
      SCOPED_TRACE(fmt::format("seed {}, text {}, config {}:\n{}", seed, i,
                               config ? to_string(*config) : "of the cost model", text->body));
      try {
        expect_right(*text, scores, config);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what() << "\n" << error.log();
      }
    }
  }
};

TEST_F(RandomTextTest, MasksSeeWhatTheirTextSays) { expect_all_right(random_mask, sized(30, 3)); }

TEST_F(RandomTextTest, ScoresAreWhatTheirTextSays) { expect_all_right(random_score, sized(30, 3)); }

}  // namespace
}  // namespace jit::testing
