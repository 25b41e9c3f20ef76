// Gradients of attention in fp64: what backward kernels are measured against.
#pragma once

#include <functional>
#include <vector>

#include <jit/tensor.h>

#include "tests/support/attention_problem.h"

namespace jit::reference {

/// An attention problem in doubles, and the gradient of its output. Tensors are dense, as the kernels' are.
struct GradientProblem {
  int batch = 1;
  int heads_kv = 1;
  int gqa_ratio = 1;
  int seqlen_q = 1;
  int seqlen_kv = 1;
  int head_dim = 8;
  int head_dim_v = 8;
  std::vector<double> q = {};      ///< (batch, seqlen_q, heads_q, head_dim)
  std::vector<double> k = {};      ///< (batch, seqlen_kv, heads_kv, head_dim)
  std::vector<double> v = {};      ///< (batch, seqlen_kv, heads_kv, head_dim_v)
  std::vector<double> d_o = {};    ///< (batch, seqlen_q, heads_q, head_dim_v)
  std::vector<double> d_lse = {};  ///< (batch, heads_q, seqlen_q); empty: zeros
  std::vector<double> sinks = {};  ///< (heads_q); empty: none
  double softmax_scale = 1;
  Keep keep = nullptr;            ///< empty: every key
  ScoreFunction score = nullptr;  ///< empty: the score as it is
  /// The factor of a probability behind the softmax: dropout's 0 or 1 / (1 − rate). Empty: 1.
  std::function<double(int b, int h, int q, int k)> weight = nullptr;

  int heads_q() const { return heads_kv * gqa_ratio; }
};

struct ForwardResult {
  std::vector<double> o;    ///< as d_o
  std::vector<double> lse;  ///< (batch, heads_q, seqlen_q)
};
ForwardResult attention_forward(const GradientProblem& problem);

struct GradientResult {
  std::vector<double> dq, dk, dv;    ///< as q, k, v
  std::vector<double> d_sinks = {};  ///< as sinks
  /// dP − delta is a difference of two sums in fp32. Where it cancels (a query of one key has dP = delta), their rounding
  /// errors remain: about this much of the largest element of dq and of dk.
  double dq_cancellation = 0, dk_cancellation = 0;
  double d_sinks_magnitude =
      0;  ///< the largest sum, over the rows of a head, of absolute values that d_sinks adds
};

/// Called for each score that counts: its place, the raw score, and the gradient of what the score function makes of
/// it.
using SeeScore = std::function<void(int b, int h, int q, int k, double raw, double gradient)>;

/// Derivatives of the score function are difference quotients.
GradientResult attention_gradients(const GradientProblem& problem, const SeeScore& see = nullptr);

/// Gradients as an unfused framework computes them with tensors of a 16-bit type: o, probabilities, gradients
/// of scores, results, and the input and output of the score function are rounded. Its error is the yardstick
/// for the kernels'.
GradientResult attention_gradients_plain(const GradientProblem& problem, DType dtype,
                                         const SeeScore& see = nullptr);

/// Exact, but for an o that is rounded, as every backward is given it: delta is that of the rounded one.
GradientResult attention_gradients_by_rounded_o(const GradientProblem& problem, DType dtype);

}  // namespace jit::reference
