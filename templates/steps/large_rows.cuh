// Rows with a large LSE. As an exponent of 2, a float, it has an error of 2^-8 and more from 2^17 on; from 2^24 on it
// does not even tell how many keys share the row. The largest score of such a row, and its LSE relative to it, are
// computed again:
//
//     max, lse_log2 = log2 Σ 2^((s − max) · factor)        P = 2^((s − max) · factor − lse_log2)
//
// Scores are fp32 sums in a fixed order, so that all kernels that recompute one get the same bits. Gradient kernels
// skip these rows, whose lse_log2 is +inf; their gradients are added at the end (steps/large_row_gradients.cuh).
#pragma once

#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "base/warp_sum.cuh"
#include "problem/dual.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/tensor_reads.cuh"
#include "ptx/math.cuh"
#include "ptx/relaxed.cuh"
#include "steps/score_gradients.cuh"

namespace jit {

/// The factor that takes scores of a kernel to natural units.
template <class Config>
JIT_DEVICE float score_unit(const AttentionParams& params) {
  return Config::Score::is_identity ? params.softmax_scale : 1.0f;
}

/// Terms of a pair of a query and a key, without constant factors: P with dropout, times do, for dv; dS, times q, for
/// dk and, times k, for dq.
struct PairGradient {
  float p;
  float ds;
};

/// Recomputes pairs of one query head of a batch entry, one pair per lane.
template <class Config>
class LargeRows {
  using Score = typename Config::Score;
  using Element = typename Config::Element;

 public:
  JIT_DEVICE LargeRows(const AttentionParams& params, const GradientParams& gradient_params,
                       const SequencesOf<Config>& sequences, int batch, int head)
      : params_(params),
        gradient_params_(gradient_params),
        sequences_(sequences),
        context_(sequences.context(batch, head)),
        mask_(context_),
        score_(context_) {}

  /// A range that contains all keys that a query sees.
  JIT_DEVICE KeyRange keys(int query) const {
    const KeyRange range = [&] {
      if constexpr (has_row_range<typename Config::Mask>) {
        return mask_.row_range(query);
      } else {
        return mask_.key_range(query, query + 1);
      }
    }();
    return {maximum(range.begin, 0), minimum(range.end, context_.seqlen_kv)};
  }
  JIT_DEVICE bool sees(int query, int key) const { return mask_.keep(query, key); }

  /// The argument of score functors.
  JIT_DEVICE Dual scaled_product(int query, int key) const {
    return {__fmul_rn(dot<Config::head_dim>(query_row(query), key_row(key)), params_.softmax_scale), 1.0f};
  }
  /// The score as kernels have it, a product where the functor is an identity, and its derivative by the scaled product.
  JIT_DEVICE Dual score(int query, int key) const {
    if constexpr (Score::is_identity) {
      return {dot<Config::head_dim>(query_row(query), key_row(key)), 1.0f};
    } else {
      const Dual scaled = scaled_product(query, key);
      Dual applied = scaled;
      if constexpr (requires { Config::gradient_slots; }) {
        TensorReads<Config::gradient_slots> reads(gradient_params_.tensors);
        reads.begin(-1);  // no derivative with respect to a read is computed
        applied = score_.apply(scaled, query, key, reads);
      } else {
        applied = score_.apply(scaled, query, key);
      }
      // Keeps both results alive, so that the compiler fuses the same operations in all kernels.
      asm volatile("" : "+f"(applied.value), "+f"(applied.derivative));
      return applied;
    }
  }
  JIT_DEVICE float probability(float score, const RowOrigin& origin) const {
    return ex2(__fmaf_rn(score - origin.max, factor(), -origin.lse_log2));
  }

  /// dP of a pair: do · v.
  JIT_DEVICE float d_probability(int query, int key) const {
    return dot<Config::head_dim_v>(
        do_row(query), sequences_.value_rows(context_.batch, sequences_.kv_head(context_.head)).at(key));
  }

  /// The gradient of the mean of the query's scores, times the same as others.
  JIT_DEVICE float d_mean(int query) const {
    const float own =
        Gradients<Config>(params_, gradient_params_, sequences_).d_mean(context_.batch, context_.head, query);
    if constexpr (has_dropout<Config>) return own * params_.dropout.keep_probability;
    return own;
  }

  /// The gradient of a key that the query sees. Gradients are times what keep_probability makes of delta;
  /// with dropout `kept` says whether the score is.
  JIT_DEVICE PairGradient gradient(int query, int key, const RowOrigin& origin, float delta,
                                   bool kept) const {
    const Dual s = score(query, key);
    const float p = probability(s.value, origin);
    if (p == 0) return {0, 0};  // also of scores of −inf, whose derivative may be anything
    float d_p = kept ? d_probability(query, key) : 0.0f;  // mutate: LargeRowsKeepAll
    if constexpr (has_mean_score<Config>) d_p = __fmaf_rn(d_mean(query), s.value * (factor() * ln_2), d_p);
    // mutate: LargeRowsWithoutDelta
    return {kept ? p : 0.0f, p * (d_p - delta) * s.derivative};
  }

