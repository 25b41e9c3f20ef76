// The family of one-pass kernels of all gradients by TMA and wgmma (templates/backward_wgmma).
#pragma once

#include "generator/kernels/dropout_mask.h"
#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"
#include "templates/backward_wgmma/smem_layout.cuh"

namespace jit {

namespace backward_wgmma {

/// Layout of the precomputed dropout mask.
DropoutMaskTiles dropout_mask_tiles(const AttentionSpec& spec, const BackwardWgmma& config);

}  // namespace backward_wgmma

template <>
struct Family<BackwardWgmma> : FamilyDefaults<BackwardWgmma> {
  static constexpr std::string_view name = "backward_wgmma";
  static constexpr std::string_view doc =
      "all gradients in one pass with TMA and wgmma: sm_90a, rows aligned to 16 bytes";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::backward;
  static constexpr FamilyOutputs outputs = differentiated;
  static constexpr bool may_spill = false;
  static constexpr bool waits_for_keys = true;
  static constexpr double model_error = 2;  ///< not fitted; there are few configs
  static constexpr BackwardWgmma smallest = {};

  static std::span<const ConfigField<BackwardWgmma>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const BackwardWgmma& config);
  static std::vector<BackwardWgmma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const BackwardWgmma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const BackwardWgmma& config);
  static Program program(const AttentionSpec& spec, const BackwardWgmma& config);
  static bool has_kernel_ahead(const BackwardWgmma& config) { return config.dropout_mask_ahead; }
  static bool has_room(const AttentionSpec& spec, const ProblemShape& shape, const BackwardWgmma& config) {
    return !config.dropout_mask_ahead ||
           has_room_for_dropout_mask(shape, backward_wgmma::dropout_mask_tiles(spec, config));
  }
  /// The step before computes LSE and delta of queries, and clears the sums of dQ or determines turns, among
  /// as many blocks as the main kernel has. The step after rounds the sums.
  static FamilySteps steps(const AttentionSpec& spec, const BackwardWgmma& config);
  static BackwardWgmma deterministic(BackwardWgmma config) {
    config.deterministic = true;
    return config;
  }
  static QueryStatisticsLayout statistics(const BackwardWgmma&) {
    return {.tile = backward_wgmma::step_queries, .factor = -1, .has_means = true};
  }
  /// Workspace for LSE and delta of queries, dQ in fp32, and the precomputed dropout mask.
  static std::size_t workspace_bytes(const AttentionSpec& spec, const BackwardWgmma& config,
                                     const AttentionParams& params, int sm_count);
  /// Requires: launch.gradients is set, and the prepare step ran.
  static void launch(const KernelLaunch& launch, const BackwardWgmma& config);
};

namespace backward_wgmma {

/// Whether each consumer has a role instead of rows (templates/backward_wgmma/smem_layout.cuh), with the keys
/// of a whole block.
bool has_roles(const AttentionSpec& spec);
/// Whether 128 keys span several blocks of a block mask: then tiles have 64 keys, even if head dims allow
/// more.
bool has_narrow_blocks(const AttentionSpec& spec);
bool has_query_consumer(const AttentionSpec& spec);
int own_keys(const AttentionSpec& spec);
/// Keys of a tile, which a block or a pair of blocks processes.
int tile_kv(const AttentionSpec& spec, const BackwardWgmma& config);
/// Blocks that share a tile of keys.
constexpr int blocks_per_tile(const BackwardWgmma& config) { return config.pair ? 2 : 1; }

/// Registers per thread by setmaxnreg.
struct RegisterShares {
  int producer = 0;
  int consumer = 0;
  int dq = 0;  ///< of the consumer of dQ, with roles
};
RegisterShares register_shares(const AttentionSpec& spec);

/// The products of tiles that a kernel consists of, as what its Config inherits.
SourceFile wgmma_products(const AttentionSpec& spec, bool roles, bool pair);

/// The members of Config, shared by all three programs.
std::string config_text(const AttentionSpec& spec, const BackwardWgmma& config);

/// The programs of the steps before and after.
Program prepare_program(const AttentionSpec& spec, const BackwardWgmma& config);
Program convert_program(const AttentionSpec& spec, const BackwardWgmma& config);

}  // namespace backward_wgmma
}  // namespace jit
