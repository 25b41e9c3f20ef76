// The products of a step with few rows: Sᵀ = K Qᵀ and Oᵀ = Vᵀ Pᵀ, so that keys and columns of values are the 16 rows of
// an mma, and queries its 8 columns. With the few rows of decoding, an mma of 16 query rows would multiply mostly
// zeros, and take registers for them.
//
// A lane reads the same words of keys and values as in kv_products.cuh and packed_products.cuh. Two words of keys eight
// apart are the A fragments of the k-steps of a chunk. ldmatrix transposes values: the pairs of a word are rows of A,
// which are adjacent columns of O.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/stored_numbers.cuh"
#include "split_keys/kv_products.cuh"
#include "split_keys/packed_products.cuh"
#include "split_keys/tile_chunks.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// PackedNumbers of 8-bit elements, which have no zero points and no block scales.
template <class Traits>
struct ByteNumbers {
  using Stored = KvElement<typename Traits::Config>;
  struct Nothing {
    JIT_DEVICE Nothing(unsigned, int) {}
    JIT_DEVICE void go_to(int) {}
  };
  struct Key : Nothing {
    using Nothing::Nothing;
    JIT_DEVICE void pairs(unsigned word, int, unsigned (&pairs)[2]) const {
      pairs[0] = upcast_half<fp16, Stored, 0>(word);
      pairs[1] = upcast_half<fp16, Stored, 1>(word);
    }
  };
  struct Values : Nothing {
    using Nothing::Nothing;
    JIT_DEVICE void pairs(unsigned word, int, unsigned (&pairs)[2]) const {
      using Weight = typename KvProducts<Traits>::Weight;
      word = cross_bytes<Stored>(word);
      pairs[0] = upcast_half<Weight, Stored, 0, true>(word);
      pairs[1] = upcast_half<Weight, Stored, 1, true>(word);
    }
  };
};

/// Traits are those of KvProducts, with keys of 8 or 4 bits and warps of 8 rows.
template <class KernelTraits>
struct TransposedProducts {
  using Traits = KernelTraits;
  using Untransposed = KvProducts<Traits>;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  static constexpr bool is_packed = keys_are_packed<typename Traits::Config>;
  using Numbers = typename ChosenType<is_packed, PackedNumbers<Traits>, ByteNumbers<Traits>>::type;
  using Weight = typename Untransposed::Weight;
  static constexpr bool has_zero_points = is_same<KvElement<typename Traits::Config>, int4_pair>;
  static constexpr int pairs = is_packed ? 4 : 2;  ///< pairs in a word
  static constexpr int chunk_steps = pairs / 2;    ///< k-steps of 16 columns in a chunk
  static constexpr int chunk_columns = 16 * chunk_steps;
  static_assert(Traits::holds_queries, "8 rows are few enough for queries in registers");

  /// The queries of a lane as B fragments: words 0 and 2 of their A fragments in other products.
  struct Queries : Untransposed::Queries {
    JIT_DEVICE void load(unsigned tile, int row_warp) {
      Untransposed::Queries::load(tile, row_warp);
      spread(this->factors);
      if constexpr (has_zero_points) spread(this->sums);
    }
  };

  // Brings numbers of a lane's two queries, of rows of which each lane has its own.
  static JIT_DEVICE void spread(float (&of_rows)[2]) {
    const float own = of_rows[0];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      of_rows[r] = __shfl_sync(full_warp, own, (TransposedLayout::lane_row(lane_id()) + r) * 4);
  }

