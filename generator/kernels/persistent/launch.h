// Launches of families whose persistent blocks process a list of query tiles.
#pragma once

#include "generator/kernels/family.h"
#include "generator/launch/kernel_launch.h"

namespace jit {

/// Tile sizes and occupancy in a family's config.
struct PersistentTiles {
  int tile_q = 0;
  int tile_kv = 0;
  int blocks_per_sm = 1;
  int blocks_per_tile = 1;  ///< a cluster, which computes a work tile together
};

/// Launches a kernel with AttentionParams `params` and TensorMaps, or SequenceMaps if lengths are on the
/// device: as many blocks as are co-resident, in one dimension, over the list of work tiles. `spec` describes
/// the tensors that the kernel reads; `more` is a third parameter unless null. Throws Error invalid_argument,
/// naming q, if the list is too long.
void launch_persistent(const KernelLaunch& launch, const AttentionSpec& spec, const PersistentTiles& tiles,
                       AttentionParams params, void* more = nullptr);

}  // namespace jit
