// Stores the keys and values of new tokens in a cache, and on the way normalises and rotates them and the queries. A
// block has some of the rows of one token: its heads of q, then of k, then of v. A few lanes of a warp have a row.
#pragma once

#include "append/params.cuh"
#include "append/rotation.cuh"
#include "append/stored_rows.cuh"
#include "append/token_place.cuh"
#include "base/dependent_launch.cuh"
#include "base/prelude.cuh"
#include "base/row_lanes.cuh"
#include "base/row_pieces.cuh"

namespace jit {

/// One token's rows, for the lanes that have one of them.
template <class Config>
class TokenRows {
  using Element = typename Config::Element;
  using CacheElement = typename Config::CacheElement;
  using WeightElement = typename Config::WeightElement;
  static constexpr RowLanes rotated = rotated_lanes<Config>;
  static constexpr RowLanes copied = row_lanes(Config::head_dim_v, Config::head_dim_v, sizeof(Element));

 public:
  /// For a row, of any kind.
  static constexpr int lanes = maximum(rotated.lanes, copied.lanes);

  __device__ __forceinline__ TokenRows(const AppendParams& params, int token)
      : params_(params),
        batch_(token / params.seqlen),
        seq_(token % params.seqlen),
        place_(place_of(params, token)),
        lane_(threadIdx.x % lanes),
        rotation_(params, token, place_.position, lane_, lanes) {}

  /// Nothing is done for a token whose position is none of the table's.
  __device__ __forceinline__ bool is_possible() const { return rotation_.is_possible(); }

  /// Moves one of the rows, by all lanes of a warp; those without a row have `is_row` false.
  __device__ __forceinline__ void move(int row, bool is_row) const {
    const int head = row - params_.heads_q;  // of k, then of v
    const bool is_query = is_row && head < 0, is_stored = is_row && head >= 0 && place_.is_stored;
    const bool is_key = is_stored && head < params_.heads_kv;
    if (is_stored && !is_key) copy_value(head - params_.heads_kv);

    const Element* source =
        is_query ? new_row(params_.q, params_.q_strides, row) : new_row(params_.k, params_.k_strides, head);
    const void* weights = is_query ? params_.q_norm_weight : params_.k_norm_weight;
    float x[rotated.turns][rotated.piece] = {};
    if (is_query || is_key) load_row(source, x);
    const float factor = norm_factor(x);
    if (is_query || is_key) rotate(source, weights, factor, x);
    __syncwarp();  // q may be rotated in place
    if (is_query) store_query(row, x);
    if (is_key) store_key(head, x);
  }

 private:
  __device__ __forceinline__ void copy_value(int head) const {
    const Element* source = new_row(params_.v, params_.v_strides, head);
    CacheElement* target = cache_row(params_.v_cache, params_.v_cache_strides, head);
    const float scale = stored_scale<CacheElement>(params_.v_scale, params_.v_scale_stride, head);
    constexpr int turns = (copied.pieces + lanes - 1) / lanes;
#pragma unroll
    for (int turn = 0; turn < turns; ++turn) {
      if (!has_piece(copied, turn)) continue;
      float piece[copied.piece];  // 16 bits of either type come back as they were
      load_piece<Config::alignment>(source + column(copied, turn), piece);
      store_in_cache<cache_alignment>(target + column(copied, turn), piece, scale);
    }
  }

  __device__ __forceinline__ void load_row(const Element* source,
                                           float (&x)[rotated.turns][rotated.piece]) const {
#pragma unroll
    for (int turn = 0; turn < rotated.turns; ++turn) {
      if (has_piece(rotated, turn)) load_piece<Config::alignment>(source + column(rotated, turn), x[turn]);
    }
  }

  __device__ __forceinline__ void store_query(int head,
                                              const float (&x)[rotated.turns][rotated.piece]) const {
    Element* target = new_row(params_.q_out, params_.q_out_strides, head);
#pragma unroll
    for (int turn = 0; turn < rotated.turns; ++turn) {
      if (has_piece(rotated, turn)) store_piece<Config::alignment>(target + column(rotated, turn), x[turn]);
    }
  }