  /// Whether the query's row of O or LSE has a gradient. Padding rows, whose keys all have a bias of −1e9, usually have
  /// none, and are skipped. By a whole warp.
  JIT_DEVICE bool has_gradient(int query) const {
    const Element* const row = do_row(query);
    bool is_some = Gradients<Config>(params_, gradient_params_, sequences_)
                       .d_lse(context_.batch, context_.head, query) != 0;
    if constexpr (has_mean_score<Config>) is_some |= d_mean(query) != 0;
#pragma unroll 1
    for (int d = lane_id(); d < Config::head_dim_v; d += warp_size) is_some |= to_float(row[d]) != 0;
    return __any_sync(full_warp, is_some);
  }

  /// The origin of a query that is a large row. By a whole warp.
  JIT_DEVICE RowOrigin origin(int query) const {
    const KeyRange range = keys(query);
    // Maximum and sum over the keys of a lane.
    float max = negative_infinity(), sum = 0;
#pragma unroll 1
    for (int key = range.begin + lane_id(); key < range.end; key += warp_size) {
      if (!sees(query, key)) continue;
      const float own = score(query, key).value, next = ::fmaxf(max, own);
      if (next == negative_infinity()) continue;
      sum = __fmaf_rn(sum, ex2((max - next) * factor()), ex2((own - next) * factor()));
      max = next;
    }
    float largest = max;
#pragma unroll
    for (int other = 1; other < warp_size; other *= 2)
      largest = ::fmaxf(largest, __shfl_xor_sync(full_warp, largest, other));
    const float* const sinks = params_.sequences.sinks;
    // A row without keys has a large LSE only because of its sink.
    const bool has_keys = largest != negative_infinity();
    if (!has_keys) largest = 0;
    // mutate: TheSumOfALane
    sum = warp_sum(has_keys ? sum * ex2((max - largest) * factor()) : 0.0f);
    if (sinks == nullptr) return {largest, lg2(sum)};
    constexpr float alone = 64;  // as an exponent of 2: keys are nothing beside it
    const float sink = sink_exponent(sinks[context_.head], largest, score_unit<Config>(params_));
    // mutate: TheSinkIsNoKey
    return {largest, sink > alone ? sink : lg2(sum + ex2(sink))};
  }

  JIT_DEVICE const Element* query_row(int query) const {
    return sequences_.query_rows(context_.batch, context_.head).at(query);
  }
  JIT_DEVICE const Element* key_row(int key) const {
    return sequences_.key_rows(context_.batch, sequences_.kv_head(context_.head)).at(key);
  }
  JIT_DEVICE const Element* do_row(int query) const {
    return Gradients<Config>(params_, gradient_params_, sequences_)
        .do_rows(context_.batch, context_.head)
        .at(query);
  }
  JIT_DEVICE const BlockContext& context() const { return context_; }
  JIT_DEVICE const Score& functor() const { return score_; }

 private:
  JIT_DEVICE float factor() const { return score_exponent<Score>(params_.softmax_scale); }

  // In the order of elements.
  template <int elements>
  static JIT_DEVICE float dot(const Element* a, const Element* b) {
    constexpr int piece = 8;
    float sum = 0;
#pragma unroll 1
    for (int d = 0; d < elements; d += piece) {
      float x[piece], y[piece];
      load_piece<Config::alignment>(a + d, x);
      load_piece<Config::alignment>(b + d, y);
#pragma unroll
      for (int i = 0; i < piece; ++i) sum = __fmaf_rn(x[i], y[i], sum);
    }
    return sum;
  }

  const AttentionParams& params_;
  const GradientParams& gradient_params_;
  const SequencesOf<Config>& sequences_;
  const BlockContext context_;
  const typename Config::Mask mask_;
  const Score score_;
};

/// Writes the origin of a large row, and that the call has such rows, if it sees keys; no_origin if it has no gradient. By a
/// whole warp.
template <class Config>
JIT_DEVICE RowOrigin find_origin(const LargeRows<Config>& rows, int query, RowOrigin* place,
                                 unsigned* large_rows) {
  const RowOrigin origin = rows.has_gradient(query) ? rows.origin(query) : no_origin();
  if (lane_id() == 0) {
    *place = origin;
    const KeyRange keys = rows.keys(query);
    if (is_large_row(origin) && keys.begin < keys.end)
      store_relaxed(large_rows, 1u);  // mutate: NobodyHearsOfLargeRows
  }
  return origin;
}

}  // namespace jit
