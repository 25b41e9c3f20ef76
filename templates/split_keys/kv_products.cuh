// The products of a step, on keys and values in their stored type.
//
// 8-bit keys and values, and queries, are converted to fp16 exactly between shared memory and fragments. Where ldmatrix
// gives a lane two 16-bit elements, it gives four adjacent bytes of a key's row; so an mma sums over columns in another
// order, to which queries are permuted. ldmatrix transposes values in pairs of bytes: of 16 columns, the even ones
// belong to one mma and the odd ones to the next. No byte moves between lanes.
//
// Converting two elements to fp16 takes one instruction, to bf16 four. So bf16 queries become fp16, too, once per
// split, each row times a power of two that brings its largest magnitude near fp16's largest (steps/fp16_rows.cuh).
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"
#include "ptx/stored_numbers.cuh"
#include "split_keys/packed_products.cuh"
#include "split_keys/warp_layout.cuh"
#include "steps/fp16_rows.cuh"
#include "steps/mma_sync_products.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Bits per element of keys and values.
template <class Config>
inline constexpr int key_bits = sizeof(KvElement<Config>) * 8 / numbers_of<KvElement<Config>>;

/// Products with keys and values of q's type. Traits are a kernel family's: Config, the tiles QTile, KTile and VTile,
/// Scores and Output of a warp, warp_keys, head_dim_steps, and has_value_scales.
template <class KernelTraits, int bits = key_bits<typename KernelTraits::Config>>
struct KvProducts {
  using Traits = KernelTraits;
  using Config = typename Traits::Config;
  using Element = typename Config::Element;

  /// Q of one warp as A fragments: in registers, or loaded step by step from the last stage of load() or go_on().
  struct StagedQueries {
    unsigned address;

    JIT_DEVICE void load(unsigned tile, int row_warp) {
      address = tile + Traits::QTile::offset(row_warp * rows_per_warp + lane_id() % 16, lane_id() / 16);
    }
    JIT_DEVICE void go_on(unsigned tile, int row_warp) { load(tile, row_warp); }

    JIT_DEVICE void get(unsigned (&a)[1][4], int step) const {
      ldmatrix_x4(a[0], Traits::QTile::advance(address, 0, 2 * step));
    }
  };
  struct HeldQueries {
    unsigned registers[Traits::head_dim_steps][4];

    JIT_DEVICE void load(unsigned tile, int row_warp) {
      const unsigned address =
          tile + Traits::QTile::offset(row_warp * rows_per_warp + lane_id() % 16, lane_id() / 16);
#pragma unroll
      for (int step = 0; step < Traits::head_dim_steps; ++step)
        ldmatrix_x4(registers[step], Traits::QTile::advance(address, 0, 2 * step));
    }
    JIT_DEVICE void go_on(unsigned, int) {}

    JIT_DEVICE void get(unsigned (&a)[1][4], int step) const {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[0][i] = registers[step][i];
    }
  };
  using Queries = typename ChosenType<Traits::holds_queries, HeldQueries, StagedQueries>::type;

  /// S = Q Kᵀ over the warp's keys, whose rows begin at shared address `k_tile`.
  static JIT_DEVICE void multiply_qk(typename Traits::Scores& scores, const Queries& q, unsigned k_tile,
                                     unsigned = 0, int = 0) {
    jit::multiply_qk<Element, typename Traits::KTile>(scores, q, k_tile);
  }

  /// O += P V over the same keys.
  static JIT_DEVICE void multiply_pv(typename Traits::Output& output, const typename Traits::Scores& p,
                                     unsigned v_tile, unsigned = 0, int = 0) {
    jit::multiply_pv<Element, typename Traits::VTile>(output, p, v_tile);
  }

  /// Calls f(column, pair) for each pair of adjacent columns of the lane's row `r` of O.
  template <class F>
  static JIT_DEVICE void for_each_pair(const typename Traits::Output& output, int r, F f) {
    using Layout = typename Traits::Output::Layout;
#pragma unroll
    for (int n = 0; n < Traits::Output::column_blocks; ++n) {
      f(Layout::column(Layout::lane_column(lane_id()), n, 0),
        make_float2(output.at(r, n, 0), output.at(r, n, 1)));
    }
  }
};

