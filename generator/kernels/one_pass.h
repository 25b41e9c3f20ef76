// Shared by the one-pass families of all gradients, whose main kernel runs between one that prepares
// statistics and one that converts sums of dQ (templates/backward): launches, workspace, and distribution of
// key tiles.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "generator/kernels/dropout_mask.h"
#include "generator/kernels/family.h"

namespace jit::one_pass {

/// Properties of a family's kernel that launches need.
struct Shape {
  int tile_q = 64;             ///< queries per step
  int tile_kv = 128;           ///< keys per block, or pair of blocks
  int blocks_per_tile = 1;     ///< that share a tile of keys
  int sum_columns = 128;       ///< columns of fp32 sums of dQ
  int gradient_rows = 16;      ///< of dK and dV that a warp copies at once by TMA
  bool deterministic = false;  ///< blocks add to dQ in a fixed order
  std::optional<DropoutMaskTiles> dropout_mask = std::nullopt;  ///< layout, if it is precomputed
};

/// The steps around the main kernel, by the programs `prepare` and `convert`. With spec.output, the first
/// step stores the gradient of o before the functor in launch.kept.
FamilySteps steps(const AttentionSpec& spec, const Shape& shape, Program prepare, Program convert);
/// Workspace for LSE and delta of queries, dQ in fp32, turns, and the precomputed dropout mask.
std::size_t workspace_bytes(const AttentionSpec& spec, const Shape& shape, const AttentionParams& params);
/// Requires: launch.gradients is set, and the prepare step ran.
void launch(const KernelLaunch& launch, const Shape& shape);

/// The parts of a prepare or convert program.
struct SideText {
  std::string_view family;       ///< folder and namespace
  std::string_view config_name;  ///< suffix of the program's name
  std::string_view what;         ///< description of the kernel, for a comment
  std::string_view config;       ///< members of its Config
  KernelConfig facts;            ///< config that the program records
  int threads = 256;
  int blocks_per_sm = 1;
};
/// The program that prepares statistics, and with deterministic sums also the order of turns.
Program prepare_program(const AttentionSpec& spec, const SideText& text, bool deterministic);
/// The program that calls the family's `convert_dq`.
Program convert_program(const AttentionSpec& spec, const SideText& text);

/// How blocks that wait for one another share KV heads: `sharers` per head, `heads_at_once` heads.
struct HeadShares {
  int sharers = 1;
  int heads_at_once = 1;
  int rounds = 0;  ///< tiles of keys per block
};
/// The fewest rounds, then the most sharers up to `most_sharers`, which read the same queries.
HeadShares head_shares(int heads, int key_tiles, int sm_count, int most_sharers);

/// Whether deterministic blocks share the key tiles of a head in rounds rather than draw tiles
/// (templates/backward/turns.cuh).
bool shares_heads(const AttentionSpec& spec);

/// The number of KV heads whose key tiles are scheduled together (templates/backward/tensor_maps.cuh): one if
/// all tiles take equally long, else as many as keep all SMs busy for more than one tile, in groups of nearly
/// equal size. `key_tiles` are those of a head, or of a varlen sequence of average length.
int heads_scheduled_together(const AttentionSpec& spec, int heads, int key_tiles, int sm_count);

/// How blocks that draw tiles and take turns share KV heads.
struct DrawnHeads {
  int together = 1;   ///< heads whose tiles are interleaved, so that tiles of one head begin steps apart
  int from_last = 0;  ///< first heads of all batch entries, whose last tile of keys adds first
};
/// With `key_tiles` as in heads_scheduled_together. The bits of a varlen sequence depend on nothing but itself, so
/// either all heads begin with the last tile or none: none, since a launch would end with the longest tiles.
DrawnHeads heads_drawn(const AttentionSpec& spec, int heads, int key_tiles, int sm_count);

}  // namespace jit::one_pass
