// The list of work tiles of a launch, and their order. Host and NVRTC compile this file.
#pragma once

#include "base/host_device.cuh"
#include "problem/seqlen_info.cuh"

namespace jit {

/// A tile of queries of one slice; a slice is a query head of a batch entry.
struct WorkTile {
  int batch;
  int head;     ///< query head
  int q_begin;  ///< first query
};

/// A work tile whose sequences may differ in length.
struct SequenceTile : WorkTile, SeqlenInfo {};

/// Stages of the work pipeline: the key producer may be three work tiles ahead of the consumers.
inline constexpr int stages_work = 4;

/// Entries of the table of ranges of key words (mainloop/key_word_ranges.cuh), shared by all batch entries of a launch.
inline constexpr int key_word_range_places = 512;

/// The order in which a launch schedules its work tiles. Each slice begins with its last row of tiles, since its
/// queries see the most keys under most masks. The list has three parts. The first `first_rows` rows of all slices come
/// first: they are the longest work if masks make the lengths of rows differ by more than their index. Then come
/// sections of slices, few enough to share the L2 cache. The last `last_rows` rows of all slices come at the end: they
/// are the shortest work, so that all blocks end at about the same time.
struct WorkOrder {
  int rows;            ///< of tiles, in each slice
  int slices;          ///< of this launch
  int section_slices;  ///< at least 1
  int first_rows;
  int last_rows;  ///< with first_rows at most `rows`

  JIT_HOST_DEVICE constexpr int tiles() const { return rows * slices; }
  /// Tiles of the list without its last part.
  JIT_HOST_DEVICE constexpr int long_tiles() const { return (rows - last_rows) * slices; }
};

/// Inputs of a tile scheduler.
struct TileSchedule {
  int* counter;     ///< work tiles taken so far; 0 between launches
  WorkOrder order;  ///< order of the work tiles; unused if sequences differ in length
  int section_keys;  ///< keys that fit the L2 cache, those of a slice counted once; used if sequences differ in length
};

/// The least number of slices in a section whose rows are computed one after the other: the fastest one measured on an
/// H200 (docs/records/notebook.md).
inline constexpr int fewest_section_slices = 8;

/// The width of sections, nearly equal for all, of `slices` slices. `fitting` of them fit the L2 cache; a section has
/// at least `fewest`.
JIT_HOST_DEVICE constexpr int section_slices(int slices, int fitting, int fewest = fewest_section_slices) {
  constexpr int most = 32;  // measured like the fewest
  const int width = fitting < fewest ? fewest : fitting > most ? most : fitting;
  const int sections = (slices + width - 1) / width;
  return (slices + sections - 1) / sections;
}

/// Keys of the longest sequence up to which work tiles are not ordered by length: their work evens out by itself.
inline constexpr int few_tokens = 1024;

/// The work tile at index `index` of the list, in [0, order.tiles()). Slice 0 is the first head of batch entry
/// `batch_begin`.
template <int tile_q>
JIT_HOST_DEVICE constexpr WorkTile work_tile(const WorkOrder& order, int index, int heads_q,
                                             int batch_begin) {
  // The tile's part of the list: its rows, counted from the slice's last one, and its first index.
  const int first_tiles = order.first_rows * order.slices, long_tiles = order.long_tiles();
  const bool is_first = index < first_tiles, is_last = index >= long_tiles;
  const int rows_before = is_first ? 0 : is_last ? order.rows - order.last_rows : order.first_rows;
  const int rows = is_first  ? order.first_rows
                   : is_last ? order.last_rows
                             : order.rows - order.last_rows - rows_before;
  const int place = index - rows_before * order.slices;

  const int section_slices = is_first || is_last ? order.slices : order.section_slices;
  const int first_slice = place / (section_slices * rows) * section_slices;
  const int left = order.slices - first_slice;
  const int width = section_slices < left ? section_slices : left;
  const int in_section = place - first_slice * rows;
  const int row = in_section / width;
  const int slice = first_slice + in_section - row * width;
  const int batch = slice / heads_q;
  return {.batch = batch_begin + batch,
          .head = slice - batch * heads_q,
          .q_begin = (order.rows - 1 - rows_before - row) * tile_q};
}

}  // namespace jit
