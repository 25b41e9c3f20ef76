// The common part of the families whose kernel computes all gradients in one pass, between one that prepares and one that
// converts the sums of dQ (templates/backward): launches, workspace, how blocks share tiles of keys.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "generator/kernels/dropout_mask.h"
#include "generator/kernels/family.h"

namespace jit::one_pass {

/// A family's kernel, as launches need it.
struct Shape {
  int tile_q = 64;             ///< queries per step
  int tile_kv = 128;           ///< keys per block, or pair of blocks
  int blocks_per_tile = 1;     ///< that share a tile of keys
  int sum_columns = 128;       ///< of dQ in fp32, for each query
  int gradient_rows = 16;      ///< of dK and dV that a warp copies at once by TMA
  bool deterministic = false;  ///< blocks take turns when they add to dQ
  std::optional<DropoutMaskTiles> dropout_mask = std::nullopt;  ///< precomputed, as blocks read it
};

/// The steps before and behind: `prepare` and `convert` are their programs. With spec.output the first one makes the gradient
/// of o before it, in launch.kept.
FamilySteps steps(const AttentionSpec& spec, const Shape& shape, Program prepare, Program convert);
/// LSE and delta of each query, dQ in fp32, turns, and the precomputed dropout mask.
std::size_t workspace_bytes(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params);
/// Requires: launch.gradients is there, and the step before it ran.
void launch(const KernelLaunch& launch, const Shape& shape);

/// The source of one of the two kernels around.
struct SideText {
  std::string_view family;       ///< its folder and namespace
  std::string_view config_name;  ///< of the program
  std::string_view what;         ///< the kernel does, in a comment
  std::string_view config;       ///< members of its Config
  KernelConfig facts;            ///< recorded with it
  int threads = 256;
  int blocks_per_sm = 1;
};
/// With deterministic sums it records whose turn it is when, too.
Program prepare_program(const AttentionSpec& spec, const SideText& text, bool deterministic);
/// Calls the family's `convert_dq`.
Program convert_program(const AttentionSpec& spec, const SideText& text);

/// How blocks that wait for one another share KV heads: so many a head, and so many heads at the same time.
struct HeadShares {
  int sharers = 1;
  int heads_at_once = 1;
  int rounds = 0;  ///< tiles of keys that a block has
};
/// The fewest rounds, and then up to so many sharers, which read the same queries at the same time.
HeadShares head_shares(int heads, int key_tiles, int sm_count, int most_sharers);

/// How many KV heads' tiles of keys are scheduled together (templates/backward/tensor_maps.cuh): one, where all
/// tiles are as long; else so many that they keep all multiprocessors busy for more than one tile, of `heads` as
/// evenly as they go.
int heads_scheduled_together(const AttentionSpec& spec, int heads, int key_tiles, int sm_count);

/// How many KV heads' tiles are scheduled together where blocks draw tiles and take turns: so many that about
/// four blocks have tiles of one head.
int heads_drawn_together(int heads, int sm_count);

}  // namespace jit::one_pass
