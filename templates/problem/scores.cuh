// Built-in score functors and how they chain. A score is softmax_scale · q·k, in natural units; a functor is
// a struct with
//   explicit Score(const BlockContext&)
//   Number apply(Number score, int q, int k)
// of floats and, in backward, of numbers that carry their derivative along (problem/dual.cuh); `is_identity` tells the
// kernel to fold the scale into the exponent instead. Kernels of the gradients of tensors give `apply` a fourth
// argument, through which a score says what it reads (problem/tensor_reads.cuh).
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "ptx/math.cuh"

namespace jit {

/// The identity.
struct NoScore {
  static constexpr bool is_identity = true;
  __device__ explicit NoScore(const BlockContext&) {}
  template <class Number, class... Reads>
  __device__ Number apply(Number score, int, int, Reads&...) const {
    return score;
  }
};

/// cap · tanh(score / cap). Constants::cap is the cap.
template <class Constants>
struct SoftcapScore {
  static constexpr bool is_identity = false;
  __device__ explicit SoftcapScore(const BlockContext&) {}
  template <class Number, class... Reads>
  __device__ Number apply(Number score, int, int, Reads&...) const {
    return Constants::cap * tanh_approx(score * (1.0f / Constants::cap));
  }
};
template <class Score>
inline constexpr bool is_softcap = false;
template <class Constants>
inline constexpr bool is_softcap<SoftcapScore<Constants>> = true;

/// score − slope(batch, head) · |q + seqlen_kv − seqlen_q − k|, slopes fp32 (heads_q) or (batch, heads_q) in
/// slot `slot` ("Train Short, Test Long", Press et al.; the sign and alignment are flash-attention's).
template <int slot>
struct AlibiScore {
  static constexpr bool is_identity = false;
  float slope;
  int shift;
  int batch;
  int head;
  __device__ explicit AlibiScore(const BlockContext& context)
      : slope(tensor_data<float>(context,
                                 slot)[context.batch * context.tensors[slot].strides[0] + context.head]),
        shift(query_shift<Alignment::bottom_right>(context)),
        batch(context.batch),
        head(context.head) {}
  template <class Number, class... Reads>
  __device__ Number apply(Number score, int q, int k, Reads&... reads) const {
    return score -
           tensor_number<slot>(slope, {{batch}, head}, reads...) * fabsf(static_cast<float>(q + shift - k));
  }
};

/// score + bias(batch, head, q, k); a stride of 0 broadcasts.
template <int slot, class T>
struct BiasScore {
  static constexpr bool is_identity = false;
  const T* rows;
  long long row_stride;
  int batch;
  int head;
  __device__ explicit BiasScore(const BlockContext& context)
      : rows(tensor_data<T>(context, slot) + context.batch * context.tensors[slot].strides[0] +
             context.head * context.tensors[slot].strides[1]),
        row_stride(context.tensors[slot].strides[2]),
        batch(context.batch),
        head(context.head) {}
  template <class Number, class... Reads>
  __device__ Number apply(Number score, int q, int k, Reads&... reads) const {
    // As unsigned, so that the upper half of a product of 64 bits takes no other two. Sums of gradients spill so where
    // there is no wgmma, of which nothing waits for a bias.
#if __CUDA_ARCH__ == 900
    const long long row = static_cast<unsigned>(q) * row_stride;
#else
    const long long row = q * row_stride;
#endif
    return score + tensor_number<slot>(to_float(rows[row + k]), {{batch, head, q}, k}, reads...);
  }
};

/// First A, then B.
template <class A, class B>
struct ThenScore {
  static constexpr bool is_identity = A::is_identity && B::is_identity;
  A a;
  B b;
  __device__ explicit ThenScore(const BlockContext& context) : a(context), b(context) {}
  template <class Number, class... Reads>
  __device__ Number apply(Number score, int q, int k, Reads&... reads) const {
    return b.apply(a.apply(score, q, k, reads...), q, k, reads...);
  }
};

/// The largest magnitude of a functor's results.
template <class Score>
inline constexpr float largest_score = 0x1p127f;
template <class Constants>
inline constexpr float largest_score<SoftcapScore<Constants>> = static_cast<float>(Constants::cap);
template <class A, class B>
inline constexpr float largest_score<ThenScore<A, B>> = largest_score<B>;

/// Whether a score can drop a key, as a mask does, by returning −inf.
template <class Score>
inline constexpr bool may_drop_keys = !Score::is_identity;
template <class Constants>
inline constexpr bool may_drop_keys<SoftcapScore<Constants>> = false;
template <int slot>
inline constexpr bool may_drop_keys<AlibiScore<slot>> = false;
template <class A, class B>
inline constexpr bool may_drop_keys<ThenScore<A, B>> = may_drop_keys<A> || may_drop_keys<B>;

/// Constant factors of a score that kernels merge into others: `apply` takes the score's argument times `input`, and
/// its result times `output` is the score's result.
template <class Score>
struct ScoreFactors {
  static constexpr float input = 1;
  static constexpr float output = 1;
  static JIT_DEVICE float apply(const Score& score, float x, int q, int k) { return score.apply(x, q, k); }
};
template <class Constants>
struct ScoreFactors<SoftcapScore<Constants>> {
  static constexpr float input = 1.0f / Constants::cap;
  static constexpr float output = Constants::cap;
  static JIT_DEVICE float apply(const SoftcapScore<Constants>&, float x, int, int) { return tanh_approx(x); }
};

/// The factor from the results of `apply_functors` to exponents of 2.
template <class Score>
JIT_DEVICE float exponent_scale(float softmax_scale) {
  return Score::is_identity ? softmax_scale * log2_e : ScoreFactors<Score>::output * log2_e;
}

}  // namespace jit
