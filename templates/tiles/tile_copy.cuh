// Copies between (seqlen × head_dim) slices in global memory and tiles in shared memory.
#pragma once

#include "base/row_pieces.cuh"
#include "base/rows.cuh"
#include "ptx/cp_async.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit {

JIT_DEVICE unsigned smem_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// A pointer to elements as 16-bit words.
template <class Element>
JIT_DEVICE const auto* in_halves(const Element* elements) {
  if constexpr (ElementTraits<Element>::bytes == 2) {
    return elements;
  } else {
    return reinterpret_cast<const fp16*>(elements);
  }
}

/// Copies one chunk, of which `bytes` bytes exist, a multiple of 8, or none unless `valid`; the rest becomes zeros.
/// `alignment` is that of the global address. Below 4 bytes there is no cp.async: the chunk goes through registers, and
/// is visible after the next barrier as well.
template <int alignment, class Element>
JIT_DEVICE void copy_chunk(unsigned smem, const Element* gmem, bool valid, int bytes = chunk_bytes) {
  if constexpr (alignment == chunk_bytes) {
    cp_async_first<chunk_bytes>(smem, gmem, valid ? bytes : 0);
  } else if constexpr (alignment >= 4) {
#pragma unroll
    for (int piece = 0; piece < chunk_bytes / alignment; ++piece) {
      cp_async_zfill<alignment>(smem + piece * alignment,
                                gmem + piece * (alignment / ElementTraits<Element>::bytes),
                                valid && piece * alignment < bytes);
    }
  } else {
    const auto* halves = in_halves(gmem);
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool exists = valid && 4 * i < bytes;
      const unsigned low = exists ? halves[2 * i].bits : 0, high = exists ? halves[2 * i + 1].bits : 0;
      word[i] = low | high << 16;
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
  }
}

/// Chunks of a row of `columns` elements. The last one is shorter if elements have 8 bits and head_dim is an odd
/// multiple of 8.
template <int columns, class Element>
struct RowChunks {
  static constexpr int whole = columns / ElementTraits<Element>::per_chunk;
  static constexpr int rest_bytes =
      columns % ElementTraits<Element>::per_chunk * ElementTraits<Element>::bytes;
  static constexpr int count = whole + (rest_bytes != 0 ? 1 : 0);

  static JIT_DEVICE constexpr int bytes(int chunk) {
    return rest_bytes == 0 || chunk < whole ? chunk_bytes : rest_bytes;
  }
};

/// Copies tiles out of one (seqlen × head_dim) slice. Each thread copies one chunk of every
/// `rows_per_pass`-th row, so that all but one of its addresses follow from the first by adding constants.
/// Rows from the end of the slice on and columns from `columns` on become zeros: tails need no padded copy,
/// and never feed NaN to the tensor cores.
template <class Tile, int columns, int threads, int alignment, class Element>
class TileCopy {
 public:
  JIT_DEVICE TileCopy(const DenseRows<const Element>& rows, int row_end,
                      int thread = static_cast<int>(threadIdx.x))
      : row_stride_(rows.stride),
        row_end_(row_end),
        row_(thread / Tile::chunks),
        chunk_(thread % Tile::chunks) {
    source_ = rows.first + row_ * rows.stride + chunk_ * ElementTraits<Element>::per_chunk;
    offset_ = Tile::offset(row_, chunk_);
    column_is_valid_ = chunk_ < Chunks::count;
  }

  /// Starts the copy of the rows from `first_row` on to the tile at shared address `tile`.
  JIT_DEVICE void load(unsigned tile, int first_row) const {
    if (idle_threads && row_ >= rows_per_pass) return;
    const Element* source = source_ + first_row * row_stride_;
    if (all_columns && alignment == chunk_bytes && first_row + Tile::rows <= row_end_) {
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) {
        if (is_whole(pass) || row_ + pass * rows_per_pass < Tile::rows) {
          cp_async<chunk_bytes>(tile + offset(pass), source + pass * rows_per_pass * row_stride_);
        }
      }
    } else {
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) {
        if (is_whole(pass) || row_ + pass * rows_per_pass < Tile::rows) {
          const bool valid =
              first_row + row_ + pass * rows_per_pass < row_end_ && (all_columns || column_is_valid_);
          copy_chunk<alignment>(tile + offset(pass), source + pass * rows_per_pass * row_stride_, valid,
                                Chunks::bytes(chunk_));
        }
      }
    }
  }

 private:
  using Chunks = RowChunks<columns, Element>;
  static constexpr bool all_columns = columns == Tile::chunks * ElementTraits<Element>::per_chunk;
  static constexpr int rows_per_pass =
      threads / Tile::chunks < Tile::rows ? threads / Tile::chunks : Tile::rows;
  static constexpr int passes = (Tile::rows + rows_per_pass - 1) / rows_per_pass;
  static constexpr bool idle_threads = rows_per_pass * Tile::chunks != threads;
  static constexpr bool power_of_two = (rows_per_pass & (rows_per_pass - 1)) == 0;
  static_assert(rows_per_pass > 0, "a block has a thread for each chunk of a row");

  /// Whether every row of the pass lies in the tile.
  static JIT_DEVICE constexpr bool is_whole(int pass) { return (pass + 1) * rows_per_pass <= Tile::rows; }

  JIT_DEVICE unsigned offset(int pass) const {
    if constexpr (power_of_two) return Tile::advance(offset_, pass * rows_per_pass, 0);
    return Tile::offset(row_ + pass * rows_per_pass, chunk_);
  }

  const Element* source_;  // of this thread's chunk of row 0
  long long row_stride_;
  int row_end_;
  int row_;          // row of this thread in the first pass
  int chunk_;        // chunk of this thread in each row
  unsigned offset_;  // offset of this thread's chunk in the tile, first pass
  bool column_is_valid_;
};

