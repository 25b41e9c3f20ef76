// The problems that tests compute: values that say what a call is of, for all that run it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <jit/attention.h>

#include "tests/support/attention_problem.h"
#include "tests/support/host_functors.h"

namespace jit::testing {

enum class Layout {
  bshd,        ///< dense
  bhsd,        ///< dense, heads before positions
  packed_qkv,  ///< q, k and v are slices of one tensor, or k and v where lengths differ
  padded,      ///< rows lie apart and start at addresses aligned to spec.alignment and no more
  reversed,    ///< positions run backwards through memory
};
inline constexpr int layout_count = 5;
std::string_view to_string(Layout layout);

/// The case that AttentionRun computes, and BackwardRun the gradients of. With FP8 elements, every scale is
/// a power of two, so that they stand for numbers of 16 bits.
struct AttentionCase {
  AttentionSpec spec = {};
  int batch = 1;
  int heads_kv = 1;
  int seqlen_q = 1;
  int seqlen_kv = 1;
  Layout layout =
      Layout::bshd;  ///< gradients are computed of `bshd`, and of `padded` with heads before positions
  bool with_lse = true;
  float amplitude = 1;  ///< standard deviation of q, k, v and do
  std::uint64_t seed = 0;

  /// The keys of each batch entry, in seqused_k or cu_seqlens_k; rows behind them hold NaN. Empty: all keys
  /// of dense sequences.
  std::vector<int> used_keys = {};
  /// The queries of each batch entry; rows behind them must not be written.
  std::vector<int> used_queries = {};
  /// Behind each varlen sequence, of nobody, and more where the next one cannot begin there; then seqused_q and
  /// seqused_k say so.
  int spare_rows = 0;

  // Only gradients read these.
  float dropout_p = 0;                       ///< if spec.dropout
  reference::ScoreFunction score = nullptr;  ///< the meaning of spec.score, of a text that tests do not know
  /// A score that reads tensors.
  std::function<double(const reference::FunctorProblem&, double score, int b, int h, int q, int k)>
      text_score = nullptr;
  /// Shapes of tensors that texts read, where they are not (seqlen_kv).
  std::map<std::string, std::vector<std::int64_t>> shapes = {};
  std::vector<std::string> d_tensors = {};  ///< of what the score reads, the gradients that are wanted
  bool with_d_lse = false;
  float sinks_from = 0;  ///< added to those of spec.sinks, which are random

  int heads_q() const { return heads_kv * spec.gqa_ratio; }
};
std::string to_string(const AttentionCase& problem);

/// A problem of these sizes, with the run's next seed. What else a test wants it sets in the result.
AttentionCase problem_of(const AttentionSpec& spec, int batch, int heads_kv, int seqlen_q, int seqlen_kv,
                         Layout layout = Layout::bshd);

}  // namespace jit::testing
