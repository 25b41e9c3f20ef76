// Functions over all kernel families, dispatched to the family of a config.
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

/// Why `config` cannot serve a problem: one sentence with field, value and rule, and other families that
/// serve it if this one has no config for it. Empty if it can.
std::string config_rejection(const Case& problem, const KernelConfig& config);
std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits);

/// Whether calls of this shape can run the config: it computes the shape's pass, is legal for the problem,
/// can read the tensors, and has_room().
bool can_serve(const Case& problem, const ProblemShape& shape, const KernelConfig& config);

/// Whether memory that the config needs in addition to the tensors stays within its family's limit for all
/// calls of the size class. Not asked for given configs.
bool has_room(const Case& problem, const ProblemShape& shape, const KernelConfig& config);

/// All legal configs in the search grids of families that serve the pass and can read tensors of this shape,
/// in a fixed order.
std::vector<KernelConfig> config_space(const Case& problem, const ProblemShape& shape = {});

/// Why each family of a pass rejects its smallest config.
std::string smallest_rejection(const Case& problem, Pass pass);

/// Entry templates of the kernels of all families that have a config for a problem of this shape.
std::vector<std::string> competing_entries(const Case& problem, const ProblemShape& shape);

/// Requires: the config is legal.
Footprint footprint(const AttentionSpec& spec, const KernelConfig& config);

/// Whether the kernel reads the bounds of sequences from the device.
bool reads_device_lengths(const AttentionSpec& spec, const KernelConfig& config);

/// Clock cycles that the cost model predicts, comparable among configs of one problem.
double estimated_cycles(const Case& problem, const ProblemShape& shape, const KernelConfig& config);

/// Index of the config's family; configs with a kernel ahead have indices of their own, since predictions for
/// them are as hard to compare as across families.
std::size_t family_form(const KernelConfig& config);

/// Factor by which predictions for kernels of the spec may be wrong relative to others of the family.
double model_error(const AttentionSpec& spec, const KernelConfig& config);

/// The config of a kernel that computes only these requests of a call, if its family has one.
std::optional<KernelConfig> config_for(const KernelConfig& config, Requests requests);

/// Whether the kernel computes only some requests of a call.
bool is_of_two(const KernelConfig& config);

/// Whether the tuner may choose the config if it is not clean (ResourceUsage::is_clean).
bool may_spill(const KernelConfig& config);

/// Whether two configs need about equal registers: if one spills, so does the other.
bool need_alike_registers(const KernelConfig& a, const KernelConfig& b);

/// The kernels of a call around the config's main one.
FamilySteps steps_around(const AttentionSpec& spec, const KernelConfig& config);

/// The layout in which the config's kernel stores LSE and delta of queries for later ones.
QueryStatisticsLayout query_statistics(const KernelConfig& config);

/// The most similar config with a deterministic kernel, usually `config` itself.
KernelConfig deterministic_config(const KernelConfig& config);

/// Names of a pass's families: "a or b".
std::string family_names(Pass pass);

/// The largest head_dim that some family supports on an architecture.
int most_head_dim(Arch arch);

/// Whether a family of an architecture has kernels that wait for keys arriving while they run.
bool waits_for_keys(Arch arch);

/// The program of the config's kernel. Requires: `validate(spec)` passes and the config is legal.
Program write_program(const AttentionSpec& spec, const KernelConfig& config);

}  // namespace jit