/// Products with 8-bit keys and values.
template <class KernelTraits>
struct KvProducts<KernelTraits, 8> {
  using Traits = KernelTraits;
  using Config = typename Traits::Config;
  using Stored = KvElement<Config>;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  /// The operand type of P V. fp16 represents all 8-bit elements and needs one instruction per pair; P times scales of
  /// values needs the range of bf16.
  using Weight = typename ChosenType<Traits::has_value_scales, bf16, fp16>::type;

  /// The queries of a lane, loaded from a stage: of each 16 columns the four from 4 · (lane mod 4) on.
  struct StagedQueries {
    unsigned tile;
    int row;
    Fp16Scale scales[2];
    float factors[2];  ///< of the scores of the lane's rows

    JIT_DEVICE void load(unsigned stage, int row_warp) {
      go_on(stage, row_warp);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factors[half] = 1;
        if constexpr (!is_same<typename Config::Element, bf16>) continue;
        int largest = 0;
#pragma unroll
        for (int step = 0; step < Traits::head_dim_steps; ++step) {
          int words[2];
          load_words(words, step, half);
          largest = maximum(largest, maximum(largest_bf16(static_cast<unsigned>(words[0])),
                                             largest_bf16(static_cast<unsigned>(words[1]))));
        }
        scales[half] = fp16_scale(largest_of_quad(largest));
        factors[half] = scales[half].down;
      }
    }
    JIT_DEVICE void go_on(unsigned stage, int row_warp) {
      tile = stage;
      row = row_warp * rows_per_warp + lane_id() / 4;
    }