/// Starts the copy of rows at arbitrary addresses to the tile at shared address `tile`. By `threads` threads, of which
/// this is `thread`. `source(row)` returns the address of a row's first element, or null for zeros; it may be called
/// for rows after the tile's last one. Columns from `columns` on become zeros.
template <class Tile, int columns, int threads, int alignment, class Source>
JIT_DEVICE void copy_rows(unsigned tile, const Source& source, int thread = static_cast<int>(threadIdx.x)) {
  using Element = Pointee<decltype(source(0))>;
  using Chunks = RowChunks<columns, Element>;
  constexpr int per_chunk = ElementTraits<Element>::per_chunk;
  constexpr int rows_per_pass = threads / Tile::chunks < Tile::rows ? threads / Tile::chunks : Tile::rows;
  static_assert(rows_per_pass > 0, "a block has a thread for each chunk of a row");
  constexpr int passes = (Tile::rows + rows_per_pass - 1) / rows_per_pass;
  const int first = thread / Tile::chunks, chunk = thread % Tile::chunks;
  if (rows_per_pass * Tile::chunks != threads && first >= rows_per_pass) return;
  // Computes all addresses first, so that their inputs are not reloaded after each copy.
  const Element* starts[passes];
#pragma unroll
  for (int pass = 0; pass < passes; ++pass) starts[pass] = source(first + pass * rows_per_pass);
#pragma unroll
  for (int pass = 0; pass < passes; ++pass) {
    const int row = first + pass * rows_per_pass;
    if ((pass + 1) * rows_per_pass > Tile::rows && row >= Tile::rows) break;
    const bool valid = starts[pass] != nullptr && (Chunks::count == Tile::chunks || chunk < Chunks::count);
    copy_chunk<alignment>(tile + Tile::offset(row, chunk), starts[pass] + chunk * per_chunk, valid,
                          Chunks::bytes(chunk));
  }
}

/// Rounds four numbers to four neighboring elements, floats among them, written in pieces of `alignment` bytes.
template <int alignment, class Element>
JIT_DEVICE void store_four(Element* target, float4 values) {
  const unsigned words[2] = {pack<Element>(values.x, values.y), pack<Element>(values.z, values.w)};
  store_words<8, alignment>(target, words);
}
template <int alignment>
JIT_DEVICE void store_four(float* target, float4 values) {
  const unsigned words[4] = {
      static_cast<unsigned>(__float_as_int(values.x)), static_cast<unsigned>(__float_as_int(values.y)),
      static_cast<unsigned>(__float_as_int(values.z)), static_cast<unsigned>(__float_as_int(values.w))};
  store_words<16, maximum<int>(alignment, sizeof(float))>(target, words);
}

/// One warp writes `rows` rows of a tile, from `tile_row` on, to those of `target` from `row` on; rows from
/// `row_end` on, and columns from `column_end` on, are left alone.
template <class Tile, int columns, int rows, int alignment, class Element>
JIT_DEVICE void store_tile_rows(const DenseRows<Element>& target, int row, int row_end, unsigned tile,
                                int tile_row, int column_end = columns) {
  constexpr int per_chunk = ElementTraits<Element>::per_chunk;
  constexpr int chunks = columns / per_chunk;
  constexpr int rows_per_pass = warp_size / chunks;
  static_assert(rows_per_pass > 0, "a warp has a lane for each chunk of a row");
  const int lane_row = lane_id() / chunks, chunk = lane_id() % chunks;
  if (lane_row >= rows_per_pass) return;
  if (column_end < columns && chunk * per_chunk >= column_end) return;  // mutate: StoresPastTheLastColumn
  const DenseRows<Element> own = target.from(row + lane_row, chunk * per_chunk);
#pragma unroll
  for (int r = 0; r < rows; r += rows_per_pass) {
    if (lane_row + r >= rows || row + lane_row + r >= row_end) break;  // mutate: StoresPastTheLastQuery
    unsigned words[4];
    load_shared(words, tile + Tile::offset(tile_row + lane_row + r, chunk));
    store_words<chunk_bytes, alignment>(own.at(r), words);
  }
}

}  // namespace jit
