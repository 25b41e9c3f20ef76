// The list of all tiles of queries that a launch computes. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"
#include "problem/seqlen_info.cuh"

namespace jit {

/// A tile of queries of one slice, a slice being a query head of a batch entry.
struct WorkTile {
  int batch;
  int head;     ///< query head
  int q_begin;  ///< first query
};

/// A work tile where sequences differ in length.
struct SequenceTile : WorkTile, SeqlenInfo {};

/// Work tiles that a persistent block keeps: the key producer may be three ahead of the one that consumers compute.
inline constexpr int stages_work = 4;

/// Places in the table of ranges of key words (mainloop/key_word_ranges.cuh), of all batch entries of a launch.
inline constexpr int key_word_range_places = 512;

/// In which order the work tiles of a launch are scheduled. In each slice the last row of tiles comes first, because
/// its queries see most keys under most masks. The list has three parts. First come the last `first_rows` rows of all
/// slices, which are the longest work where rows differ by more than their place. Then come sections of slices, few
/// enough to share the L2 cache. In the end come the first `last_rows` rows of all slices, which are the shortest
/// work, so that all blocks end at about the same time.
struct WorkOrder {
  int rows;            ///< of tiles, in each slice
  int slices;          ///< of this launch
  int section_slices;  ///< at least 1
  int first_rows;
  int last_rows;  ///< with first_rows at most `rows`

  JIT_HOST_DEVICE constexpr int tiles() const { return rows * slices; }
  /// Tiles of all but the last part of the list.
  JIT_HOST_DEVICE constexpr int long_tiles() const { return (rows - last_rows) * slices; }
};

/// Where blocks learn which work tiles are theirs.
struct TileSchedule {
  int* counter;     ///< of work tiles that were asked for, 0 between launches
  WorkOrder order;  ///< of the work tiles; not read where sequences differ in length
  int section_keys;  ///< that fit the L2 cache, those of a slice counted once; read where sequences differ in length
};

/// Slices of a section where the rows of all are computed one after the other: the fastest of those measured on an H200
/// (docs/records/notebook.md).
inline constexpr int fewest_section_slices = 8;

/// The width of sections of `slices` slices, of which `fitting` fit the cache, and of `fewest` at least: nearly the
/// same of all sections.
JIT_HOST_DEVICE constexpr int section_slices(int slices, int fitting, int fewest = fewest_section_slices) {
  constexpr int most = 32;  // measured like the fewest
  const int width = fitting < fewest ? fewest : fitting > most ? most : fitting;
  const int sections = (slices + width - 1) / width;
  return (slices + sections - 1) / sections;
}

/// The work of such short sequences evens out by itself.
inline constexpr int few_tokens = 1024;

/// The tile at place `index` of the list, in [0, order.tiles()). Slice 0 is the first head of batch entry
/// `batch_begin`.
template <int tile_q>
JIT_HOST_DEVICE constexpr WorkTile work_tile(const WorkOrder& order, int index, int heads_q,
                                             int batch_begin) {
  // The part of the list that the tile is in: its rows, from the last one of the slice on, and its first place.
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
