// What q, k and v of 8 bits are multiplied by, whose elements are left as they are. One number each for a work tile: those
// of q and k are factors of the softmax scale. Or one for each query and key: they are factors of scores, and the key
// loader leaves those of a tile of keys beside it, as it does those of blocks of keys. Those of v are factors of the output.
#pragma once

#include "base/descale_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/traits.cuh"
#include "forward_wgmma/work.cuh"
#include "ptx/math.cuh"
#include "scheduling/work_tiles.cuh"
#include "steps/block_factors.cuh"
#include "steps/value_columns.cuh"

namespace jit::forward_wgmma {

/// Elements of 16 bits have no scales.
template <class Config, bool has_fp8 = keys_are_fp8<Config>, bool has_each = has_token_scales<Config>,
          bool has_blocks = has_block_scales<Config>>
class HeadScales {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams&)
      : params_(params) {}

  /// Reads those of q and k.
  template <class Tile>
  __device__ __forceinline__ void take_scores(const Tile&, int) {}
  /// Reads that of v.
  __device__ __forceinline__ void take_values(const WorkTile&) {}
  /// What makes a score of a product of elements of q and k.
  __device__ __forceinline__ float of_scores() const { return params_.softmax_scale; }
  /// Of the tile of keys whose scales lie at a shared address.
  template <class Scores>
  __device__ __forceinline__ void scale_scores(Scores&, unsigned) const {}
  template <class Output>
  __device__ __forceinline__ void scale_output(Output&) const {}
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
      of_values_ = read(descale_.v, descale_.v_strides, work);
    }
  }
  template <class Output>
  __device__ __forceinline__ void scale_output(Output& output) const {
    if constexpr (finishes_columns<Config>) return;
    const float scale[Output::rows] = {of_values_, of_values_};
    output.scale_rows(scale);
  }
  __device__ __forceinline__ int value_slice() const { return slice_; }

 protected:
  static __device__ __forceinline__ float read(const float* scales, const TensorStrides& strides,
                                               const WorkTile& work) {
    const int kv_head = work.head / Config::gqa_ratio;
    return scales != nullptr ? scales[work.batch * strides.batch + kv_head * strides.head] : 1.0f;
  }

  const AttentionParams& params_;
  const DescaleParams& descale_;

 private:
  float of_values_ = 0;
  int slice_ = 0;  // of batch entries and KV heads
};

/// One for a work tile.
template <class Config>
class HeadScales<Config, true, false, false> : public ValueScale<Config> {
 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  __device__ __forceinline__ void take_scores(const WorkTile& work, int /*consumer*/) {
    const DescaleParams& descale = this->descale_;
    const float scale =
        this->read(descale.q, descale.q_strides, work) * this->read(descale.k, descale.k_strides, work);
    // Times 0, −inf of a dropped key would be no number; times a negative number, maxima would be minima.
    constexpr float least = 0x1p-100f;
    of_scores_ = scale < 0 ? __int_as_float(0x7fffffff) : max_nan(this->params_.softmax_scale * scale, least);
  }
  __device__ __forceinline__ float of_scores() const { return of_scores_; }
  template <class Scores>
  __device__ __forceinline__ void scale_scores(Scores&, unsigned) const {}

 private:
  float of_scores_ = 0;
};

/// One for each query and key.
template <class Config>
class HeadScales<Config, true, true, false> : public ValueScale<Config> {
  using Scores = typename KernelTraits<Config>::Scores;

 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  template <class Tile>
  __device__ __forceinline__ void take_scores(const Tile& work, int consumer) {
    const BlockContext context = context_of<Config>(this->params_, work);
    const TensorStrides& strides = this->descale_.q_strides;
    const float* const of_head = this->descale_.q + work.batch * strides.batch + work.head * strides.head;
    const int thread = static_cast<int>(threadIdx.x) % warpgroup_size;
    const int first = work.q_begin + consumer * rows_per_warpgroup + thread / warp_size * 16;
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      const int query =
          minimum(MmaLayout::row(first + MmaLayout::lane_row(thread), 0, r), context.seqlen_q - 1);
      of_queries_[r] = of_head[(context.q_begin + query) * strides.seq];
    }
  }
  __device__ __forceinline__ float of_scores() const { return this->params_.softmax_scale; }
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned scales) const {
    const unsigned own = scales + MmaLayout::lane_column(reread_thread_index()) * 4;
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n) {
      int pair[2];
      load_shared(pair, own + MmaLayout::column(0, n, 0) * 4);
#pragma unroll
      for (int r = 0; r < Scores::rows; ++r) {
        scores.at(r, n, 0) *= of_queries_[r] * __int_as_float(pair[0]);
        scores.at(r, n, 1) *= of_queries_[r] * __int_as_float(pair[1]);
      }
    }
  }

 private:
  float of_queries_[Scores::rows] = {};
};

/// One for each block of queries, of which a consumer has one, and of keys, of which a tile has a few. They are factors of
/// exponents, so that scores need no multiplication of their own, but where a functor wants to see them.
template <class Config>
class HeadScales<Config, true, false, true> : public ValueScale<Config> {
  using Scores = typename KernelTraits<Config>::Scores;
  using Factors = BlockFactors<Scores, Config::tile_kv>;
  static_assert(rows_per_warpgroup == scale_block_rows, "a consumer has one block of queries");

 public:
  __device__ __forceinline__ HeadScales(const AttentionParams& params, const DescaleParams& descale)
      : ValueScale<Config>(params, descale) {}

  __device__ __forceinline__ void take_scores(const WorkTile& work, int consumer) {
    const TensorStrides& strides = this->descale_.q_strides;
    const int last = context_of<Config>(this->params_, work).seqlen_q - 1;
    const int block = minimum(work.q_begin + consumer * rows_per_warpgroup, last) / scale_block_rows;
    of_queries_ =
        this->descale_.q[work.batch * strides.batch + work.head * strides.head + block * strides.seq];
  }
  __device__ __forceinline__ float of_scores() const { return this->params_.softmax_scale; }
  /// Reads those of a tile of keys, which `factors` are for.
  __device__ __forceinline__ void scale_scores(Scores& scores, unsigned scales) {
    factors_.take(of_queries_, scales);
    if constexpr (!Config::Score::is_identity) factors_.scale(scores);
  }
  __device__ __forceinline__ const Factors& factors() const { return factors_; }

 private:
  float of_queries_ = 0;
  Factors factors_;
};

/// Leaves the scales of a tile's keys at a shared address. By a whole warp.
template <class Config>
__device__ __forceinline__ void leave_key_scales(const DescaleParams& descale, const WorkTile& work,
                                                 const Sequence& sequence, int k_begin, unsigned target) {
  const TensorStrides& strides = descale.k_strides;
  const float* const of_head =
      descale.k + work.batch * strides.batch + work.head / Config::gqa_ratio * strides.head;
  if constexpr (has_block_scales<Config>) {
    constexpr int keys = keys_of_factor(Config::tile_kv);
    if (const int i = lane_id(); i < Config::tile_kv / keys) {
      const int block = minimum(k_begin + i * keys, sequence.length - 1) / scale_block_rows;
      store_shared(target + i * 4, __float_as_int(of_head[block * strides.seq]));
    }
    return;
  }
#pragma unroll
  for (int i = lane_id(); i < Config::tile_kv; i += warp_size) {
    const int key = minimum(k_begin + i, sequence.length - 1);
    store_shared(target + i * 4, __float_as_int(of_head[(sequence.begin + key) * strides.seq]));
  }
}

}  // namespace jit::forward_wgmma
