// The warps' part of a tile whose rows have scales: numbers of 4 or 8 bits become those of 16, times the scale of their
// row, or of their block of columns, each rounded once.
//
//     4 bits    a chunk of 16 bytes, 32 numbers  ──▶  four chunks
//     8 bits    a chunk of 16 bytes, 16 numbers  ──▶  two
//
// The eight lanes that reach shared memory at once have chunks and rows that the swizzles of both tiles map to all
// banks: with 4-bit rows two chunks each of rows r, r XOR 1, r XOR 6 and r XOR 7, with 8-bit rows four each of r and
// r XOR 5.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"
#include "ptx/stored_numbers.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Multiplies numbers by the scale of a token. bf16 does so by the scale's upper half and what is left of it: products are
/// off by no more than 2^-16 of themselves beside their rounding.
template <class Number, class Stored>
class TokenMultiplier {
 public:
  /// `bits` are those of a scale as it lies in memory.
  JIT_DEVICE explicit TokenMultiplier(unsigned bits) {
    if constexpr (numbers_of < Stored >> 1) {
      zeros_ = twice(zero_point_of(static_cast<int>(bits)));
      bits = static_cast<unsigned>(__float_as_int(without_zero_point(static_cast<int>(bits))));
    }
    scale_ = __int_as_float(static_cast<int>(bits));
    if constexpr (is_same<Number, bf16>) {
      const float high = __int_as_float(static_cast<int>(bits & 0xffff0000u));
      const float rest = scale_ == high ? 0.0f : scale_ - high;  // of an infinity, too
      high_ = pick_bytes(bits, 0, 0x3232);
      rest_ = pick_bytes(pack<bf16>(rest, rest), 0, 0x1010);
    }
  }
  /// Chunk `i` of those that a stored chunk's words become: one word of 4-bit numbers, or two of 8-bit ones.
  JIT_DEVICE void chunk(const unsigned (&words)[4], int i, unsigned (&wide)[4]) const {
    if constexpr (numbers_of < Stored >> 1) {
      unsigned pairs[4];
      pairs_of_int4<Number>(words[i], zeros_, pairs);
      order_pairs(pairs, wide);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        wide[2 * half] = upcast_half<Number, Stored, 0>(words[2 * i + half]);
        wide[2 * half + 1] = upcast_half<Number, Stored, 1>(words[2 * i + half]);
      }
    }
#pragma unroll
    for (unsigned& pair : wide) pair = multiply(pair);
  }

  /// Numbers i and i + 4 of eight become neighbors.
  static JIT_DEVICE void order_pairs(const unsigned (&pairs)[4], unsigned (&wide)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wide[i] = pick_bytes(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1], i < 2 ? 0x5410 : 0x7632);
  }

 private:
  JIT_DEVICE unsigned multiply(unsigned pair) const {
    if constexpr (is_same<Number, bf16>) {
      const unsigned rest = multiply_add_pair<bf16>(pair, rest_, sign_of_both);
      return multiply_add_pair<bf16>(pair, high_, rest);
    } else {
      return pack<Number>(to_float(fp16{static_cast<unsigned short>(pair)}) * scale_,
                          to_float(fp16{static_cast<unsigned short>(pair >> 16)}) * scale_);
    }
  }

  float scale_;
  unsigned zeros_ = 0;
  unsigned high_ = 0, rest_ = 0;  // twice each
};

/// Multiplies numbers of e2m1 by the scales of their blocks, which is exact.
template <class Number, class Stored>
class BlockMultiplier {
  static constexpr int of_chunk = 32 / scale_columns_of<Stored>;

 public:
  /// `bits` are those of the scales of a chunk, a byte each.
  JIT_DEVICE explicit BlockMultiplier(unsigned bits) : factors_(factors_of_scales<Stored>(bits)) {}

  JIT_DEVICE void chunk(const unsigned (&words)[4], int i, unsigned (&wide)[4]) const {
    unsigned pairs[4];
    const bool is_second = of_chunk == 2 && i >= 2;
    pairs_of_e2m1(words[i], pick_bytes(factors_, 0, is_second ? 0x3232 : 0x1010), pairs);
    TokenMultiplier<Number, Stored>::order_pairs(pairs, wide);
    // Powers of two by which pairs are too small.
    constexpr bool is_nvfp4 = is_same<Stored, nvfp4_pair>;
    constexpr unsigned of_fp16 = is_nvfp4 ? 0x7400 : 0x5800, of_bf16 = is_nvfp4 ? 0x4680 : 0x4300;
#pragma unroll
    for (unsigned& pair : wide) {
      pair = is_same<Number, fp16>
                 ? multiply_halves(pair, twice(of_fp16))
                 : multiply_add_pair<bf16>(from_halves<bf16>(pair), twice(of_bf16), sign_of_both);
    }
  }

