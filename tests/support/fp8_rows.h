// Queries, keys and values of e4m3 of one head that a test chooses number by number, and attention of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <jit/attention.h>

namespace jit::testing {

struct Fp8Rows {
  int queries;
  int keys;
  int head_dim = 32;
  std::vector<float> q, k, v;  ///< (rows, head_dim), of numbers that e4m3 has

  /// Normally distributed, with these standard deviations of queries and keys; of values 1.
  Fp8Rows(int queries, int keys, float of_queries, float of_keys, std::uint64_t seed);

  /// The number of e4m3 that is nearest.
  static float rounded(float number);

  /// Scores, before they are scaled, become those of `scores`, (keys), plus what they are in the columns but the first,
  /// for all queries alike. They must be numbers of e4m3.
  void set_scores(const std::vector<float>& scores);
};

/// O in double precision of some rows; `softmax_scale` and causal mask of `spec`.
std::vector<double> exact_output(const Fp8Rows& rows, const AttentionSpec& spec);

struct Fp8Call {
  AttentionSpec spec;  ///< fp32 of O, and `head_dim`, are filled in
  std::string config;
  int batch = 1;  ///< of entries that are all these rows
  bool with_lse = false;
};
/// O as a kernel makes it, of one entry after another: (batch, queries, head_dim).
std::vector<float> output_of(const Fp8Rows& rows, Fp8Call call, const Context& context);

/// Root mean square.
double error_of(const std::vector<float>& output, const std::vector<double>& exact);

}  // namespace jit::testing
