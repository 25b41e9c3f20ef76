// Grids and memory of kernels that split keys over blocks (templates/split_keys).
#pragma once

#include <string_view>

#include <jit/attention.h>

#include "generator/launch/kernel_launch.h"
#include "templates/split_keys/split_params.cuh"

namespace jit {

/// A block's tile sizes, and its occupancy.
struct SplitTiles {
  int tile_rows = 0;
  int tile_kv = 0;
  int blocks_per_sm = 1;
  Requests requests = Requests::all;  ///< requests in the tile space
  int box_rows = 0;                   ///< keys per TMA box, in kernels for some requests
  int cluster = 1;                    ///< blocks of a cluster
};

/// Blocks of a launch: as many as are resident on a GPU with `sm_count` SMs, limited by the number of tiles
/// of keys.
int split_blocks(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params,
                 int sm_count);

/// The grid and memory of a launch.
struct SplitLaunch {
  int blocks = 0;  ///< 0: this turn launches nothing
  SplitParams params;
};

/// Throws Error invalid_argument if the tile space is longer than kernels of this family can count.
SplitLaunch split_launch(const KernelLaunch& launch, const SplitTiles& tiles, std::string_view family);

/// Launches the kernel with parameters `arguments`; with `dependent` it may start before the previous grid
/// ends. Resets the stream's memory if the launch fails, because no kernel then resets its counters.
void launch_split(const KernelLaunch& launch, const SplitLaunch& split, void** arguments, bool dependent);

}  // namespace jit