  __device__ __forceinline__ void store_key(int head, const float (&x)[rotated.turns][rotated.piece]) const {
    CacheElement* target = cache_row(params_.k_cache, params_.k_cache_strides, head);
    const float scale = stored_scale<CacheElement>(params_.k_scale, params_.k_scale_stride, head);
#pragma unroll
    for (int turn = 0; turn < rotated.turns; ++turn) {
      if (has_piece(rotated, turn))
        store_in_cache<cache_alignment>(target + column(rotated, turn), x[turn], scale);
    }
  }

  /// Normalises and rotates what was loaded of a row. The pairs' other halves are other lanes', and read once more.
  __device__ __forceinline__ void rotate(const Element* source, const void* weights, float factor,
                                         float (&x)[rotated.turns][rotated.piece]) const {
#pragma unroll
    for (int turn = 0; turn < rotated.turns; ++turn) {
      const int begin = column(rotated, turn);
      if (!has_piece(rotated, turn)) continue;
      normalise(x[turn], begin, factor, weights);
      if constexpr (Config::rotary_dim != 0) {
        if (begin >= Config::rotary_dim) continue;
        float partners[rotated.piece] = {};
        if constexpr (!Config::rotary_interleaved) {
          load_piece<Config::alignment>(source + rotation_.partner(begin), partners);
          normalise(partners, rotation_.partner(begin), factor, weights);
        }
        rotation_.rotate(x[turn], partners, begin, turn);
      }
    }
  }

  /// 1 / sqrt(mean(x²) + eps) of the row.
  __device__ __forceinline__ float norm_factor(const float (&row)[rotated.turns][rotated.piece]) const {
    if constexpr (!Config::norm) return 1.0f;
    float sum = 0;
#pragma unroll
    for (int turn = 0; turn < rotated.turns; ++turn) {
#pragma unroll
      for (int i = 0; i < rotated.piece; ++i) sum += row[turn][i] * row[turn][i];
    }
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(full_warp, sum, offset);
    return rsqrtf(sum / Config::head_dim + params_.norm_eps);
  }

  __device__ __forceinline__ void normalise(float (&values)[rotated.piece], int begin, float factor,
                                            const void* weights) const {
    if constexpr (Config::norm) {
      float weight[rotated.piece];
      load_piece<Config::alignment>(static_cast<const WeightElement*>(weights) + begin, weight);
#pragma unroll
      for (int i = 0; i < rotated.piece; ++i)
        values[i] *= factor * (Config::norm_adds_one ? 1.0f + weight[i] : weight[i]);
    }
  }

  static constexpr int cache_alignment =
      Config::alignment * static_cast<int>(sizeof(CacheElement)) / static_cast<int>(sizeof(Element));

  __device__ __forceinline__ int column(const RowLanes& share, int turn) const {
    return (turn * lanes + lane_) * share.piece;
  }
  __device__ __forceinline__ bool has_piece(const RowLanes& share, int turn) const {
    return turn * lanes + lane_ < share.pieces;
  }
  template <class Pointer>
  __device__ __forceinline__ auto new_row(Pointer data, const TensorStrides& strides, int head) const {
    using Row = decltype(element_pointer(data));
    return static_cast<Row>(data) + batch_ * strides.batch + seq_ * strides.seq + head * strides.head;
  }
  static __device__ const Element* element_pointer(const void*);
  static __device__ Element* element_pointer(void*);
  __device__ __forceinline__ CacheElement* cache_row(void* cache, const TensorStrides& strides,
                                                     int head) const {
    return static_cast<CacheElement*>(cache) + place_.page * strides.batch + place_.offset * strides.seq +
           head * strides.head;
  }

  const AppendParams& params_;
  int batch_, seq_;
  TokenPlace place_;
  int lane_;
  Rotation<Config> rotation_;
};

template <class Config>
__device__ __forceinline__ void append_rows(const AppendParams& params) {
  wait_for_grids_before();
  const TokenRows<Config> token(params, static_cast<int>(blockIdx.x));
  constexpr int lanes = TokenRows<Config>::lanes;
  const int begin = static_cast<int>(blockIdx.y) * params.rows_per_block;
  const int end = minimum(begin + params.rows_per_block, params.heads_q + 2 * params.heads_kv);
  const int rows_at_once = static_cast<int>(blockDim.x) / lanes, own = static_cast<int>(threadIdx.x) / lanes;
  if (token.is_possible()) {
    for (int row = begin; row < end; row += rows_at_once) token.move(row + own, row + own < end);
  }
  let_next_grid_start();
}

}  // namespace jit
