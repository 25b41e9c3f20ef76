// The list of all tiles of queries that a launch computes. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// A tile of queries of one slice, a slice being a query head of a batch entry.
struct WorkTile {
  int batch;
  int head;     ///< query head
  int q_begin;  ///< first query
};

/// The same where sequences differ in length.
struct SequenceTile : WorkTile {
  int first_row;  ///< of the sequence's queries, among those of q
  int first_key;  ///< the same of its keys
  int seqlen_q;
  int seqlen_kv;
};

/// In which order the work tiles of a launch are dealt. The list has two parts. First come sections of
/// slices, few enough to share the L2 cache; within a section the last row of tiles comes first, because its
/// queries see most keys under most masks. Then come the first `last_rows` rows of all slices, which are the
/// shortest work, so that all blocks end at about the same time.
struct WorkOrder {
  int rows;            ///< of tiles, in each slice
  int slices;          ///< of this launch
  int section_slices;  ///< at least 1
  int last_rows;       ///< at most `rows`

  JIT_HOST_DEVICE constexpr int tiles() const { return rows * slices; }
  /// Of the first part of the list.
  JIT_HOST_DEVICE constexpr int long_tiles() const { return (rows - last_rows) * slices; }
};

/// The width of sections of `slices` slices, of which `fitting` fit the cache: nearly the same of all sections.
JIT_HOST_DEVICE constexpr int section_slices(int slices, int fitting) {
  constexpr int fewest = 8, most = 32;  // the fastest of those measured on an H200 (docs/notebook.md)
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
  const int long_rows = order.rows - order.last_rows;
  const bool is_last = index >= order.slices * long_rows;
  const int section = is_last ? 0 : index / (order.section_slices * long_rows);
  const int first = is_last ? 0 : section * order.section_slices;
  const int left = order.slices - first;
  const int width = !is_last && order.section_slices < left ? order.section_slices : left;
  const int in_section = index - (is_last ? order.slices : first) * long_rows;
  const int row = in_section / width;
  const int slice = first + in_section - row * width;
  const int batch = slice / heads_q;
  return {.batch = batch_begin + batch,
          .head = slice - batch * heads_q,
          .q_begin = (order.rows - 1 - row - (is_last ? long_rows : 0)) * tile_q};
}

}  // namespace jit
