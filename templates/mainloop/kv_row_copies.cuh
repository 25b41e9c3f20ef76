// Tiles of keys and values by cp.async, row by row: where their rows lie in pages, and the copies.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/key_lists.cuh"
#include "problem/paged_kv.cuh"
#include "problem/variable_sequences.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/work_tile_keys.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Starts the copy of a tile of keys or values, by so many threads, of which this is `thread`. `starts(row)` is where a
/// row begins in a page, asked where there are pages.
template <class Tile, int columns, int threads, class Config, class Starts>
JIT_DEVICE void copy_kv_tile(unsigned tile, const KvRows<Config>& rows, const Starts& starts,
                             int thread = static_cast<int>(threadIdx.x)) {
  if constexpr (looks_up_rows<Config>) {
    copy_rows<Tile, columns, threads, Config::alignment>(tile, starts, thread);
  } else {
    TileCopy<Tile, columns, threads, Config::alignment, KvElement<Config>>(rows.dense(), rows.count, thread)
        .load(tile, 0);
  }
}

/// The pages of a tile's rows, a thread for each of some of them, in two halves: they are on their way between them.
template <class Config, int threads, int tile_rows>
class PageReader {
  static constexpr int rows_per_thread =
      looks_up_rows<Config> ? (Config::tile_kv + threads - 1) / threads : 0;

 public:
  /// Pages of the tile of a split from key `k_begin` on; none where there is no tile, and then nothing of the split is read.
  JIT_DEVICE void ask(const AttentionParams& params, const Info<Config>& split, int k_begin, bool has_tile) {
    const int keys = has_tile ? split.kv.length : 0;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int key = k_begin + row(i);
      pages_[i] = -1;
      if (row(i) >= Config::tile_kv || key >= keys) continue;
      if constexpr (has_key_lists<Config>) {
        pages_[i] =
            Config::Lists::template flat_place<Config>(params, split.owner, split.batch, split.kv_head, key);
      } else {
        pages_[i] = VariableSequences<Config>(params).page(split.batch, split.kv.begin + key);
        expect_page<Config>(params, work_tile_of<Config>(split, tile_rows), key, 1, pages_[i]);
      }
    }
  }
  /// Writes them to `pages`, one for each row of the tile.
  JIT_DEVICE void put(int* pages) const {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      if (row(i) < Config::tile_kv) pages[row(i)] = pages_[i];
    }
  }

 private:
  static JIT_DEVICE int row(int i) { return threadIdx.x + i * threads; }

  int pages_[rows_per_thread + 1];
};

}  // namespace jit
