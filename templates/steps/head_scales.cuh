// What q, k and v of 8 bits are multiplied by, whose elements are left as they are. One number each for a work tile: those
// of q and k are factors of the softmax scale. Or one for each query and key: they are factors of scores, and those of a
// tile of keys lie beside it in shared memory, as those of blocks of keys do. Blocks that do not begin where tiles do are
// looked up query by query and key by key. Those of v are factors of the output. k and v alone may be of 8 bits.
#pragma once

#include "base/descale_params.cuh"
#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"
#include "scheduling/work_tiles.cuh"
#include "steps/block_factors.cuh"
#include "steps/score_factor.cuh"
#include "steps/value_columns.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Multiplies scores by the scales of their queries and by those of their keys, of which that of the lane's first column
/// lies at a shared address.
template <class Scores>
__device__ __forceinline__ void scale_by_rows(Scores& scores, const float (&of_queries)[Scores::rows],
                                              unsigned of_keys) {
#pragma unroll
  for (int n = 0; n < Scores::column_blocks; ++n) {
    int pair[2];
    load_shared(pair, of_keys + Scores::Layout::column(0, n, 0) * 4);
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      scores.at(r, n, 0) *= of_queries[r] * __int_as_float(pair[0]);
      scores.at(r, n, 1) *= of_queries[r] * __int_as_float(pair[1]);
    }
  }
}

/// What makes scores of products.
enum class ScoreScales {
  none,         ///< elements are of 16 bits, and were never of 8
  work_tile,    ///< one number of q and k
  upcast_keys,  ///< one of keys alone, which may be any
  rows,         ///< one for each query and key
  blocks,       ///< one for each block of queries, and of keys, of which a tile has whole ones or halves
};
template <class Config>
inline constexpr ScoreScales score_scales = !has_scaled_keys<Config>            ? ScoreScales::none
                                            : !is_fp8<typename Config::Element> ? ScoreScales::upcast_keys
                                            : has_block_factors<Config>         ? ScoreScales::blocks
                                            : has_row_scales<Config>            ? ScoreScales::rows
                                                                                : ScoreScales::work_tile;

/// Of a warp's `Scores`.
template <class Config, class Scores, ScoreScales = score_scales<Config>>
class HeadScales {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams&)
      : params_(params) {}

  /// Reads those of q and k. The warp's first row is that of the work tile's query `warp_row`; `find_context`, a function
  /// without arguments, finds its BlockContext.
  template <class FindContext>
  __device__ __forceinline__ void take_scores(const WorkTile&, int /*warp_row*/, FindContext) {}
  /// Reads that of v.
  __device__ __forceinline__ void take_values(const WorkTile&) {}
  /// What makes a score of a product of elements of q and k.
  __device__ __forceinline__ float of_scores() const { return params_.softmax_scale; }
  /// Of the tile of keys whose scales lie at a shared address.
  __device__ __forceinline__ void scale_scores(Scores&, unsigned) const {}
  template <class Output>
  __device__ __forceinline__ void scale_output(Output&) const {}
  /// What a row of the output is multiplied by that is to be multiplied by `inverse`, and by the scale of values.
  __device__ __forceinline__ float output_factor(float inverse) const { return inverse; }
  /// The batch entry and KV head of values whose columns are finished one by one.
  __device__ __forceinline__ int value_slice() const { return 0; }

 private:
  const AttentionParams& params_;
};

/// Those of values: of a KV head or of all, or what each column has.
template <class Config>
class ValueScale {
 public:
  __device__ __forceinline__ ValueScale(const AttentionParams& params, const DescaleParams& descale)
      : params_(params), descale_(descale) {}

  __device__ __forceinline__ void take_values(const WorkTile& work) {
    if constexpr (finishes_columns<Config>) {
      slice_ = work.batch * params_.heads_kv + work.head / Config::gqa_ratio;
    } else {
      of_values_ = read(descale_.v, descale_.v_strides, work);  // mutate: ValuesUnscaled
    }
  }
  template <class Output>
  __device__ __forceinline__ void scale_output(Output& output) const {
    if constexpr (finishes_columns<Config>) return;
    float scale[Output::rows];
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) scale[r] = of_values_;
    output.scale_rows(scale);
  }
  /// 0 for a row without keys, whose output is 0 and stays so beside a scale that is no number.
  __device__ __forceinline__ float output_factor(float inverse) const {
    if constexpr (finishes_columns<Config>) return inverse;
    return keep_if_has_keys(inverse * of_values_, inverse);
  }
  __device__ __forceinline__ int value_slice() const { return slice_; }

 protected:
  static __device__ __forceinline__ float read(const float* scales, const TensorStrides& strides,
                                               const WorkTile& work) {
    const int kv_head = work.head / Config::gqa_ratio;  // mutate: ScaleOfAnotherHead
    // mutate: ScaleOfAnotherEntry
    return scales != nullptr ? scales[work.batch * strides.batch + kv_head * strides.head] : 1.0f;
  }

  const AttentionParams& params_;
  const DescaleParams& descale_;

 private:
  float of_values_ = 0;
  int slice_ = 0;  // of batch entries and KV heads
};

