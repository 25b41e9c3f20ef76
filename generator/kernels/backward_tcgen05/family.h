// The family of one-pass kernels of all gradients with tcgen05 and tensor memory (templates/backward_tcgen05).
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
  static constexpr double model_error = 2;                          ///< nobody has timed it
  static constexpr int most_head_dim = 128, most_head_dim_v = 128;  ///< whose sums fit tensor memory
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
  /// One before: LSE and delta of each query, and zeros where dQ is summed, or whose turns are when. One behind rounds the
  /// sums of dQ.
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
  /// Requires: launch.gradients is there, and the step before it ran.
  static void launch(const KernelLaunch& launch, const BackwardTcgen05& config);
};

namespace backward_tcgen05 {

/// Registers per thread that setmaxnreg gives to the warpgroups: those of scores twice, and the others, are 512, as the block
/// was launched with 128 for each of 4.
inline constexpr int score_registers = 168, dq_registers = 88, producer_registers = 88;
static_assert(2 * score_registers + dq_registers + producer_registers == 4 * 128);

/// The programs of the steps before and behind.
Program prepare_program(const AttentionSpec& spec, const BackwardTcgen05& config);
Program convert_program(const AttentionSpec& spec, const BackwardTcgen05& config);

}  // namespace backward_tcgen05
}  // namespace jit
