// All kernel families together: what the pipeline asks, answered by the family of a config.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "generator/kernels/backward_dkv_mma_sync/family.h"
#include "generator/kernels/backward_dkv_wide_wgmma/family.h"
#include "generator/kernels/backward_dq_mma_sync/family.h"
#include "generator/kernels/backward_dq_wide_wgmma/family.h"
#include "generator/kernels/backward_tcgen05/family.h"
#include "generator/kernels/backward_wgmma/family.h"
#include "generator/kernels/family.h"
#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/forward_mma_sync/family.h"
#include "generator/kernels/forward_mma_tma/family.h"
#include "generator/kernels/forward_split_cluster/family.h"
#include "generator/kernels/forward_split_kv/family.h"
#include "generator/kernels/forward_split_wgmma/family.h"
#include "generator/kernels/forward_tcgen05/family.h"
#include "generator/kernels/forward_wgmma/family.h"
#include "generator/kernels/forward_wide_wgmma/family.h"

namespace jit {

template <class... Configs>
constexpr bool all_are_families(std::type_identity<std::variant<Configs...>>) {
  return (KernelFamily<Configs> && ...);
}
static_assert(all_are_families(std::type_identity<KernelConfig>{}));

/// Calls visitor(Config{}) for each family, in order.
template <class Visitor, std::size_t index = 0>
void for_each_family(Visitor visitor) {
  if constexpr (index < std::variant_size_v<KernelConfig>) {
    visitor(std::variant_alternative_t<index, KernelConfig>{});
    for_each_family<Visitor, index + 1>(visitor);
  }
}

/// The pass that kernels of this config compute.
Pass pass_of(const KernelConfig& config);

/// Why `config` cannot serve a problem: one sentence with field, value, rule, and the families that serve it where no config
/// of its own does. Empty: it can.
std::string config_rejection(const Case& problem, const KernelConfig& config);
std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits);

/// Whether calls of this shape can run the config's kernel: it computes the shape's pass, is legal for the problem, reads
/// such tensors, and has room.
bool can_serve(const Case& problem, const ProblemShape& shape, const KernelConfig& config);

/// Whether what the config's kernel keeps beside the tensors of such calls, and of others of their size class, stays
/// within its family's bounds. A config that was given is not asked.
bool has_room(const Case& problem, const ProblemShape& shape, const KernelConfig& config);

/// Every legal config of the search grids of the families that serve the pass and can read tensors of this
/// shape, in a fixed order.
std::vector<KernelConfig> config_space(const Case& problem, const ProblemShape& shape = {});

/// Why the config that needs least is rejected, for each family of a pass.
std::string smallest_rejection(const Case& problem, Pass pass);

/// The templates with which the kernels of all families begin that have a config for a problem of this shape.
std::vector<std::string> competing_entries(const Case& problem, const ProblemShape& shape);

/// Requires: the config is legal.
Footprint footprint(const AttentionSpec& spec, const KernelConfig& config);

/// Whether kernels of this spec and config read where sequences begin and end, which only the device knows.
bool reads_device_lengths(const AttentionSpec& spec, const KernelConfig& config);

/// Clock cycles that the cost model expects, relative to other configs of the same problem.
double estimated_cycles(const Case& problem, const ProblemShape& shape, const KernelConfig& config);

/// The number of the config's family, and behind all families that of its form with a kernel ahead: of the time that this
/// takes beside another form the cost model knows as little as of another family's.
std::size_t family_form(const KernelConfig& config);

/// By so much may that misjudge the config beside others of its family, as a factor.
double model_error(const KernelConfig& config);

/// The config for a kernel that computes these requests of a call, where its family has such kernels.
std::optional<KernelConfig> config_for(const KernelConfig& config, Requests requests);

/// Whether the config's kernel leaves some requests of a call to another one.
bool is_of_two(const KernelConfig& config);

/// Whether a kernel that is not clean (ResourceUsage::is_clean) may be chosen by measurement.
bool may_spill(const KernelConfig& config);

/// Whether two configs need the same registers, near enough: when one spills, so does the other.
bool need_alike_registers(const KernelConfig& a, const KernelConfig& b);

/// The kernels that a call runs around the config's.
FamilySteps steps_around(const AttentionSpec& spec, const KernelConfig& config);

/// How the config's kernel, one of gradients, leaves LSE and delta of each query for those behind it.
QueryStatisticsLayout query_statistics(const KernelConfig& config);

/// The nearest config whose kernel is deterministic: mostly `config` itself.
KernelConfig deterministic_config(const KernelConfig& config);

/// The families of a pass: "a or b".
std::string family_names(Pass pass);

/// The largest head_dim that any family has room for on an architecture.
int most_head_dim(Arch arch);

/// Whether some family's kernels on an architecture wait for keys that come while they compute.
bool waits_for_keys(Arch arch);

/// The program of the config's kernel. Requires: `validate(spec)` passes and the config is legal.
Program write_program(const AttentionSpec& spec, const KernelConfig& config);

}  // namespace jit
