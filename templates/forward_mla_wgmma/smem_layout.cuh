// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/host_device.cuh"
#include "split_keys/key_note.cuh"
#include "split_keys/span_note.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

/// Warpgroups of a block that compute. Each has all rows, half of the columns of O, and the scores of every second tile.
inline constexpr int consumers = 2;

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q | K stage 0 | … | P | maxima | sums | notes of keys | notes of parts | barriers |
///
/// P is that of one tile of keys: consumers hand it to each other. Barriers: one for each stage, 8 bytes.
struct SmemLayout {
  int q;
  int k;
  int p;
  int maxima;     ///< of each consumer a float for each row
  int sums;       ///< the same of each consumer, of two parts
  int key_notes;  ///< KeyNote for each stage of K
  int parts;      ///< note for each stage of parts
  int q_full;
  int q_empty;
  int k_full;
  int k_empty;
  int part_full;
  int part_empty;
  int total;
};

struct SmemSizes {
  int head_dim;
  int tile_kv;
  int stages;
  bool has_spans;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int barrier_bytes = 8, tile_alignment = 1024;
  constexpr int row_floats = rows_per_warpgroup * static_cast<int>(sizeof(float));
  int end = 0;
  const auto place = [&end](int bytes, int alignment = 8) {
    const int begin = (end + alignment - 1) / alignment * alignment;
    end = begin + bytes;
    return begin;
  };
  SmemLayout layout{};
  layout.q = place(panel_tile_bytes(rows_per_warpgroup, sizes.head_dim), tile_alignment);
  layout.k = place(sizes.stages * panel_tile_bytes(sizes.tile_kv, sizes.head_dim), tile_alignment);
  layout.p = place(panel_tile_bytes(rows_per_warpgroup, sizes.tile_kv), tile_alignment);
  layout.maxima = place(consumers * row_floats);
  layout.sums = place(2 * consumers * row_floats);
  layout.key_notes = place(sizes.stages * static_cast<int>(sizeof(KeyNote)));
  layout.parts = place(stages_parts * note_bytes(sizes.has_spans));
  layout.q_full = place(barrier_bytes);
  layout.q_empty = place(barrier_bytes);
  layout.k_full = place(sizes.stages * barrier_bytes);
  layout.k_empty = place(sizes.stages * barrier_bytes);
  layout.part_full = place(stages_parts * barrier_bytes);
  layout.part_empty = place(stages_parts * barrier_bytes);
  layout.total = end;
  return layout;
}

}  // namespace jit::forward_mla_wgmma
