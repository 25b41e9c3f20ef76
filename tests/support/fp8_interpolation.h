// Where exponentials of fp8 are interpolated, and where they must not be: what is wrong with a context's kernels, as text.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <jit/attention.h>

#include "tests/support/fp8_rows.h"

namespace jit::testing {

/// Two consumers, of which each lane has two words of each row in a step, and tiles of two or three steps: the kernel sums
/// P of three by products.
inline std::string interpolating_config(bool sums_by_products) {
  return fmt::format(
      "family=forward_wgmma tile_q=128 tile_kv={} stages_q=2 stages_v=2 output=direct order=ping_pong "
      "converter_warps=2",
      sums_by_products ? 96 : 64);
}

/// Scores are exponents of 2.
inline Fp8Call fp8_call(bool sums_by_products, bool exact, const Mask& mask = {}) {
  Fp8Call call;
  call.spec.softmax_scale = std::log(2.0f);
  call.spec.mask = mask;
  call.spec.interpolated_exponentials = !exact;
  call.config = interpolating_config(sums_by_products);
  return call;
}

inline bool are_same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Whether rows have the error of exponentials, or up to `most` times that.
inline std::string fault_of_errors(const Fp8Rows& rows, bool sums_by_products, double most,
                                   const Context& context) {
  const Fp8Call call = fp8_call(sums_by_products, false), exact = fp8_call(sums_by_products, true);
  const std::vector<double> right = exact_output(rows, call.spec);
  const double error = error_of(output_of(rows, call, context), right),
               of_exponentials = error_of(output_of(rows, exact, context), right);
  if (error <= most * of_exponentials) return "";
  return fmt::format("error {:.3g}, with exact exponentials {:.3g}", error, of_exponentials);
}

/// Whether rows that many keys share are interpolated, to nearly the error of exponentials, unless LSE is wanted.
inline std::string fault_of_spread_rows(bool sums_by_products, const Context& context) {
  const Fp8Rows rows(128, 500, 0.2f, 1, 7);
  Fp8Call call = fp8_call(sums_by_products, false), exact = fp8_call(sums_by_products, true);
  if (are_same(output_of(rows, call, context), output_of(rows, exact, context)))
    return "no exponential is interpolated";
  call.with_lse = exact.with_lse = true;
  if (!are_same(output_of(rows, call, context), output_of(rows, exact, context)))
    return "some are interpolated beside LSE";
  return fault_of_errors(rows, sums_by_products, 1.15, context);
}

/// Whether rows of which one key, the `place`-th that is visited, has nine tenths of the weight have the error of
/// exponentials: behind it nothing is interpolated, and what was before counts for a tenth. The last keys are visited first.
inline std::string fault_of_dominated_rows(int keys, int place, bool sums_by_products,
                                           const Context& context) {
  Fp8Rows rows(128, keys, 0.25f, 0.25f, 8);
  std::vector<float> scores(static_cast<std::size_t>(keys));
  scores[static_cast<std::size_t>(keys - 1 - place)] =
      Fp8Rows::rounded(std::log2(9.0f * static_cast<float>(keys)));
  rows.set_scores(scores);
  const double most = sums_by_products ? 1.05 : 1.1;  // times the error, in tiles of 64 keys a little more
  return fault_of_errors(rows, sums_by_products, place + 1 < keys ? most : 1.15, context);
}

/// Whether the sum of a row has the small weights that stand beside a large one in its tile: each of them is less than what
/// the tensor core keeps of a sum with it, and together they are a hundredth of it.
inline std::string fault_of_small_weights(int place, bool sums_by_products, const Context& context) {
  constexpr int keys = 300;
  Fp8Rows rows(128, keys, 0, 0, 12);
  std::vector<float> scores(keys);
  scores[static_cast<std::size_t>(keys - 1 - place)] = 14;
  rows.set_scores(scores);
  std::fill(rows.v.begin(), rows.v.end(), 0.0f);
  const auto large = rows.v.begin() + std::ptrdiff_t{keys - 1 - place} * rows.head_dim;
  std::fill(large, large + rows.head_dim, 1.0f);
  const double weight = 0x1p14 / (0x1p14 + keys - 1);
  for (const float o : output_of(rows, fp8_call(sums_by_products, false), context)) {
    if (!(std::fabs(o - weight) < 1e-3)) return fmt::format("the large weight is {}, not {}", o, weight);
  }
  return "";
}

/// Whether one key that is no number makes no number of rows that see it, and of no others. `score` is that of other keys.
inline std::string fault_of_no_number(int key, float score, const Mask& mask, const Context& context) {
  Fp8Rows rows(128, 400, 0, 0, 9);  // no score beyond the others, for which a tile would be looked at again
  rows.set_scores(std::vector<float>(400, score));
  rows.k[static_cast<std::size_t>(key * rows.head_dim + 5)] = NAN;
  const std::vector<float> output = output_of(rows, fp8_call(true, false, mask), context);
  for (int i = 0; i < rows.queries; ++i) {
    const bool sees = mask == Mask() || key <= i + rows.keys - rows.queries;
    for (int c = 0; c < rows.head_dim; ++c) {
      const float number = output[static_cast<std::size_t>(i * rows.head_dim + c)];
      if (std::isnan(number) != sees)
        return fmt::format("column {} of query {} is {}, and the query {} key {}", c, i, number,
                           sees ? "sees" : "does not see", key);
    }
  }
  return "";
}

/// Whether exponents of 2^23.6, alike for all keys, are interpolated.
inline std::string fault_of_large_exponents(bool sums_by_products, const Context& context) {
  Fp8Rows rows(128, 400, 0, 0, 11);
  rows.set_scores(std::vector<float>(400, 416));
  Fp8Call call = fp8_call(sums_by_products, false), exact = fp8_call(sums_by_products, true);
  call.spec.softmax_scale = exact.spec.softmax_scale = 30011.37f * std::log(2.0f);
  return are_same(output_of(rows, call, context), output_of(rows, exact, context)) ? ""
                                                                                   : "some are interpolated";
}

/// Whether each of `batch` entries has the bits that it has alone.
inline std::string fault_of_batches(int batch, bool sums_by_products, const Context& context) {
  Fp8Rows rows(128, 200, 0.25f, 0.25f, 10);
  std::vector<float> scores(200);
  scores.back() = 6.5f;  // the others, visited behind it, weigh just enough for interpolation
  rows.set_scores(scores);
  Fp8Call call = fp8_call(sums_by_products, false);
  const std::vector<float> alone = output_of(rows, call, context);
  call.batch = batch;
  const std::vector<float> together = output_of(rows, call, context);
  for (std::size_t i = 0; i < together.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(together[i]) != std::bit_cast<std::uint32_t>(alone[i % alone.size()]))
      return fmt::format("of entry {} of {} an element is {} instead of {}", i / alone.size(), batch,
                         together[i], alone[i % alone.size()]);
  }
  return "";
}

}  // namespace jit::testing