    JIT_DEVICE void get(unsigned (&a)[1][4], int step) const {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int words[2];
        load_words(words, step, half);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const auto word = static_cast<unsigned>(words[i]);
          a[0][half + 2 * i] =
              is_same<typename Config::Element, bf16> ? bf16_to_fp16(word, scales[half].up) : word;
        }
      }
    }

   private:
    JIT_DEVICE void load_words(int (&words)[2], int step, int half) const {
      const int lane = lane_id();
      load_shared(words,
                  tile + Traits::QTile::offset(row + 8 * half, 2 * step + lane % 4 / 2) + lane % 2 * 8);
    }
  };
  /// The queries of a lane in registers.
  struct HeldQueries {
    unsigned registers[Traits::head_dim_steps][4];
    float factors[2];  ///< of the scores of the lane's rows

    JIT_DEVICE void load(unsigned tile, int row_warp) {
      const int lane = lane_id();
      const int row = row_warp * Traits::warp_rows + lane / 4, chunk = lane % 4 / 2, byte = lane % 2 * 8;
#pragma unroll
      for (int half = 0; half < Traits::warp_rows / 8; ++half) {
#pragma unroll
        for (int step = 0; step < Traits::head_dim_steps; ++step) {
          if constexpr (is_fp8<typename Config::Element>) {
            const auto four = static_cast<unsigned>(
                load_shared(tile + Traits::QTile::offset(row + 8 * half, step) + lane % 4 * 4));
            registers[step][half] = upcast_fp8<fp16, Stored>(four);
            registers[step][half + 2] = upcast_fp8<fp16, Stored>(four >> 16);  // mutate: EvenPairsOfFourTwice
            continue;
          }
          int words[2];
          load_shared(words, tile + Traits::QTile::offset(row + 8 * half, 2 * step + chunk) + byte);
          registers[step][half] = static_cast<unsigned>(words[0]);
          registers[step][half + 2] = static_cast<unsigned>(words[1]);
        }
        factors[half] = 1;
        if constexpr (is_same<typename Config::Element, bf16>) factors[half] = row_to_fp16(registers, half);
      }
    }
    JIT_DEVICE void go_on(unsigned, int) {}

    JIT_DEVICE void get(unsigned (&a)[1][4], int step) const {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[0][i] = registers[step][i];
    }
  };
  using Queries = typename ChosenType<Traits::holds_queries, HeldQueries, StagedQueries>::type;

  static JIT_DEVICE void multiply_qk(typename Traits::Scores& scores, const Queries& q, unsigned k_tile,
                                     unsigned = 0, int = 0) {
    using Scores = typename Traits::Scores;
    constexpr int even_chunks = KTile::chunks / 2 * 2;
    const int lane = lane_id();
    const unsigned pairs = k_tile + KTile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const unsigned singles = k_tile + KTile::offset(lane % 16, 0);
    scores.clear();
#pragma unroll
    for (int chunk = 0; chunk < even_chunks; chunk += 2) {
      unsigned a[2][1][4];
      q.get(a[0], chunk);
      q.get(a[1], chunk + 1);
#pragma unroll
      for (int n = 0; n < Scores::column_blocks; n += 2) {
        unsigned keys[4];
        ldmatrix_x4(keys, KTile::advance(pairs, 8 * n, chunk));
#pragma unroll
        for (int i = 0; i < 4; ++i) multiply(scores.registers[0][n + i / 2], a[i % 2][0], keys[i]);
      }
    }
    if constexpr (even_chunks < KTile::chunks) {
      unsigned a[1][4];
      q.get(a, even_chunks);
#pragma unroll
      for (int n = 0; n < Scores::column_blocks; n += 2) {
        unsigned keys[2];
        ldmatrix_x2(keys[0], keys[1], KTile::advance(singles, 8 * n, even_chunks));
#pragma unroll
        for (int i = 0; i < 2; ++i) multiply(scores.registers[0][n + i], a[0], keys[i]);
      }
    }
  }

  static JIT_DEVICE void multiply_pv(typename Traits::Output& output, const typename Traits::Scores& p,
                                     unsigned v_tile, unsigned = 0, int = 0) {
    constexpr int chunks = Traits::Output::column_blocks / 2, even_chunks = chunks / 2 * 2;
    const int lane = lane_id();
    const unsigned pairs = v_tile + VTile::offset(lane % 16, lane / 16);
    const unsigned singles = v_tile + VTile::offset(lane % 16, 0);
#pragma unroll
    for (int step = 0; step < Traits::warp_keys / 16; ++step) {
      unsigned a[4];
      p.template pack_step<Weight>(a, 0, step);
#pragma unroll
      for (int chunk = 0; chunk < even_chunks; chunk += 2) {
        unsigned values[4];
        ldmatrix_x4_trans(values, VTile::advance(pairs, 16 * step, chunk));
        multiply_columns(output, chunk, a, values[0], values[1]);
        multiply_columns(output, chunk + 1, a, values[2], values[3]);
      }
      if constexpr (even_chunks < chunks) {
        unsigned values[2];
        ldmatrix_x2_trans(values[0], values[1], VTile::advance(singles, 16 * step, even_chunks));
        multiply_columns(output, even_chunks, a, values[0], values[1]);
      }
    }
  }

  /// Calls f(column, pair); a lane has four adjacent columns in each two blocks.
  template <class F>
  static JIT_DEVICE void for_each_pair(const typename Traits::Output& output, int r, F f) {
#pragma unroll
    for (int n = 0; n < Traits::Output::column_blocks; n += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        f(8 * n + lane_id() % 4 * 4 + 2 * i, make_float2(output.at(r, n, i), output.at(r, n + 1, i)));
    }
  }

 private:
  /// d += a · b, with 16 bytes of each of 8 keys; `bytes` are four bytes of the lane's key.
  static JIT_DEVICE void multiply(float (&d)[4], const unsigned (&a)[4], unsigned bytes) {
    mma_m16n8k16<fp16>(d, a, upcast_half<fp16, Stored, 0>(bytes), upcast_half<fp16, Stored, 1>(bytes));
  }

  /// Multiplies the 16 columns of a chunk, of 8 keys and the next 8. A lane has two columns of two keys each.
  static JIT_DEVICE void multiply_columns(typename Traits::Output& output, int chunk, const unsigned (&a)[4],
                                          unsigned first, unsigned second) {
    first = cross_bytes<Stored>(first);
    second = cross_bytes<Stored>(second);
    mma_m16n8k16<Weight>(output.registers[0][2 * chunk], a, upcast_half<Weight, Stored, 0, true>(first),
                         upcast_half<Weight, Stored, 0, true>(second));
    mma_m16n8k16<Weight>(output.registers[0][2 * chunk + 1], a, upcast_half<Weight, Stored, 1, true>(first),
                         upcast_half<Weight, Stored, 1, true>(second));
  }
};

/// Products with 4-bit keys and values.
template <class KernelTraits>
struct KvProducts<KernelTraits, 4> : PackedProducts<KernelTraits> {};

}  // namespace jit
