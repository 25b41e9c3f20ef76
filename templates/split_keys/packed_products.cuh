// The products of a step on 4-bit keys and values, two elements per byte.
//
// ldmatrix brings a lane four bytes of a 16-byte chunk (32 columns): eight numbers of a key, which pairs_of_… expands to four
// pairs. They are the B fragments of two k-steps; queries are put into the same order once. ldmatrix transposes values in
// pairs of bytes, and brings four columns of two keys: a pair for each of four blocks of columns. No bit moves between lanes.
//
// Zero points and scales of blocks are applied where numbers become fp16; zero points of values are subtracted in bf16. Scales
// of tokens multiply scores and P (split_keys/split_dequant.cuh).
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"
#include "ptx/stored_numbers.cuh"
#include "split_keys/tile_chunks.cuh"
#include "split_keys/warp_layout.cuh"
#include "split_keys/zero_points.cuh"
#include "steps/dequant.cuh"
#include "steps/fp16_rows.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Converts a lane's 4-bit elements, of a key or of two keys' values, to pairs. `Stored` has zero points, which are
/// applied apart (zero_points.cuh).
template <class Traits, class Stored = KvElement<typename Traits::Config>,
          bool has_blocks = scale_columns_of<Stored> != 0>
struct PackedNumbers {
  using Weight = bf16;  ///< P times scales of values wants the range of bf16
  static constexpr bool has_zero_points = true;

  struct Key {
    JIT_DEVICE Key(unsigned, int) {}
    JIT_DEVICE void go_to(int) {}
    JIT_DEVICE void pairs(unsigned word, int, unsigned (&pairs)[4]) const { digits_of_int4(word, pairs); }
  };

  /// The lane's two keys among eight, of a step of values.
  struct Values {
    unsigned zeros;

    JIT_DEVICE Values(unsigned stage, int key) {
      int scales[2];
      load_shared(scales, stage + Traits::layout.v_scales + (key + lane_id() % 4 * 2) * 4);
      zeros = zero_point_of(scales[0]) | zero_point_of(scales[1]) << 16;
    }
    JIT_DEVICE void go_to(int) {}
    JIT_DEVICE void pairs(unsigned word, int, unsigned (&pairs)[4]) const { digits_of_int4(word, pairs); }
  };
};

/// Elements with block scales, one byte per block of columns, in rows beside the tile.
template <class Traits, class Stored>
struct PackedNumbers<Traits, Stored, true> {
  using Config = typename Traits::Config;
  using Weight = fp16;
  static constexpr bool has_zero_points = false;
  /// Scales of a chunk: one or two.
  static constexpr int of_chunk = 32 / scale_columns_of<Stored>, chunks_of_word = 4 / of_chunk;

  struct Key {
    unsigned row;
    unsigned word;     // scales of the current chunk, and of later ones in the same word
    unsigned factors;  // of the lane's block of columns in the current chunk, and of that in the next one

    JIT_DEVICE Key(unsigned stage, int key)
        : row(stage + Traits::layout.k_blocks +
              (key + lane_id() / 4) * block_scale_bytes(Config::head_dim, scale_columns_of<Stored>)) {}
    /// Goes to a chunk, of every two chunks the first.
    JIT_DEVICE void go_to(int chunk) {
      if (chunk % chunks_of_word == 0) word = static_cast<unsigned>(load_shared(row + chunk * of_chunk));
      const bool is_second = of_chunk == 2 && lane_id() % 4 >= 2;
      const unsigned both = of_chunk == 2 ? pick_bytes(word, 0, is_second ? 0x4431 : 0x4420)
                                          : word >> 8 * (chunk % chunks_of_word);
      factors = factors_of_scales<Stored>(both);
    }
    JIT_DEVICE void pairs(unsigned numbers, int chunk, unsigned (&pairs)[4]) const {
      pairs_of_e2m1<2>(numbers, half_twice(factors, chunk % 2), pairs);
    }
  };

  struct Values {
    unsigned rows;
    unsigned words[2];

    JIT_DEVICE Values(unsigned stage, int key)
        : rows(stage + Traits::layout.v_blocks + (key + lane_id() % 4 * 2) * row_bytes) {}
    JIT_DEVICE void go_to(int chunk) {
      if (chunk % chunks_of_word != 0) return;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        words[i] = static_cast<unsigned>(load_shared(rows + i * row_bytes + chunk * of_chunk));
    }
    JIT_DEVICE void pairs(unsigned numbers, int chunk, unsigned (&pairs)[4]) const {
      // The byte of the lane's four columns, of both keys.
      const unsigned byte = chunk % chunks_of_word * of_chunk + (of_chunk == 2 ? lane_id() / 16 : 0);
      pairs_of_e2m1<1>(numbers, factors_of_scales<Stored>(pick_bytes(words[0], words[1], byte * 0x11 + 0x40)),
                       pairs);
    }

   private:
    static constexpr int row_bytes = block_scale_bytes(Config::head_dim_v, scale_columns_of<Stored>);
  };
};

/// Traits are those of KvProducts (split_keys/kv_products.cuh), with 4-bit keys.
template <class KernelTraits>
struct PackedProducts {
  using Traits = KernelTraits;
  using Config = typename Traits::Config;
  using Numbers = PackedNumbers<Traits>;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using Weight = typename Numbers::Weight;
  static_assert(Traits::holds_queries, "rows of packed keys are short enough for queries in registers");

  /// The queries of a lane, in the order of its pairs of keys: of each 32 columns the eight from 8 · (lane mod 4) on.
  struct Queries {
    unsigned registers[Traits::head_dim_steps][4];
    float factors[2];  ///< of the scores of the lane's rows
    float sums[2];     ///< of zero points: minus the sum of the row, as products have it

