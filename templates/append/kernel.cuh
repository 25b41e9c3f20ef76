// Stores the keys and values of new tokens in a cache, and on the way normalizes and rotates them and the queries. A
// block has some of the rows of one token: its heads of q, then of k, then of v. A few lanes of a warp have a row, and
// reads a few at once, so that enough of memory is on the way.
#pragma once

#include "append/latent_row.cuh"
#include "append/packed_row.cuh"
#include "append/params.cuh"
#include "append/token_place.cuh"
#include "base/prelude.cuh"
#include "base/rotary.cuh"
#include "base/row_lanes.cuh"
#include "base/row_norm.cuh"
#include "base/row_pieces.cuh"
#include "base/touch_lines.cuh"
#include "pipeline/dependent_launch.cuh"
#include "ptx/fp8.cuh"
#include "ptx/stored_numbers.cuh"

namespace jit {

/// The parameters of a kernel.
template <class Config>
using ParamsOf = typename ChosenType<scale_columns_of<typename Config::CacheElement> != 0, BlockAppendParams,
                                     AppendParams>::type;

/// One token's rows, for the lanes that have one of them: numbers from 0 on, of q, then of k, then of v.
template <class Config>
class TokenRows {
  using Element = typename Config::Element;
  using CacheElement = typename Config::CacheElement;
  using WeightElement = typename Config::WeightElement;
  static constexpr RowLanes rotated = rotated_lanes<Config>;
  static constexpr RowLanes copied = row_lanes(Config::head_dim_v, Config::head_dim_v, sizeof(Element));
  static constexpr int iterations = maximum(rotated.iterations, copied.iterations);
  static constexpr int piece_bytes = rotated.piece * static_cast<int>(sizeof(Element));
  static constexpr int piece_words = (piece_bytes + 3) / 4;

 public:
  /// For a row, of any kind.
  static constexpr int lanes = maximum(rotated.lanes, copied.lanes);
  /// Rows that a lane reads at once.
  static constexpr int ahead = maximum(1, 4 / iterations);

  /// A lane's pieces of a row as they lie in memory.
  struct Row {
    unsigned words[iterations][piece_words];
  };

  using Params = ParamsOf<Config>;

  JIT_DEVICE TokenRows(const Params& params, int token)
      : params_(params),
        batch_(token / params.seqlen),
        seq_(token % params.seqlen),
        lane_(threadIdx.x % lanes),
        q_(static_cast<const Element*>(params.q) + offset(params.q_strides, 0)),
        k_(static_cast<const Element*>(params.k) + offset(params.k_strides, 0)),
        v_(static_cast<const Element*>(params.v) + offset(params.v_strides, 0)) {}

  /// Reads a row as it is; zeros where there is none.
  JIT_DEVICE Row load(int row, bool is_row) const {
    Row loaded = {};
    if (!is_row || (!values_are_alike && is_value(row))) return loaded;
    const Element* const source = new_row(row);
    const int pieces = is_value(row) ? copied.pieces : rotated.pieces;
#pragma unroll
    for (int iteration = 0; iteration < iterations; ++iteration) {
      if (iteration * lanes + lane_ < pieces)
        load_words<piece_bytes, Config::alignment>(source + column<rotated>(iteration),
                                                   loaded.words[iteration]);
    }
    return loaded;
  }

