// A kernel family of the example: attention in plain C++.
#pragma once

#include "generator/kernels/family.h"

namespace jit {

struct ForwardPlain {
  int queries = 64;  ///< per block, a thread each

  bool operator==(const ForwardPlain&) const = default;
};

template <>
struct Family<ForwardPlain> : FamilyDefaults<ForwardPlain> {
  static constexpr std::string_view name = "forward_plain";
  static constexpr std::string_view doc = "plain C++: every GPU, slow";
  static constexpr Pass pass = Pass::forward;
  static constexpr bool may_spill = true;
  static constexpr ForwardPlain smallest = {.queries = 32};

  static std::span<const ConfigField<ForwardPlain>> fields();
  static bool suits(const ProblemShape&) { return true; }
  static std::string rejection(const Case& problem, const ForwardPlain& config);
  static std::vector<ForwardPlain> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardPlain& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardPlain& config);
  static Program program(const AttentionSpec& spec, const ForwardPlain& config);
  static std::size_t workspace_bytes(const AttentionSpec& spec, const ForwardPlain& config,
                                     const AttentionParams& params, int sm_count);
  static void launch(const KernelLaunch& launch, const ForwardPlain& config);
};

}  // namespace jit
