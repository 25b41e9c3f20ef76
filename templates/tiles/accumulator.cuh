// Accumulators: fragments of a product in a warp's registers, and the mapping of elements to lanes.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"

namespace jit {

/// The accumulator fragment of mma.sync.m16n8 and wgmma, in blocks of 16 rows and 8 columns. A lane holds four values
/// of a block: two adjacent ones of a row and two eight rows below; the four lanes of a quad share rows. Only the
/// position of a lane's first value differs from lane to lane; all others follow at compile-time offsets.
struct MmaLayout {
  static constexpr int block_rows = 16;
  static constexpr int block_columns = 8;
  static constexpr int block_values = 4;
  static constexpr int lane_rows = 2;  ///< rows of a block of which a lane has values
  static constexpr int neighbors = 2;  ///< adjacent columns of a lane

  /// Row and column of a lane's first value; `thread` may be the thread index in the block.
  static JIT_DEVICE int lane_row(int thread) { return thread % warp_size / 4; }
  static JIT_DEVICE int lane_column(int thread) { return thread % 4 * 2; }
  /// lane_row() of the calling lane, computed from threadIdx: lane_id() would stay in a register up to a rare use.
  static JIT_DEVICE int own_row() { return threadIdx.x / 4 % (warp_size / 4); }
  /// Reduces, by `f` of two values, those of all lanes that share a row.
  template <class F>
  static JIT_DEVICE float reduce(float x, F f) {
    x = f(x, __shfl_xor_sync(full_warp, x, 1));  // mutate: LanesMissAShuffle
    return f(x, __shfl_xor_sync(full_warp, x, 2));
  }
  /// Whether the lane speaks for those that share its rows.
  static JIT_DEVICE bool is_row_leader(int lane) { return lane % 4 == 0; }
  /// The value of the lane that speaks for the rows.
  static JIT_DEVICE float from_speaker(float x) { return __shfl_sync(full_warp, x, lane_id() / 4 * 4); }

  /// Row, or column, of other values if the first one has row, or column, `first`: block `m` has an upper and a lower
  /// row, block `n` two columns.
  static JIT_DEVICE constexpr int row(int first, int m, int half) {
    return first + m * block_rows + half * 8;
  }
  static JIT_DEVICE constexpr int column(int first, int n, int i) { return first + n * block_columns + i; }
};

/// A layout in which each two blocks share 16 columns, the first with the even and the second with the odd ones. So a
/// lane holds four adjacent columns of a row, two in each block.
struct EvenOddLayout : MmaLayout {
  static constexpr int neighbors = 4;  // mutate: NeighborsOfTheOtherLayout
  // mutate: LanesInTheOrderOfBlocks
  static JIT_DEVICE int lane_column(int thread) { return thread % 4 * 4; }
  static JIT_DEVICE constexpr int column(int first, int n, int i) {
    return first + n / 2 * 2 * block_columns + 2 * i + n % 2;
  }
};

/// The registers of MmaLayout if they hold a transposed product: blocks of 8 rows, which are the instruction's columns,
/// and 16 columns. A lane has two consecutive rows, and in each two columns eight apart.
struct TransposedLayout {
  static constexpr int block_rows = 8;
  static constexpr int block_columns = 16;
  static constexpr int block_values = 4;
  static constexpr int lane_rows = 2;
  static constexpr int neighbors = 1;

  static JIT_DEVICE int lane_row(int thread) { return thread % 4 * 2; }
  static JIT_DEVICE int lane_column(int thread) { return thread % warp_size / 4; }
  template <class F>
  static JIT_DEVICE float reduce(float x, F f) {
#pragma unroll
    for (int distance = 4; distance < warp_size; distance *= 2)  // mutate: LanesMissATransposedShuffle
      x = f(x, __shfl_xor_sync(full_warp, x, distance));
    return x;
  }
  static JIT_DEVICE bool is_row_leader(int lane) { return lane < 4; }

  static JIT_DEVICE constexpr int row(int first, int m, int half) { return first + m * block_rows + half; }
  static JIT_DEVICE constexpr int column(int first, int n, int i) {
    return first + n * block_columns + i * 8;
  }
};

/// The registers that a warp loads from tensor memory: each lane has a row, in blocks of two columns.
struct RowLayout {
  static constexpr int block_rows = warp_size;
  static constexpr int block_columns = 2;
  static constexpr int block_values = 2;
  static constexpr int lane_rows = 1;
  static constexpr int neighbors = 2;

  static JIT_DEVICE int lane_row(int thread) { return thread % warp_size; }
  static JIT_DEVICE int lane_column(int /*thread*/) { return 0; }
  static JIT_DEVICE int own_row() { return threadIdx.x % warp_size; }
  template <class F>
  static JIT_DEVICE float reduce(float x, F /*f*/) {
    return x;
  }
  static JIT_DEVICE bool is_row_leader(int /*lane*/) { return true; }

  static JIT_DEVICE constexpr int row(int first, int m, int /*half*/) { return first + m * block_rows; }
  static JIT_DEVICE constexpr int column(int first, int n, int i) { return first + n * block_columns + i; }
};

/// A warp's `tile_rows` rows and `tile_columns` columns of a product.
template <class BlockLayout, int tile_rows, int tile_columns>
struct Accumulator {
  using Layout = BlockLayout;
  static constexpr int row_blocks = tile_rows / Layout::block_rows;
  static constexpr int column_blocks = tile_columns / Layout::block_columns;
  static constexpr int rows = Layout::lane_rows * row_blocks;  ///< rows of which a lane holds values
  static constexpr int pair = 2;                               ///< values of a row in a block

