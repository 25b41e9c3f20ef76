// Stores the keys and values of new tokens in a cache, and on the way normalises and rotates them and the queries. A
// block has some of the rows of one token: its heads of q, then of k, then of v. A few lanes of a warp have a row.
#pragma once

#include "append/params.cuh"
#include "append/stored_rows.cuh"
#include "append/token_place.cuh"
#include "base/dependent_launch.cuh"
#include "base/fp8_scale.cuh"
#include "base/prelude.cuh"
#include "base/rotary.cuh"
#include "base/row_lanes.cuh"
#include "base/row_norm.cuh"
#include "base/row_pieces.cuh"

namespace jit {

/// One token's rows, for the lanes that have one of them: numbers from 0 on, of q, then of k, then of v.
template <class Config>
class TokenRows {
  using Element = typename Config::Element;
  using CacheElement = typename Config::CacheElement;
  using WeightElement = typename Config::WeightElement;
  static constexpr RowLanes rotated = rotated_lanes<Config>;
  static constexpr RowLanes copied = row_lanes(Config::head_dim_v, Config::head_dim_v, sizeof(Element));
  static constexpr int turns = maximum(rotated.turns, copied.turns);

 public:
  /// For a row, of any kind.
  static constexpr int lanes = maximum(rotated.lanes, copied.lanes);

  /// A lane's pieces of a row.
  struct Row {
    float x[turns][rotated.piece];
  };

  __device__ __forceinline__ TokenRows(const AppendParams& params, int token)
      : params_(params),
        batch_(token / params.seqlen),
        seq_(token % params.seqlen),
        lane_(threadIdx.x % lanes) {}

  /// Reads a row as it is; zeros where there is none.
  __device__ __forceinline__ Row load(int row, bool is_row) const {
    Row loaded = {};
    if (!is_row) return loaded;
    if (is_value(row)) {
      if constexpr (values_are_alike) load_pieces<copied>(value_row(row), loaded);
    } else {
      load_pieces<rotated>(query_or_key_row(row), loaded);
    }
    return loaded;
  }

  /// Moves a row that was loaded, by all lanes of a warp. Rows of k and v whose token has no place stay out.
  __device__ __forceinline__ void move(int row, bool is_row, Row& loaded, const TokenPlace& place,
                                       const Rotation<Config>& rotation) const {
    const bool is_query = row < params_.heads_q;
    const bool is_moved = is_row && (is_query || place.is_stored), is_rotated = is_moved && !is_value(row);
    const float factor = norm_factor(loaded);
    if (is_rotated) rotate(row, factor, rotation, loaded);
    __syncwarp();  // q may be rotated in place
    const float scale = cache_scale(row, is_moved && !is_query, loaded, place);
    if (!is_moved) return;
    if (is_query) {
      Element* target = new_row(params_.q_out, params_.q_out_strides, row);
      for_pieces<rotated>(
          [&](int turn) { store_piece<Config::alignment>(target + column<rotated>(turn), loaded.x[turn]); });
    } else if (is_rotated) {
      const int head = row - params_.heads_q;
      CacheElement* target = cache_row(params_.k_cache, params_.k_cache_strides, place, head);
      for_pieces<rotated>([&](int turn) {
        store_in_cache<cache_alignment>(target + column<rotated>(turn), loaded.x[turn], scale);
      });
    } else {
      store_value(row, loaded, place, scale);
    }
  }

 private:
  /// Whether rows of v are cut as those of q and k are, so that they can be loaded ahead as these are.
  static constexpr bool values_are_alike = copied.piece == rotated.piece;
  static constexpr int cache_alignment =
      Config::alignment * static_cast<int>(sizeof(CacheElement)) / static_cast<int>(sizeof(Element));

  __device__ __forceinline__ bool is_value(int row) const {
    return row >= params_.heads_q + params_.heads_kv;
  }
  __device__ __forceinline__ const Element* query_or_key_row(int row) const {
    return row < params_.heads_q ? new_row(params_.q, params_.q_strides, row)
                                 : new_row(params_.k, params_.k_strides, row - params_.heads_q);
  }
  __device__ __forceinline__ const Element* value_row(int row) const {
    return new_row(params_.v, params_.v_strides, row - params_.heads_q - params_.heads_kv);
  }

  __device__ __forceinline__ void store_value(int row, const Row& loaded, const TokenPlace& place,
                                              float scale) const {
    const int head = row - params_.heads_q - params_.heads_kv;
    CacheElement* target = cache_row(params_.v_cache, params_.v_cache_strides, place, head);
    for_values(row, loaded, [&](int column, const float(&piece)[copied.piece]) {
      store_in_cache<cache_alignment>(target + column, piece, scale);
    });
  }

  /// Calls `use` with each of the lane's pieces of a row of v, behind its first column.
  template <class Use>
  __device__ __forceinline__ void for_values(int row, const Row& loaded, const Use& use) const {
    for_pieces<copied>([&](int turn) {
      if constexpr (values_are_alike) {
        use(column<copied>(turn), loaded.x[turn]);
      } else {
        float piece[copied.piece];
        load_piece<Config::alignment>(value_row(row) + column<copied>(turn), piece);
        use(column<copied>(turn), piece);
      }
    });
  }