  /// Moves a row that was loaded, by all lanes of a warp. Rows of k and v whose token has no place stay out. q may be
  /// rotated in place: what other lanes need of a row they have from registers.
  JIT_DEVICE void move(int row, bool is_row, const Row& words, const TokenPlace& place,
                       const Rotation<Config>& rotation) const {
    const bool is_query = row < params_.heads_q;
    const bool is_moved = is_row && (is_query || place.is_stored);
    Values loaded = upcast(words);
    normalize_and_rotate(row, is_moved && !is_value(row), words, rotation, loaded);
    if constexpr (is_latent<CacheElement>) {
      store_latent(row, is_moved && !is_query, loaded, place);
      if (!is_query) return;
    }
    if constexpr (is_packed) {
      store_packed(row, is_moved && !is_query, loaded, place);
      if (!is_query) return;
    }
    const float scale = cache_scale(row, is_moved && !is_query, loaded, place);
    if (!is_moved) return;
    if (is_query) {
      Element* target = static_cast<Element*>(params_.q_out) + offset(params_.q_out_strides, row);
      for_pieces<rotated>([&](int iteration) {
        store_piece<Config::alignment>(target + column<rotated>(iteration), loaded.x[iteration]);
      });
    } else if (!is_value(row)) {
      const int head = row - params_.heads_q;
      CacheElement* target = cache_row(params_.k_cache, params_.k_cache_strides, place, head);
      for_pieces<rotated>([&](int iteration) {
        store_in_cache<cache_alignment>(target + column<rotated>(iteration), loaded.x[iteration], scale);
      });
    } else {
      store_value(row, loaded, place, scale);
    }
  }

 private:
  /// The elements of a row as numbers.
  struct Values {
    float x[iterations][rotated.piece];
  };
  /// One piece of a row as it lies in memory.
  struct Piece {
    unsigned words[piece_words];
  };

  /// Whether rows of v are cut as those of q and k are, so that they can be loaded ahead as these are.
  static constexpr bool values_are_alike = copied.piece == rotated.piece;
  static constexpr int cache_alignment =
      Config::alignment * static_cast<int>(sizeof(CacheElement)) / static_cast<int>(sizeof(Element));
  static constexpr bool is_packed = numbers_of<CacheElement> > 1;

  JIT_DEVICE bool is_value(int row) const { return row >= params_.heads_q + params_.heads_kv; }
  /// A new row of q, k or v.
  JIT_DEVICE const Element* new_row(int row) const {
    const int key = row - params_.heads_q, value = key - params_.heads_kv;
    const Element* const first = key < 0 ? q_ : value < 0 ? k_ : v_;
    const long long stride = key < 0     ? params_.q_strides.head
                             : value < 0 ? params_.k_strides.head
                                         : params_.v_strides.head;
    return first + (key < 0 ? row : value < 0 ? key : value) * stride;
  }

  JIT_DEVICE void store_value(int row, const Values& loaded, const TokenPlace& place, float scale) const {
    const int head = row - params_.heads_q - params_.heads_kv;
    CacheElement* target = cache_row(params_.v_cache, params_.v_cache_strides, place, head);
    for_values(row, loaded, [&](int column, const float(&piece)[copied.piece]) {
      store_in_cache<cache_alignment>(target + column, piece, scale);
    });
  }

  /// Calls `use` with each of the lane's pieces of a row of v, behind its first column.
  template <class Use>
  JIT_DEVICE void for_values(int row, const Values& loaded, const Use& use) const {
    for_pieces<copied>([&](int iteration) {
      if constexpr (values_are_alike) {
        use(column<copied>(iteration), loaded.x[iteration]);
      } else {
        float piece[copied.piece];
        load_piece<Config::alignment>(new_row(row) + column<copied>(iteration), piece);
        use(column<copied>(iteration), piece);
      }
    });
  }

  /// The scale by which the elements of a row of k or v are divided as they are stored; left beside them, if
  /// each row has its own. By all lanes of a warp.
  JIT_DEVICE float cache_scale(int row, bool is_stored, const Values& loaded, const TokenPlace& place) const {
    if constexpr (!is_fp8<CacheElement> || is_packed || is_latent<CacheElement>) {
      return 1.0f;
    } else {
      const int head = row - params_.heads_q - (is_value(row) ? params_.heads_kv : 0);
      float* const scale = is_value(row) ? scale_at(params_.v_scale, params_.v_scale_strides, place, head)
                                         : scale_at(params_.k_scale, params_.k_scale_strides, place, head);
      if constexpr (Config::scale_per == ScaleKind::head) {
        return is_stored && (is_value(row) ? params_.v_scale : params_.k_scale) != nullptr ? *scale : 1.0f;
      } else {
        const float found = token_scale<CacheElement>(largest_magnitude(row, is_stored, loaded));
        if (is_stored && lane_ == 0) *scale = found;
        return found;
      }
    }
  }