  /// S = Q Kᵀ over the warp's keys, whose rows begin at shared address `k_tile`, of the stage at `stage` from key
  /// `first_key` on.
  static JIT_DEVICE void multiply_qk(typename Traits::Scores& scores, const Queries& q, unsigned k_tile,
                                     unsigned stage, int first_key) {
    const int lane = lane_id();
    const unsigned both = k_tile + KTile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const unsigned singles = k_tile + KTile::offset(lane % 16, 0);
    if constexpr (has_zero_points) {
      Untransposed::begin_scores(scores, q, stage, first_key);
    } else {
      scores.clear();
    }
#pragma unroll
    for (int n = 0; n < Traits::Scores::column_blocks; ++n) {
      typename Numbers::Key keys[2] = {{stage, first_key + 16 * n}, {stage, first_key + 16 * n + 8}};
      const auto multiply = [&](int chunk, unsigned first, unsigned second) {
        unsigned low[pairs], high[pairs];
        keys[0].pairs(first, chunk, low);
        keys[1].pairs(second, chunk, high);
#pragma unroll
        for (int i = 0; i < chunk_steps; ++i) {
          const unsigned a[4] = {low[2 * i], high[2 * i], low[2 * i + 1], high[2 * i + 1]};
          const auto& b = q.registers[chunk_steps * chunk + i];
          multiply_add<fp16>(scores.registers[0][n], a, b[0], b[2]);
        }
      };
      for_each_chunk<KTile, KTile::chunks, ChunkRows::along>(both, singles, 16 * n, keys, multiply);
    }
  }

  /// O += P V over these keys.
  static JIT_DEVICE void multiply_pv(typename Traits::Output& output, const typename Traits::Scores& p,
                                     unsigned v_tile, unsigned stage, int first_key) {
    constexpr int chunks = Traits::warp_columns / chunk_columns;
    const int lane = lane_id();
    const unsigned both = v_tile + VTile::offset(lane % 16, lane / 16);
    const unsigned singles = v_tile + VTile::offset(lane % 16, 0);
#pragma unroll
    for (int n = 0; n < Traits::Scores::column_blocks; ++n) {
      unsigned b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) b[i] = transpose_matrix(pack<Weight>(p.at(0, n, i), p.at(1, n, i)));
      typename Numbers::Values values[2] = {{stage, first_key + 16 * n}, {stage, first_key + 16 * n + 8}};
      if constexpr (has_zero_points) {
        const unsigned a[4] = {values[0].zeros, values[0].zeros, values[1].zeros, values[1].zeros};
        multiply_add<Weight>(output.zeros.registers[0][0], a, b[0], b[1]);
      }
      const auto multiply = [&](int chunk, unsigned first, unsigned second) {
        unsigned low[pairs], high[pairs];
        values[0].pairs(first, chunk, low);
        values[1].pairs(second, chunk, high);
#pragma unroll
        for (int i = 0; i < chunk_steps; ++i) {
          const unsigned a[4] = {low[2 * i], low[2 * i + 1], high[2 * i], high[2 * i + 1]};
          multiply_add<Weight>(output.registers[0][chunk_steps * chunk + i], a, b[0], b[1]);
        }
      };
      for_each_chunk<VTile, chunks, ChunkRows::across>(both, singles, 16 * n, values, multiply);
    }
  }

  /// Calls f(column, pair) for the neighbors that a lane has of its row `r` of the output.
  template <class F>
  static JIT_DEVICE void for_each_pair(const typename Traits::Output& output, int r, F f) {
#pragma unroll
    for (int n = 0; n < Traits::Output::column_blocks; ++n)
      f(n / chunk_steps * chunk_columns + lane_id() / 4 * pairs + n % chunk_steps * 2,
        make_float2(output.at(r, n, 0), output.at(r, n, 1)));
  }

 private:
  /// d += a · b for a block in TransposedLayout.
  template <class Number>
  static JIT_DEVICE void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    float sums[4] = {d[0], d[2], d[1], d[3]};
    mma_m16n8k16<Number>(sums, a, b0, b1);
    d[0] = sums[0];
    d[1] = sums[2];
    d[2] = sums[1];
    d[3] = sums[3];
  }
};

/// Selects the products of a family's warps: transposed ones for few rows.
template <class Traits, bool is_transposed = (Traits::warp_rows < rows_per_warp)>
struct ChosenProducts {
  using type = KvProducts<Traits>;
};
template <class Traits>
struct ChosenProducts<Traits, true> {
  using type = TransposedProducts<Traits>;
};
template <class Traits>
using SplitProducts = typename ChosenProducts<Traits>::type;

}  // namespace jit
