// Launches of families whose persistent blocks share out a list of tiles of queries.
#pragma once

#include "generator/kernels/family.h"
#include "generator/launch/kernel_launch.h"

namespace jit {

/// Tiles of a block, as such a family's config has them.
struct PersistentTiles {
  int tile_q = 0;
  int tile_kv = 0;
  int blocks_per_sm = 1;
  int blocks_per_tile = 1;  ///< of a cluster, which compute a work tile together
};

/// Puts a kernel on the stream, with AttentionParams `params` and TensorMaps, or SequenceMaps where only the device
/// knows the lengths of sequences: as many blocks as fit the GPU, in one dimension, over the list of work tiles. `spec`
/// is that of the tensors that the kernel reads; `more`, if it is not null, the kernel's third parameter. Throws Error
/// invalid_argument that names q where the list is too long.
void launch_persistent(const KernelLaunch& launch, const AttentionSpec& spec, const PersistentTiles& tiles,
                       AttentionParams params, void* more = nullptr);

}  // namespace jit