  /// The largest magnitude of a row that is there, else 0. By all lanes of a warp.
  JIT_DEVICE float largest_magnitude(int row, bool is_there, const Values& loaded) const {
    float largest = 0;
    const auto look_at = [&](const auto& piece) {
      for (const float x : piece) largest = larger(largest, fabsf(x));
    };
    if (is_there && is_value(row)) {
      for_values(row, loaded, [&](int, const float(&piece)[copied.piece]) { look_at(piece); });
    } else if (is_there) {
      for_pieces<rotated>([&](int iteration) { look_at(loaded.x[iteration]); });
    }
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      largest = larger(largest, __shfl_xor_sync(full_warp, largest, offset));
    return largest;
  }
  // Whole numbers cannot say that one was none: their scale does.
  static JIT_DEVICE float larger(float x, float y) {
    return is_same<CacheElement, int8_number> ? max_nan(x, y) : fmaxf(x, y);
  }

  /// Writes a row of k or v to the columns of a latent that it is. By all lanes of a warp.
  JIT_DEVICE void store_latent(int row, bool is_there, const Values& loaded, const TokenPlace& place) const {
    static_assert(rotated.piece == packed_piece && copied.piece == packed_piece, "a lane has eight columns");
    const bool has_values = is_value(row);
    CacheElement* const start =
        is_there ? cache_row(params_.k_cache, params_.k_cache_strides, place, 0) : nullptr;
    store_latent_columns<CacheElement, lanes>(
        loaded.x, is_there, lane_, has_values ? copied.pieces : rotated.pieces,
        has_values ? 0 : Config::head_dim_v, reinterpret_cast<unsigned char*>(start), place.offset,
        params_.page_size);
  }

  /// Rounds a row of k or v to packed numbers, where it is there. By all lanes of a warp.
  JIT_DEVICE void store_packed(int row, bool is_there, const Values& loaded, const TokenPlace& place) const {
    static_assert(rotated.piece == packed_piece && copied.piece == packed_piece,
                  "a lane has a word of a row");
    constexpr bool has_blocks = scale_columns_of<CacheElement> != 0;
    const bool has_values = is_value(row);
    PackedTarget<CacheElement> target{nullptr, nullptr, nullptr, has_values ? copied.pieces : rotated.pieces};
    if (is_there) {
      const int head = row - params_.heads_q - (has_values ? params_.heads_kv : 0);
      target.row = has_values ? cache_row(params_.v_cache, params_.v_cache_strides, place, head)
                              : cache_row(params_.k_cache, params_.k_cache_strides, place, head);
      float* const scales = has_values ? params_.v_scale : params_.k_scale;
      if (scales != nullptr)
        target.scale =
            scale_at(scales, has_values ? params_.v_scale_strides : params_.k_scale_strides, place, head);
      if constexpr (has_blocks)
        target.blocks = has_values ? scale_at(params_.v_blocks, params_.v_blocks_strides, place, head)
                                   : scale_at(params_.k_blocks, params_.k_blocks_strides, place, head);
    }
    store_packed_row<CacheElement, lanes>(loaded.x, is_there, lane_, target);
  }

  JIT_DEVICE Values upcast(const Row& words) const {
    Values values;
#pragma unroll
    for (int iteration = 0; iteration < iterations; ++iteration)
      upcast_words<Element>(words.words[iteration], values.x[iteration]);
    return values;
  }