    JIT_DEVICE void load(unsigned tile, int row_warp) {
      using QTile = typename Traits::QTile;
      const int lane = lane_id(), row = row_warp * Traits::warp_rows + lane / 4;
#pragma unroll
      for (int half = 0; half < Traits::warp_rows / 8; ++half) {
#pragma unroll
        for (int chunk = 0; chunk < KTile::chunks; ++chunk) {
          const int own = 4 * chunk + lane % 4;
          unsigned words[4] = {};
          if (4 * chunk + 3 < QTile::chunks || own < QTile::chunks)
            load_shared(words, tile + QTile::offset(row + 8 * half, own));
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            registers[2 * chunk + i][half] = pick_bytes(words[i], words[i + 2], 0x5410);
            registers[2 * chunk + i][half + 2] = pick_bytes(words[i], words[i + 2], 0x7632);
          }
        }
        factors[half] = 1;
        if constexpr (Numbers::has_zero_points) {
          factors[half] =
              fp16_digits * (is_same<typename Config::Element, bf16> ? row_to_fp16(registers, half)
                                                                     : raise_fp16_row(registers, half));
          sums[half] = prepare_for_digits(registers, half) / fp16_digits;
        } else if constexpr (is_same<typename Config::Element, bf16>) {
          factors[half] = row_to_fp16(registers, half);
        }
      }
    }
    JIT_DEVICE void go_on(unsigned, int) {}
  };

  /// Starts scores with minus the sums of queries times the zero points of keys.
  static JIT_DEVICE void begin_scores(typename Traits::Scores& scores, const Queries& q, unsigned stage,
                                      int first_key) {
    if constexpr (Numbers::has_zero_points) {
      using Layout = typename Traits::Scores::Layout;
      scores.for_each_place([&](int r, int n, int i) { scores.at(r, n, i) = 1; });
      scale_by_rows<ZeroPoint>(
          scores, q.sums, stage + Traits::layout.k_scales + (first_key + Layout::lane_column(lane_id())) * 4);
    } else {
      scores.clear();
    }
  }

  /// S = Q Kᵀ over the warp's keys, whose rows begin at shared address `k_tile`, of the stage at `stage` from key
  /// `first_key` on.
  static JIT_DEVICE void multiply_qk(typename Traits::Scores& scores, const Queries& q, unsigned k_tile,
                                     unsigned stage, int first_key) {
    using Scores = typename Traits::Scores;
    const int lane = lane_id();
    const unsigned both = k_tile + KTile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const unsigned singles = k_tile + KTile::offset(lane % 16, 0);
    begin_scores(scores, q, stage, first_key);
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; n += 2) {
      typename Numbers::Key keys[2] = {{stage, first_key + 8 * n}, {stage, first_key + 8 * n + 8}};
      const auto multiply = [&](int chunk, unsigned first, unsigned second) {
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          unsigned pairs[4];
          keys[block].pairs(block == 0 ? first : second, chunk, pairs);
          float(&sums)[4] = scores.registers[0][n + block];
          mma_m16n8k16<fp16>(sums, q.registers[2 * chunk], pairs[0], pairs[1]);
          mma_m16n8k16<fp16>(sums, q.registers[2 * chunk + 1], pairs[2], pairs[3]);
        }
      };
      for_each_chunk<KTile, KTile::chunks, ChunkRows::along>(both, singles, 8 * n, keys, multiply);
    }
  }

  /// O += P V over these keys.
  static JIT_DEVICE void multiply_pv(typename Traits::Output& output, const typename Traits::Scores& p,
                                     unsigned v_tile, unsigned stage, int first_key) {
    constexpr int chunks = Traits::Output::column_blocks / 4;
    const int lane = lane_id();
    const unsigned both = v_tile + VTile::offset(lane % 16, lane / 16);
    const unsigned singles = v_tile + VTile::offset(lane % 16, 0);
#pragma unroll
    for (int step = 0; step < Traits::warp_keys / 16; ++step) {
      unsigned a[4];
      p.template pack_step<Weight>(a, 0, step);
      typename Numbers::Values values[2] = {{stage, first_key + 16 * step},
                                            {stage, first_key + 16 * step + 8}};
      if constexpr (Numbers::has_zero_points)
        mma_m16n8k16<Weight>(output.zeros.registers[0][0], a, values[0].zeros, values[1].zeros);
      const auto multiply = [&](int chunk, unsigned first, unsigned second) {
        unsigned pairs[2][4];
        values[0].pairs(first, chunk, pairs[0]);
        values[1].pairs(second, chunk, pairs[1]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          mma_m16n8k16<Weight>(output.registers[0][4 * chunk + i], a, pairs[0][i], pairs[1][i]);
      };
      for_each_chunk<VTile, chunks, ChunkRows::across>(both, singles, 16 * step, values, multiply);
    }
  }

  /// Calls f(column, pair) for the neighbors that a lane has of its row `r` of the output: eight of 32 columns, of four
  /// blocks.
  template <class F>
  static JIT_DEVICE void for_each_pair(const typename Traits::Output& output, int r, F f) {
#pragma unroll
    for (int n = 0; n < Traits::Output::column_blocks; n += 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int block = n + i % 2 * 2;
        f(8 * n + lane_id() % 4 * 8 + i / 2 * 4 + i % 2 * 2,
          make_float2(output.at(r, block, i / 2), output.at(r, block + 1, i / 2)));
      }
    }
  }
};

}  // namespace jit
