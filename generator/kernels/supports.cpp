// Architectures that support a spec, according to the families.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/spec.h>
#include <jit/spec_table.h>

#include "generator/kernels/families.h"
#include "generator/kernels/tma_rules.h"
#include "generator/problem/spec_refusals.h"

namespace jit {
namespace {

constexpr Arch oldest_arch{8, 0, 0};

// The refusal of a head_dim that families support only on another architecture.
std::optional<Refusal> head_dim_refusal(int head_dim, Arch arch) {
  const int most = most_head_dim(arch);
  const auto has_more = [&](Arch other) { return most_head_dim(other) > most; };
  const auto other = std::find_if(known_archs().begin(), known_archs().end(), has_more);
  if (head_dim <= most || other == known_archs().end()) return std::nullopt;
  return Refusal{"head_dim", std::to_string(head_dim),
                 fmt::format("must be at most {} on {}; {} has kernels for more", most, to_string(arch),
                             to_string(*other)),
                 std::to_string(most)};
}

}  // namespace

std::vector<Refusal> refusals_of(const AttentionSpec& spec, Arch arch) {
  std::vector<Refusal> refusals = refusals_everywhere(spec);
  if (std::pair(arch.major, arch.minor) < std::pair(oldest_arch.major, oldest_arch.minor)) {
    refusals.push_back({"arch", to_string(arch), "must be sm_80 or later (cp.async and mma.sync m16n8k16)",
                        to_string(oldest_arch)});
  }
  if (std::optional<Refusal> refusal = head_dim_refusal(spec.head_dim, arch))
    refusals.push_back(*std::move(refusal));
  const bool is_wide =
      !has_fp8_queries(spec) && !has_quantized_output(spec) && output_dtype(spec) != spec.dtype;
  if (is_wide && arch != arch_of_tma) {
    refusals.push_back({"out_dtype", std::string(to_string(output_dtype(spec))),
                        fmt::format("must be that of q, {}, on {}; kernels of {} write fp32",
                                    to_string(spec.dtype), to_string(arch), to_string(arch_of_tma)),
                        std::string(to_string(spec.dtype))});
  }
  if (spec.key_arrivals && !waits_for_keys(arch)) {
    std::vector<std::string> archs;
    for (const Arch other : known_archs()) {
      if (waits_for_keys(other)) archs.push_back(to_string(other));
    }
    refusals.push_back({"key_arrivals", "true",
                        fmt::format("must be false on {}; kernels of {} wait for keys", to_string(arch),
                                    fmt::join(archs, " and ")),
                        "false"});
  }
  // The kernels of other architectures transpose values as they read them.
  return refusals;
}

std::vector<Refusal> refusals_of(const AttentionSpec& spec, const DeviceInfo& device) {
  return refusals_of(spec, native_arch(device));
}

}  // namespace jit
