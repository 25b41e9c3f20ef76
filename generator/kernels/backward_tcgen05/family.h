// The family of one-pass kernels of all gradients by tcgen05 and tensor memory (templates/backward_tcgen05).
#pragma once

#include <array>

#include "generator/kernels/family.h"
#include "templates/backward_tcgen05/smem_layout.cuh"

namespace jit {

namespace backward_tcgen05 {

inline constexpr std::array archs_of_tensor_memory{Arch{10, 0, 'a'}, Arch{10, 3, 'a'}};

}  // namespace backward_tcgen05

template <>
struct Family<BackwardTcgen05> : FamilyDefaults<BackwardTcgen05> {
  static constexpr std::string_view name = "backward_tcgen05";
  static constexpr std::string_view doc =
      "all gradients in one pass with TMA, tcgen05 and tensor memory: sm_100a and sm_103a";
  static constexpr std::span<const Arch> archs = backward_tcgen05::archs_of_tensor_memory;
  static constexpr Pass pass = Pass::backward;
  static constexpr bool may_spill = false;
  static constexpr double model_error = 2;                          ///< not measured
  static constexpr int most_head_dim = 128, most_head_dim_v = 128;  ///< limit of tensor memory for sums
  static constexpr BackwardTcgen05 smallest = {.stages = 2};

  static std::span<const ConfigField<BackwardTcgen05>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const BackwardTcgen05& config);
  static std::vector<BackwardTcgen05> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const BackwardTcgen05& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const BackwardTcgen05& config);
  static Program program(const AttentionSpec& spec, const BackwardTcgen05& config);
  /// The step before computes LSE and delta of queries, and clears the sums of dQ or determines turns. The
  /// step after rounds the sums.
  static FamilySteps steps(const AttentionSpec& spec, const BackwardTcgen05& config);
  static BackwardTcgen05 deterministic(BackwardTcgen05 config) {
    config.deterministic = true;
    return config;
  }
  static QueryStatisticsLayout statistics(const BackwardTcgen05&) {
    return {.tile = backward_tcgen05::tile_q, .factor = -1};
  }
  static std::size_t workspace_bytes(const AttentionSpec& spec, const BackwardTcgen05& config,
                                     const AttentionParams& params, int sm_count);
  /// Requires: launch.gradients is set, and the prepare step ran.
  static void launch(const KernelLaunch& launch, const BackwardTcgen05& config);
};

namespace backward_tcgen05 {

/// Registers per thread by setmaxnreg, 512 in total with two score warpgroups: the block is launched with 128
/// for each of 4 warpgroups.
inline constexpr int score_registers = 168, dq_registers = 88, producer_registers = 88;
static_assert(2 * score_registers + dq_registers + producer_registers == 4 * 128);

/// The programs of the steps before and after.
Program prepare_program(const AttentionSpec& spec, const BackwardTcgen05& config);
Program convert_program(const AttentionSpec& spec, const BackwardTcgen05& config);

}  // namespace backward_tcgen05
}  // namespace jit