  /// The registers, in the order of the instruction's operands.
  float registers[row_blocks][column_blocks][Layout::block_values];

  /// Value `i` of the pair that the lane holds of its row `r` in column block `n`.
  JIT_DEVICE float& at(int r, int n, int i) {
    return registers[r / Layout::lane_rows][n][r % Layout::lane_rows * pair + i];
  }
  JIT_DEVICE float at(int r, int n, int i) const {
    return registers[r / Layout::lane_rows][n][r % Layout::lane_rows * pair + i];
  }

  JIT_DEVICE void clear() {
    for_each(0, 0, [](float& value, int, int) { value = 0; });
  }

  /// Calls f(value, row, column) for each value; the lane's first one lies at `row` and `column`.
  template <class F>
  JIT_DEVICE void for_each(int row, int column, F f) {
#pragma unroll
    for (int m = 0; m < row_blocks; ++m) {
#pragma unroll
      for (int n = 0; n < column_blocks; ++n) {
#pragma unroll
        for (int i = 0; i < Layout::block_values; ++i) {
          f(registers[m][n][i], Layout::row(row, m, i / 2), Layout::column(column, n, i % 2));
        }
      }
    }
  }

  /// Calls f(r, n, i) for the place of each value, row by row.
  template <class F>
  static JIT_DEVICE void for_each_place(F f) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
#pragma unroll
      for (int n = 0; n < column_blocks; ++n) {
#pragma unroll
        for (int i = 0; i < pair; ++i) f(r, n, i);
      }
    }
  }
  /// Calls f(r, row) for the lane's rows r, the first of which is `row`.
  template <class F>
  static JIT_DEVICE void for_each_row(int row, F f) {
#pragma unroll
    for (int m = 0; m < row_blocks; ++m) {
#pragma unroll
      for (int half = 0; half < Layout::lane_rows; ++half)
        f(Layout::lane_rows * m + half, Layout::row(row, m, half));
    }
  }

  /// Calls f(value, column) for the lane's values of its row `r`, counting columns from the lane's first one.
  template <class F>
  JIT_DEVICE void for_each_of_row(int r, F f) {
#pragma unroll
    for (int n = 0; n < column_blocks; ++n) {
#pragma unroll
      for (int i = 0; i < pair; ++i) f(at(r, n, i), Layout::column(0, n, i));
    }
  }

  /// Reduces, by `f` of two values, the lane's values of its row `r`.
  template <class F>
  JIT_DEVICE float reduce_lane(int r, F f) const {
    float result = f(at(r, 0, 0), at(r, 0, 1));
#pragma unroll
    for (int n = 1; n < column_blocks; ++n) result = f(result, f(at(r, n, 0), at(r, n, 1)));
    return result;
  }
  /// Reduces the lane's values in `chains` independent chains of operations.
  template <int chains, class F>
  JIT_DEVICE float reduce_lane_in_chains(int r, F f) const {
    static_assert(column_blocks >= chains);
    float results[chains];
#pragma unroll
    for (int n = 0; n < column_blocks; ++n) {
      const float of_pair = f(at(r, n, 0), at(r, n, 1));
      results[n % chains] = n < chains ? of_pair : f(results[n % chains], of_pair);
    }
#pragma unroll
    for (int i = 1; i < chains; ++i) results[0] = f(results[0], results[i]);
    return results[0];
  }
  /// Reduces the values of the row, with those of the other lanes.
  template <class F>
  JIT_DEVICE float reduce_row(int r, F f) const {
    return Layout::reduce(reduce_lane(r, f), f);
  }

  /// Multiplies each row by its factor.
  JIT_DEVICE void scale_rows(const float (&factors)[rows]) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
#pragma unroll
      for (int n = 0; n < column_blocks; ++n) {
        at(r, n, 0) *= factors[r];
        at(r, n, 1) *= factors[r];
      }
    }
  }

  /// The lane's pair of its row `r` in column block `n`, rounded to 16 bits.
  template <class Element>
  JIT_DEVICE unsigned pack_pair(int r, int n) const {
    return pack<Element>(at(r, n, 0), at(r, n, 1));
  }
  /// Row block `m` and the 16 columns from 16 · `step` on, rounded to 16 bits: an A fragment of mma.sync and
  /// of wgmma, and four matrices of stmatrix.
  template <class Element>
  JIT_DEVICE void pack_step(unsigned (&a)[4], int m, int step) const {
    a[0] = pack_pair<Element>(2 * m, 2 * step);
    a[1] = pack_pair<Element>(2 * m + 1, 2 * step);
    a[2] = pack_pair<Element>(2 * m, 2 * step + 1);
    a[3] = pack_pair<Element>(2 * m + 1, 2 * step + 1);
  }
};

/// Word j of lane i of each quad becomes word i of lane j.
JIT_DEVICE void transpose_quad(unsigned (&words)[4]) {
  const auto exchange = [&](int lane_bit, int low, int high) {
    const bool is_upper = (threadIdx.x & lane_bit) != 0;
    const unsigned received = __shfl_xor_sync(full_warp, is_upper ? words[low] : words[high], lane_bit);
    (is_upper ? words[low] : words[high]) = received;
  };
  exchange(1, 0, 1);
  exchange(1, 2, 3);
  exchange(2, 0, 2);
  exchange(2, 1, 3);
}

}  // namespace jit
