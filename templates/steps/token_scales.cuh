// Scales of tokens, of which those of queries are factors of exponents and those of keys factors of scores: a
// multiplication for each score, where HeadScales (head_scales.cuh) has two. For scores that no functor wants to see.
#pragma once

#include "base/descale_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/scores.cuh"
#include "ptx/math.cuh"
#include "scheduling/work_tiles.cuh"
#include "steps/head_scales.cuh"
#include "steps/softmax.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Of a warp's `Scores`, with the members of HeadScales.
template <class Config, class Scores>
class TokenScales : public ValueScale<Config> {
 public:
  __device__ __forceinline__ TokenScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  template <class FindContext>
  __device__ __forceinline__ void take_scores(const WorkTile& work, int warp_row, FindContext find_context) {
    const BlockContext context = find_context();
    const TensorStrides& strides = this->descale_.q_strides;
    const float* const of_head = this->descale_.q + work.batch * strides.batch + work.head * strides.head;
    const int first = work.q_begin + warp_row + MmaLayout::lane_row(static_cast<int>(threadIdx.x));
    negative_ = 0;
    Scores::for_each_row(first, [&](int r, int row) {
      // mutate: ScaleOfAnotherQuery
      const float scale = of_head[(context.q_begin + minimum(row, context.seqlen_q - 1)) * strides.seq];
      // Times 0, −inf of a dropped key would be no number.
      constexpr float least = 0x1p-100f;
      exponents_.of_rows[r] =
          exponent_scale<typename Config::Score>(max_nan(::fabsf(scale) * of_scores(), least));
      if (scale < 0) negative_ |= 1 << r;
    });
    has_negative_ = __any_sync(full_warp, negative_ != 0);
  }
  __device__ __forceinline__ float of_scores() const { return this->params_.softmax_scale; }
  /// What makes exponents of 2 of the scores that `scale_scores` leaves.
  __device__ __forceinline__ const RowScales<Scores::rows>& exponents() const { return exponents_; }
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned scales) const {
    const unsigned of_keys = scales + MmaLayout::lane_column(reread_thread_index()) * 4;
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n) {
      int pair[2];
      load_shared(pair, of_keys + Scores::Layout::column(0, n, 0) * 4);
#pragma unroll
      for (int r = 0; r < Scores::rows; ++r) {
        scores.at(r, n, 0) *= __int_as_float(pair[0]);
        scores.at(r, n, 1) *= __int_as_float(pair[1]);
      }
    }
    if (!has_negative_) return;
    float signs[Scores::rows];
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) signs[r] = (negative_ >> r & 1) != 0 ? -1.0f : 1.0f;
    scores.scale_rows(signs);
  }

 private:
  RowScales<Scores::rows> exponents_{};
  int negative_ = 0;           // a bit for each row of the lane's
  bool has_negative_ = false;  // some row of the warp
};

}  // namespace jit