/// One for a work tile.
template <class Config, class Scores>
class HeadScales<Config, Scores, ScoreScales::work_tile> : public ValueScale<Config> {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  template <class FindContext>
  __device__ __forceinline__ void take_scores(const WorkTile& work, int /*warp_row*/, FindContext) {
    const DescaleParams& descale = this->descale_;
    const float scale =
        // mutate: KeysUnscaled
        this->read(descale.q, descale.q_strides, work) * this->read(descale.k, descale.k_strides, work);
    // Times 0, −inf of a dropped key would be no number; times a negative number, maxima would be minima.
    constexpr float least = 0x1p-100f;
    of_scores_ = scale < 0 ? __int_as_float(0x7fffffff) : max_nan(this->params_.softmax_scale * scale, least);
  }
  __device__ __forceinline__ float of_scores() const { return of_scores_; }
  __device__ __forceinline__ void scale_scores(Scores&, unsigned) const {}

 private:
  float of_scores_ = 0;
};

/// One for a work tile, of keys alone, which may be any number.
template <class Config, class Scores>
class HeadScales<Config, Scores, ScoreScales::upcast_keys> : public ValueScale<Config> {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  template <class FindContext>
  __device__ __forceinline__ void take_scores(const WorkTile& work, int /*warp_row*/, FindContext) {
    const float scale = this->read(this->descale_.k, this->descale_.k_strides, work);
    // Of a functor it is a factor of what that takes.
    keys_ = Config::Score::is_identity ? score_factor(scale) : ScoreFactor{scale, 1.0f};
  }
  // mutate: KeysOfManyUnscaled
  __device__ __forceinline__ float of_scores() const { return this->params_.softmax_scale * keys_.exponents; }
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned) const {
    if constexpr (Config::Score::is_identity) keys_.scale(scores);
  }

 private:
  ScoreFactor keys_;
};

/// One for each query and key.
template <class Config, class Scores>
class HeadScales<Config, Scores, ScoreScales::rows> : public ValueScale<Config> {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  template <class FindContext>
  __device__ __forceinline__ void take_scores(const WorkTile& work, int warp_row, FindContext find_context) {
    const BlockContext context = find_context();
    const TensorStrides& strides = this->descale_.q_strides;
    const float* const of_head = this->descale_.q + work.batch * strides.batch + work.head * strides.head;
    const int first = work.q_begin + warp_row + MmaLayout::lane_row(static_cast<int>(threadIdx.x));
    Scores::for_each_row(first, [&](int r, int row) {
      const int query = minimum(row, context.seqlen_q - 1);
      of_queries_[r] = of_head[(context.q_begin + query) / rows_of_scale<Config> * strides.seq];
    });
  }
  __device__ __forceinline__ float of_scores() const { return this->params_.softmax_scale; }
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned scales) const {
    scale_by_rows(scores, of_queries_, scales + MmaLayout::lane_column(reread_thread_index()) * 4);
  }

 private:
  float of_queries_[Scores::rows] = {};
};

/// One for each block of queries, of which a warp has one, and of keys, of which a tile has a few. They are factors of
/// exponents, so that scores need no multiplication of their own, but where a functor wants to see them.
template <class Config, class Scores>
class HeadScales<Config, Scores, ScoreScales::blocks> : public ValueScale<Config> {
  using Factors = BlockFactors<Scores, Config::tile_kv>;
  static_assert(scale_block_rows % (Scores::row_blocks * Scores::Layout::block_rows) == 0,
                "a warp's rows, which begin with a multiple of their number, are of one block");

 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  template <class FindContext>
  __device__ __forceinline__ void take_scores(const WorkTile& work, int warp_row, FindContext find_context) {
    const TensorStrides& strides = this->descale_.q_strides;
    const int last = find_context().seqlen_q - 1;
    const int block = minimum(work.q_begin + warp_row, last) / scale_block_rows;
    of_queries_ =
        this->descale_.q[work.batch * strides.batch + work.head * strides.head + block * strides.seq];
  }
  __device__ __forceinline__ float of_scores() const { return this->params_.softmax_scale; }
  /// Reads those of a tile of keys, which `factors` are for.
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned scales) {
    factors_.take(of_queries_, scales);
    if constexpr (!Config::Score::is_identity) factors_.scale(scores);
  }
  __device__ __forceinline__ Factors& factors() { return factors_; }

 private:
  float of_queries_ = 0;
  Factors factors_;
};

}  // namespace jit
