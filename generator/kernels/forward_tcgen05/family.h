// The family of forward kernels by tcgen05 and tensor memory (templates/forward_tcgen05).
#pragma once

#include <array>

#include "generator/kernels/family.h"
#include "templates/forward_tcgen05/smem_layout.cuh"

namespace jit {

namespace forward_tcgen05 {

inline constexpr std::array archs_of_tcgen05{Arch{10, 0, 'a'}, Arch{10, 3, 'a'}};

}  // namespace forward_tcgen05

template <>
struct Family<ForwardTcgen05> : FamilyDefaults<ForwardTcgen05> {
  static constexpr std::string_view name = "forward_tcgen05";
  static constexpr std::string_view doc = "TMA, tcgen05 and tensor memory: sm_100a and sm_103a";
  static constexpr std::span<const Arch> archs = forward_tcgen05::archs_of_tcgen05;
  static constexpr Pass pass = Pass::forward;
  static constexpr bool may_spill = false;
  static constexpr ForwardTcgen05 smallest = {.stages = 1};

  static std::span<const ConfigField<ForwardTcgen05>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const ForwardTcgen05& config);
  static std::vector<ForwardTcgen05> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardTcgen05& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardTcgen05& config);
  static Program program(const AttentionSpec& spec, const ForwardTcgen05& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const ForwardTcgen05&, const AttentionParams&,
                                     int) {
    return 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardTcgen05& config);
};

namespace forward_tcgen05 {

/// Registers per thread by setmaxnreg.
struct Registers {
  int softmax, correction, producer;
};
/// Shares that add up to the launch's registers: 128 for each of 4 warpgroups, two of them softmax, or 168
/// for each of 3. Scales of keys need more in softmax.
constexpr Registers registers_of(Blocks blocks, bool has_key_scales) {
  if (blocks.count == 2) return {232, 136, 136};
  return has_key_scales ? Registers{192, 72, 56} : Registers{184, 88, 56};
}
constexpr int all_registers(Blocks blocks, bool has_key_scales) {
  const Registers own = registers_of(blocks, has_key_scales);
  return blocks.query_tiles() * own.softmax + own.correction + own.producer;
}
static_assert(all_registers({1}, false) == 4 * 128 && all_registers({1}, true) == 4 * 128);
static_assert(all_registers({2}, false) == 3 * 168);

inline bool has_key_scales(const AttentionSpec& spec) {
  return has_fp8_queries(spec) && spec.descale_per != ScaleKind::head;
}
inline Registers registers_of(const AttentionSpec& spec) {
  return registers_of(blocks_of(spec.head_dim, spec.value_head_dim()), has_key_scales(spec));
}

inline Blocks blocks_of(const AttentionSpec& spec) { return blocks_of(spec.head_dim, spec.value_head_dim()); }

}  // namespace forward_tcgen05
}  // namespace jit
