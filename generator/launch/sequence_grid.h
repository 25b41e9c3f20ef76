// Grids of kernels whose blocks own tiles of sequences; blocks may have no tile if lengths are only known on
// the device.
#pragma once

#include <jit/spec.h>

#include "templates/base/params.cuh"

namespace jit {

/// Grid sizes along y and z.
struct SequenceGrid {
  /// Tiles of a batch entry; for varlen sequences an upper bound for all (templates/base/varlen_tiles.cuh).
  int tiles;
  int entries;  ///< batch entries; 1 for varlen sequences; 0 without entries or heads
};

/// The grids for tiles of `rows` queries, and of `rows` keys.
SequenceGrid query_grid(const AttentionSpec& spec, const AttentionParams& params, int rows);
SequenceGrid key_grid(const AttentionSpec& spec, const AttentionParams& params, int rows);

}  // namespace jit