 private:
  const unsigned factors_;
};

/// As TileUpcaster (mainloop/convert_keys.cuh), of rows whose scales lie side by side in shared memory, so many bytes a row.
template <class Stored, class From, class Number, class To, int columns, int warps, int scale_bytes>
class ScaledTileUpcaster {
  static constexpr int numbers = 16 * numbers_of<Stored>;  // of a chunk
  static constexpr bool is_packed = numbers_of<Stored> > 1, has_blocks = scale_columns_of<Stored> != 0;
  static constexpr int chunks = (columns + numbers - 1) / numbers;
  static_assert(!is_packed || columns % numbers == 0, "packed rows are whole chunks");
  static constexpr int chunks_at_once = 4, rows_at_once = 8;
  static constexpr int row_groups = To::rows / rows_at_once;
  static constexpr int chunk_groups = (chunks + chunks_at_once - 1) / chunks_at_once;
  static constexpr int warps_x = chunk_groups % warps == 0 ? warps : chunk_groups % 2 == 0 ? 2 : 1;
  static constexpr int warps_y = warps / warps_x;
  using Multiplier =
      typename ChosenType<has_blocks, BlockMultiplier<Number, Stored>, TokenMultiplier<Number, Stored>>::type;

  // A lane's chunk of a row, and the scale of the row, or those of the chunk's blocks.
  struct Chunk {
    unsigned words[4];
    unsigned scale;
  };

 public:
  /// `scales` is the shared address of the first row's; `first_warp` is that of these warps in its warpgroup.
  static JIT_DEVICE void upcast(unsigned from, unsigned to, unsigned scales, int first_warp) {
    const unsigned thread = static_cast<unsigned>(reread_thread_index()) % warpgroup_size;
    const int warp = static_cast<int>(thread / warp_size) - first_warp,
              lane = static_cast<int>(thread % warp_size);
    const int row_of_group = is_packed ? (lane >> 1 & 1) ^ (lane >> 2 & 1) * 6 ^ (lane >> 3 & 1) * 2
                                       : lane / 8 ^ (lane / 4 % 2 * 5);
    const int chunk_of_group = is_packed ? lane % 2 + lane / 16 * 2 : lane % chunks_at_once;
    const int first_row = warp / warps_x * rows_at_once + row_of_group;
#pragma unroll
    for (int first = 0; first < chunk_groups; first += warps_x) {
      const int chunk = (first + warp % warps_x) * chunks_at_once + chunk_of_group;
      if (chunks % chunks_at_once != 0 && chunk >= chunks) break;
      const unsigned source = From::chunk_address(from, first_row, chunk);
      const unsigned target = To::chunk_address(to, first_row, numbers / 8 * chunk);
      const unsigned scale = scales + first_row * scale_bytes + (has_blocks ? chunk * of_chunk / 4 * 4 : 0);
      const int shift = has_blocks ? chunk * of_chunk % 4 * 8 : 0;
      upcast_rows(source, target, scale, shift, warp / warps_x);
    }
  }

 private:
  static constexpr int of_chunk = has_blocks ? numbers / maximum(1, scale_columns_of<Stored>) : 0;

  // Upcasts a lane's chunk in each group of rows that is this warp's, of which the next one is on its way.
  static JIT_DEVICE void upcast_rows(unsigned from, unsigned to, unsigned scales, int shift, int warp_y) {
    constexpr int step = warps_y * rows_at_once;
    Chunk next;
    const auto load = [&](int group) {
      load_shared(next.words, from + group * step * From::row_bytes);
      next.scale = static_cast<unsigned>(load_shared(scales + group * step * scale_bytes)) >> shift;
    };
    const int groups = (row_groups - warp_y + warps_y - 1) / warps_y;
    if (groups > 0) load(0);
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      const Chunk own = next;
      if (group + 1 < groups) load(group + 1);  // mutate: EveryRowTheFirst
      const Multiplier multiplier(own.scale);
      const unsigned row = to + group * step * To::row_bytes;
#pragma unroll
      for (int i = 0; i < numbers / 8; ++i) {
        unsigned wide[4];
        multiplier.chunk(own.words, i, wide);
        store_shared(row ^ i * chunk_bytes, wide);
      }
    }
  }
};

}  // namespace jit
