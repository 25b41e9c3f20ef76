// The grids of kernels whose blocks own tiles of sequences, some of them without a tile where only the device knows
// lengths.
#pragma once

#include <jit/spec.h>

#include "templates/base/params.cuh"

namespace jit {

/// Blocks along y of a grid, and along z.
struct SequenceGrid {
  /// Tiles of a batch entry; for varlen sequences the places of all tiles (templates/base/varlen_tiles.cuh).
  int tiles;
  int entries;  ///< batch entries; 1 of varlen sequences; 0 where there are none or no heads
};

/// The grid of tiles of `rows` queries, and of keys.
SequenceGrid query_grid(const AttentionSpec& spec, const AttentionParams& params, int rows);
SequenceGrid key_grid(const AttentionSpec& spec, const AttentionParams& params, int rows);

}  // namespace jit