  /// Normalizes and rotates a row that is_rotated, else does nothing. By all lanes of a warp: the pairs'
  /// other halves are other lanes'.
  JIT_DEVICE void normalize_and_rotate(int row, bool is_rotated, const Row& words,
                                       const Rotation<Config>& rotation, Values& loaded) const {
    const void* weights = row < params_.heads_q ? params_.q_norm_weight : params_.k_norm_weight;
    const float factor = row_norm_factor<Config, lanes>(loaded.x, params_.norm_eps);
#pragma unroll
    for (int iteration = 0; iteration < rotated.iterations; ++iteration) {
      const int begin = column<rotated>(iteration);
      float partners[rotated.piece] = {};
      if constexpr (Config::rotary_dim != 0 && !Config::rotary_interleaved)
        upcast_words<Element>(piece_of_row(words, rotation.partner(begin) / rotated.piece).words, partners);
      if (!is_rotated || begin >= Config::head_dim) continue;
      normalize_piece<Config>(loaded.x[iteration], begin, factor, weights);
      if (begin >= Config::rotary_dim) continue;
      if constexpr (!Config::rotary_interleaved)
        normalize_piece<Config>(partners, rotation.partner(begin), factor, weights);
      rotation.rotate(loaded.x[iteration], partners, begin, iteration);
    }
  }

  /// A piece of a row by its number, whichever lane has it. By all lanes of a warp.
  JIT_DEVICE Piece piece_of_row(const Row& row, int piece) const {
    Piece found;
#pragma unroll
    for (int iteration = 0; iteration < rotated.iterations; ++iteration) {
#pragma unroll
      for (int i = 0; i < piece_words; ++i) {
        const unsigned word = __shfl_sync(full_warp, row.words[iteration][i], piece % lanes, lanes);
        found.words[i] = iteration == 0 || piece / lanes == iteration ? word : found.words[i];
      }
    }
    return found;
  }

  /// Calls `move` with each iteration in which the lane has a piece of a row that is cut like this.
  template <RowLanes share, class Move>
  JIT_DEVICE void for_pieces(const Move& move) const {
#pragma unroll
    for (int iteration = 0; iteration < (share.pieces + lanes - 1) / lanes; ++iteration) {
      if (iteration * lanes + lane_ < share.pieces) move(iteration);
    }
  }
  template <RowLanes share>
  JIT_DEVICE int column(int iteration) const {
    return (iteration * lanes + lane_) * share.piece;
  }
  JIT_DEVICE long long offset(const TensorStrides& strides, int head) const {
    return batch_ * strides.batch + seq_ * strides.seq + head * strides.head;
  }
  static JIT_DEVICE CacheElement* cache_row(void* cache, const TensorStrides& strides,
                                            const TokenPlace& place, int head) {
    return static_cast<CacheElement*>(cache) + place.page * strides.batch + place.offset * strides.seq +
           head * strides.head;
  }

  const Params& params_;
  int batch_, seq_;
  int lane_;
  const Element *q_, *k_, *v_;  // the token's first rows
};

/// A few rows are on the way at once, the first ones while the token's place is looked for.
template <class Config>
JIT_DEVICE void append_rows(const ParamsOf<Config>& params) {
  touch_lines(params);
  wait_on_dependent_grids();
  using Rows = TokenRows<Config>;
  constexpr int lanes = Rows::lanes, ahead = Rows::ahead;
  const int index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.y) * params.rows_per_block;
  const int end = minimum(begin + params.rows_per_block, params.heads_q + 2 * params.heads_kv);
  const int rows_at_once = static_cast<int>(blockDim.x) / lanes;
  const Rows token(params, index);
  int row = begin + thread / lanes;
  const auto load = [&](int steps) {
    return token.load(row + steps * rows_at_once, row + steps * rows_at_once < end);
  };
  typename Rows::Row loaded[ahead];
  const auto load_ahead = [&] {
#pragma unroll
    for (int i = 0; i < ahead; ++i) loaded[i] = load(i);
  };
  load_ahead();
  const TokenPlace place = place_of(params, index);
  const Rotation<Config> rotation(params, index, place.position, thread % lanes, lanes);
  // Nothing is done for a token whose position is none of the table's.
  int left = ahead;  // of the rows that were loaded
#pragma unroll 1
  for (int first = begin; first < end && rotation.is_possible(); first += rows_at_once) {
    if (left == 0) {
      load_ahead();
      left = ahead;
    }
    token.move(row, row < end, loaded[0], place, rotation);
#pragma unroll
    for (int i = 1; i < ahead; ++i) loaded[i - 1] = loaded[i];
    row += rows_at_once;
    --left;
  }
  launch_dependent_grids();
}

}  // namespace jit
