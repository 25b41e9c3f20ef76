// Zero points of int4 keys and values, apart from their numbers: Σ q (n − z) = Σ q n − z Σ q, and Σ p (n − z) =
// Σ p n − Σ p z. So numbers are multiplied as they are stored, as digits of subnormal 16-bit numbers
// (digits_of_int4), and zero points take an instruction for each score, and one mma for 16 keys.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/stored_numbers.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The inverse of the last place of a subnormal number of fp16.
inline constexpr float fp16_digits = 0x1p24f;
/// P times scales of values is this much larger, so that its products with digits of bf16, whose last place is 2^-133,
/// are normal numbers for any scale from 2^-50 to 2^55.
inline constexpr float raised_weights = 0x1p64f;

/// Extracts the zero point of a word as a number.
struct ZeroPoint {
  JIT_DEVICE float operator()(int bits) const {
    return __int_as_float(static_cast<int>(and_or(static_cast<unsigned>(bits), 15, 0x4b000000u))) - 0x1p23f;
  }
};

/// The lane's rows and columns of O, and beside them the sums of P times zero points, which are to be subtracted of each
/// column: `zeros` is a block of equal columns.
template <class Columns>
struct OutputBesideZeros : Columns {
  using Layout = typename Columns::Layout;
  Accumulator<Layout, Columns::row_blocks * Layout::block_rows, Layout::block_columns> zeros;

  JIT_DEVICE void clear() {
    Columns::clear();
    zeros.clear();
  }
  JIT_DEVICE void scale_rows(const float (&factors)[Columns::rows]) {
    Columns::scale_rows(factors);
    zeros.scale_rows(factors);
  }
  /// Subtracts zero points, and takes the factors of numbers and weights away.
  JIT_DEVICE void finish() {
    constexpr float by = 0x1p127f / raised_weights * 64;
    Columns::for_each_place([&](int r, int n, int i) {
      const bool is_upper = (is_same<Layout, TransposedLayout> ? i : n) % 2 != 0;  // 16 times its number
      this->at(r, n, i) = __fmaf_rn(this->at(r, n, i), is_upper ? by / 16 : by, -by * zeros.at(r, 0, 0));
    });
  }
};

}  // namespace jit