  /// What the elements of a row of k or v are divided by as they are stored; left beside them, if each row has its own.
  /// By all lanes of a warp.
  __device__ __forceinline__ float cache_scale(int row, bool is_stored, const Row& loaded,
                                               const TokenPlace& place) const {
    if constexpr (!is_fp8<CacheElement>) {
      return 1.0f;
    } else {
      const int head = row - params_.heads_q - (is_value(row) ? params_.heads_kv : 0);
      float* const scale = is_value(row) ? scale_at(params_.v_scale, params_.v_scale_strides, place, head)
                                         : scale_at(params_.k_scale, params_.k_scale_strides, place, head);
      if constexpr (Config::scale_per == ScaleKind::head) {
        return is_stored && (is_value(row) ? params_.v_scale : params_.k_scale) != nullptr ? *scale : 1.0f;
      } else {
        const float found = scale_of<CacheElement>(largest_magnitude(row, is_stored, loaded));
        if (is_stored && lane_ == 0) *scale = found;
        return found;
      }
    }
  }

  /// Of a row that is there, else of nothing. By all lanes of a warp.
  __device__ __forceinline__ float largest_magnitude(int row, bool is_there, const Row& loaded) const {
    float largest = 0;
    const auto look_at = [&](const auto& piece) {
      for (const float x : piece) largest = fmaxf(largest, fabsf(x));
    };
    if (is_there && is_value(row)) {
      for_values(row, loaded, [&](int, const float(&piece)[copied.piece]) { look_at(piece); });
    } else if (is_there) {
      for_pieces<rotated>([&](int turn) { look_at(loaded.x[turn]); });
    }
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, offset));
    return largest;
  }

  /// Normalises and rotates what was loaded. The pairs' other halves are other lanes', and read once more.
  __device__ __forceinline__ void rotate(int row, float factor, const Rotation<Config>& rotation,
                                         Row& loaded) const {
    const Element* source = query_or_key_row(row);
    const void* weights = row < params_.heads_q ? params_.q_norm_weight : params_.k_norm_weight;
    for_pieces<rotated>([&](int turn) {
      const int begin = column<rotated>(turn);
      normalise_piece<Config>(loaded.x[turn], begin, factor, weights);
      if constexpr (Config::rotary_dim != 0) {
        if (begin >= Config::rotary_dim) return;
        float partners[rotated.piece] = {};
        if constexpr (!Config::rotary_interleaved) {
          load_piece<Config::alignment>(source + rotation.partner(begin), partners);
          normalise_piece<Config>(partners, rotation.partner(begin), factor, weights);
        }
        rotation.rotate(loaded.x[turn], partners, begin, turn);
      }
    });
  }

  __device__ __forceinline__ float norm_factor(const Row& row) const {
    return row_norm_factor<Config, lanes>(row.x, params_.norm_eps);
  }

  /// Calls `move` with each turn in which the lane has a piece of a row that is cut like this.
  template <RowLanes share, class Move>
  __device__ __forceinline__ void for_pieces(const Move& move) const {
#pragma unroll
    for (int turn = 0; turn < (share.pieces + lanes - 1) / lanes; ++turn) {
      if (turn * lanes + lane_ < share.pieces) move(turn);
    }
  }
  template <RowLanes share>
  __device__ __forceinline__ int column(int turn) const {
    return (turn * lanes + lane_) * share.piece;
  }
  template <RowLanes share>
  __device__ __forceinline__ void load_pieces(const Element* source, Row& row) const {
    for_pieces<share>(
        [&](int turn) { load_piece<Config::alignment>(source + column<share>(turn), row.x[turn]); });
  }

  __device__ __forceinline__ const Element* new_row(const void* data, const TensorStrides& strides,
                                                    int head) const {
    return static_cast<const Element*>(data) + offset(strides, head);
  }
  __device__ __forceinline__ Element* new_row(void* data, const TensorStrides& strides, int head) const {
    return static_cast<Element*>(data) + offset(strides, head);
  }
  __device__ __forceinline__ long long offset(const TensorStrides& strides, int head) const {
    return batch_ * strides.batch + seq_ * strides.seq + head * strides.head;
  }
  static __device__ __forceinline__ CacheElement* cache_row(void* cache, const TensorStrides& strides,
                                                            const TokenPlace& place, int head) {
    return static_cast<CacheElement*>(cache) + place.page * strides.batch + place.offset * strides.seq +
           head * strides.head;
  }

  const AppendParams& params_;
  int batch_, seq_;
  int lane_;
};

/// A row is loaded while the one before is moved, and the first one while the token's place is looked for.
template <class Config>
__device__ __forceinline__ void append_rows(const AppendParams& params) {
  wait_for_grids_before();
  constexpr int lanes = TokenRows<Config>::lanes;
  const int index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.y) * params.rows_per_block;
  const int end = minimum(begin + params.rows_per_block, params.heads_q + 2 * params.heads_kv);
  const int rows_at_once = static_cast<int>(blockDim.x) / lanes;
  const TokenRows<Config> token(params, index);
  int row = begin + thread / lanes;
  auto loaded = token.load(row, row < end);
  const TokenPlace place = place_of(params, index);
  const Rotation<Config> rotation(params, index, place.position, thread % lanes, lanes);
  // Nothing is done for a token whose position is none of the table's.
  for (int first = begin; first < end && rotation.is_possible(); first += rows_at_once) {
    auto next = token.load(row + rows_at_once, row + rows_at_once < end);
    token.move(row, row < end, loaded, place, rotation);
    loaded = next;
    row += rows_at_once;
  }
  let_next_grid_start();
}

}  // namespace jit
