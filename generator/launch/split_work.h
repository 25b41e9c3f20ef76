// How much work a kernel has whose keys are split over blocks (templates/split_keys).
#pragma once

#include <string_view>

#include <jit/attention.h>

#include "generator/launch/kernel_launch.h"
#include "templates/split_keys/split_params.cuh"

namespace jit {

/// Tiles that a block takes at once, and how many blocks stay on a multiprocessor.
struct SplitTiles {
  int tile_rows = 0;
  int tile_kv = 0;
  int blocks_per_sm = 1;
  Requests requests = Requests::all;  ///< whose keys are in the tile space
  int box_rows = 0;                   ///< keys that are copied at once, where requests are shared
};

/// Blocks of a launch: as many as stay on a GPU of so many multiprocessors, but no more than there can be tiles of keys.
int split_blocks(const AttentionSpec& spec, const SplitTiles& tiles, const AttentionParams& params,
                 int sm_count);

/// A launch's grid and memory.
struct SplitLaunch {
  int blocks = 0;  ///< none: there is nothing to launch at this turn
  SplitParams params;
};

/// Throws Error invalid_argument when the tile space is longer than kernels of this family count.
SplitLaunch split_launch(const KernelLaunch& launch, const SplitTiles& tiles, std::string_view family);

/// Puts the kernel on the stream, with `arguments` as its parameters; `dependent`: it may begin before the grid in front of
/// it ends. When it cannot be launched the stream's memory is reset, because no kernel then resets its counters.
void launch_split(const KernelLaunch& launch, const SplitLaunch& split, void** arguments, bool dependent);

}  // namespace jit
