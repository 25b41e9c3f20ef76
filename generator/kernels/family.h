// Kernel families: a config struct, and a specialization of Family for it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jit/dtype.h>
#include <jit/spec.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_tensors.h"
#include "generator/kernels/config_field.h"
#include "generator/kernels/device_limits.h"
#include "generator/kernels/fixed_bits.h"
#include "generator/problem/output_table.h"
#include "generator/problem/problem_shape.h"
#include "generator/program/program.h"
#include "templates/backward_sinks/params.cuh"
#include "templates/base/element.cuh"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

struct KernelLaunch;
struct LoadedKernel;

/// Registers of an SM from sm_80 on (CUDA programming guide, "Technical Specifications per Compute
/// Capability").
inline constexpr int registers_per_sm = 65536;
inline constexpr int max_registers_per_thread = 255;

/// A spec on a GPU, which may be absent.
struct Case {
  const AttentionSpec& spec;
  const DeviceLimits& limits;
};

/// Resources of a block.
struct Footprint {
  int threads = 0;
  int smem_bytes = 0;  ///< dynamic
  /// Estimated registers of a thread for accumulators, fragments and addresses; ptxas needs a few more or
  /// fewer.
  int registers = 0;
  int register_cap = 0;    ///< limit per thread
  int blocks_per_sm = 1;   ///< required occupancy
  int register_slack = 0;  ///< tolerated excess over the cap: a few spills may be fast
  int register_doubt = 0;  ///< possible excess of ptxas over the estimate
};

/// Launches a kernel of a call.
using StepLaunch = std::function<void(const KernelLaunch&)>;

/// A kernel that runs before or after a family's main one.
struct FamilyStep {
  Program program;
  /// Returns its launch function, given the loaded main kernel.
  std::function<StepLaunch(const LoadedKernel& main)> launch;
};

/// The kernels around a family's main one, in order.
struct FamilySteps {
  std::vector<FamilyStep> before, behind;
};

/// The interface of a config struct's family. To add a family, specialize this struct, inheriting
/// FamilyDefaults, put its templates into a folder of the same name, and add the config struct to
/// KernelConfig (docs/extending.md).
template <class Config>
struct Family;

/// Factor by which a fitted cost model may misjudge a config relative to others of its family. Among configs
/// timed on an H200 (tests/unit/generator/candidates_recorded_test.cpp), those predicted further behind the
/// first contribute less than half a percent together.
inline constexpr double fitted_model_error = 1.15;

/// Default members of a family.
template <class Config>
struct FamilyDefaults {
  /// Architectures of its kernels; empty: all that the library supports.
  static constexpr std::span<const Arch> archs = {};
  /// Factor by which its cost model may misjudge a config relative to another; larger if not fitted.
  static constexpr double model_error = fitted_model_error;
  /// That factor for kernels of the spec: smaller where predictions were compared with timings.
  static double model_error_for(const AttentionSpec&) { return Family<Config>::model_error; }
  /// The largest supported head_dim and head_dim_v.
  static constexpr int most_head_dim = most_warp_columns;
  static constexpr int most_head_dim_v = most_warp_columns;
  /// Whether it supports 8-bit latents, which have their own row format.
  static constexpr bool reads_latents = false;
  /// Whether it supports keys that arrive while it runs.
  static constexpr bool waits_for_keys = false;
  /// Whether it supports lists of keys.
  static constexpr bool reads_lists = false;
  /// Its supported outputs besides o and LSE.
  static constexpr FamilyOutputs outputs = {};
  /// Whether it supports output functors.
  static constexpr bool applies_output = false;
  /// The config with the smallest footprint among those for the spec.
  static Config smallest_for(const AttentionSpec&) { return Family<Config>::smallest; }
  /// Whether the config's kernel can read the tensors of a call for which suits() holds.
  static bool can_read(const ProblemShape&, const Config&) { return true; }
  /// Whether the workspace of calls of this size class stays within limits.
  static bool has_room(const AttentionSpec&, const ProblemShape&, const Config&) { return true; }
  /// Whether launches first run a second kernel of the program (Program::ahead).
  static bool has_kernel_ahead(const Config&) { return false; }
  /// The config of a kernel that computes only these requests of a call, if there is one.
  static std::optional<Config> for_requests(const Config& config, Requests requests) {
    return requests == Requests::all ? std::optional(config) : std::nullopt;
  }
  /// Kernels of a call around the config's main one.
  static FamilySteps steps(const AttentionSpec&, const Config&) { return {}; }
  /// The most similar config that sums in a fixed order.
  static Config deterministic(const Config& config) { return config; }
  /// Layout in which gradient kernels store LSE and delta of queries for later steps.
  static QueryStatisticsLayout statistics(const Config&) { return {.tile = statistic_chunk, .factor = 1}; }
};

/// Required members of a Family<Config>: a missing one without a default, or with another signature, does not
/// compile.
template <class Config>
concept KernelFamily = std::derived_from<Family<Config>, FamilyDefaults<Config>> &&
    requires(const Case& problem, const AttentionSpec& spec, const ProblemShape& shape, const Config& config,
             const AttentionParams& params, const KernelLaunch& launch, Requests requests, int sm_count) {
  // Name of the family and of its template folder; a phrase with its instructions and GPUs.
  { Family<Config>::name } -> std::convertible_to<std::string_view>;
  { Family<Config>::doc } -> std::convertible_to<std::string_view>;
  { Family<Config>::pass } -> std::convertible_to<Pass>;
  // Whether the tuner may choose a kernel that spills if it is faster.
  { Family<Config>::may_spill } -> std::convertible_to<bool>;
  // The config with the smallest footprint: if it does not fit, none does.
  { Family<Config>::smallest } -> std::convertible_to<Config>;
  { Family<Config>::fields() } -> std::same_as<std::span<const ConfigField<Config>>>;
  // Whether its kernels can read the tensors of a call.
  { Family<Config>::suits(shape) } -> std::same_as<bool>;
  // Why a config breaks a rule across fields, in one sentence with field, value and rule; empty if none.
  // Callers check ranges (`fields`) and resources (`footprint`), and add other families that serve the spec.
  { Family<Config>::rejection(problem, config) } -> std::same_as<std::string>;
  // The configs of its search grid in a fixed order, within ranges but possibly illegal.
  { Family<Config>::space(problem) } -> std::same_as<std::vector<Config>>;
  // The footprint of a config within ranges that breaks no rule.
  { Family<Config>::footprint(spec, config) } -> std::same_as<Footprint>;
  // Predicted clock cycles, comparable among configs of one problem.
  { Family<Config>::cycles(problem, shape, config) } -> std::convertible_to<double>;
  { Family<Config>::program(spec, config) } -> std::same_as<Program>;
  // Workspace bytes of a call on a device with `sm_count` SMs.
  { Family<Config>::workspace_bytes(spec, config, params, sm_count) } -> std::same_as<std::size_t>;
  // Launches the kernel.
  { Family<Config>::launch(launch, config) } -> std::same_as<void>;
  // Members with defaults, which FamilyDefaults documents.
  { Family<Config>::archs } -> std::same_as<const std::span<const Arch>&>;
  { Family<Config>::model_error_for(spec) } -> std::convertible_to<double>;
  { Family<Config>::most_head_dim } -> std::convertible_to<int>;
  { Family<Config>::most_head_dim_v } -> std::convertible_to<int>;
  { Family<Config>::reads_latents } -> std::convertible_to<bool>;
  { Family<Config>::waits_for_keys } -> std::convertible_to<bool>;
  { Family<Config>::reads_lists } -> std::convertible_to<bool>;
  { Family<Config>::outputs } -> std::convertible_to<FamilyOutputs>;
  { Family<Config>::applies_output } -> std::convertible_to<bool>;
  { Family<Config>::smallest_for(spec) } -> std::same_as<Config>;
  { Family<Config>::can_read(shape, config) } -> std::same_as<bool>;
  { Family<Config>::has_room(spec, shape, config) } -> std::same_as<bool>;
  { Family<Config>::has_kernel_ahead(config) } -> std::same_as<bool>;
  { Family<Config>::for_requests(config, requests) } -> std::same_as<std::optional<Config>>;
  { Family<Config>::steps(spec, config) } -> std::same_as<FamilySteps>;
  { Family<Config>::deterministic(config) } -> std::same_as<Config>;
  { Family<Config>::statistics(config) } -> std::same_as<QueryStatisticsLayout>;
};

/// The config of a family whose kernels compute all requests of a call, or only those of `kind`.
template <class Config>
std::optional<Config> with_requests(Config config, Requests wanted, Requests kind) {
  if (wanted != Requests::all && wanted != kind) return std::nullopt;
  config.requests = wanted;
  return config;
}

/// Why a family for q, k and v of one 16-bit type cannot serve a spec; empty if it can.
inline std::string kv_dtype_rejection(const AttentionSpec& spec, std::string_view family) {
  if (!has_narrow_keys(spec)) return "";
  if (has_fp8_queries(spec))
    return fmt::format("{} reads q of 16 bits; spec.dtype is {}", family, to_string(spec.dtype));
  return fmt::format("{} reads k and v of the type of q, {}; spec.kv_dtype is {}", family,
                     to_string(spec.dtype), to_string(spec.key_dtype()));
}

/// Why a family cannot store o, dk and dv in fp32 for 16-bit q; empty if it can, or they are not requested.
inline std::string wide_output_rejection(const AttentionSpec& spec, std::string_view family) {
  if (has_fp8_queries(spec) || has_quantized_output(spec) || output_dtype(spec) == spec.dtype) return "";
  return fmt::format("{} writes o, dk and dv of the type of q, {}; spec.out_dtype is {}", family,
                     to_string(spec.dtype), to_string(output_dtype(spec)));
}

/// Why a family without dropout cannot serve a spec; empty if it can.
inline std::string dropout_rejection(const AttentionSpec& spec, std::string_view family) {
  return spec.dropout ? fmt::format("{} has no dropout; spec.dropout is true", family) : "";
}

/// Keys that share random numbers (templates/steps/dropout.cuh): with dropout, tile_kv must be a multiple in
/// families whose products have queries as rows.
inline constexpr int dropout_keys = 32;

/// Why such a family cannot use this tile_kv; empty if it can.
inline std::string dropout_tile_rejection(const AttentionSpec& spec, int tile_kv) {
  if (!spec.dropout || tile_kv % dropout_keys == 0) return "";
  return fmt::format("tile_kv = {} must be a multiple of {} with dropout", tile_kv, dropout_keys);
}

/// Additional registers of dropout: random numbers, and bits of a thread's `scores` scores.
inline int dropout_registers(const AttentionSpec& spec, int scores) {
  return spec.dropout ? 24 + scores / 16 : 0;
}

/// Why a family of gradients for dense and varlen sequences cannot serve a spec; empty if it can.
inline std::string gradient_rejection(const AttentionSpec& spec, std::string_view family) {
  if (std::string reason = kv_dtype_rejection(spec, family); !reason.empty()) return reason;
  if (spec.sequences_kv != SequenceKind::paged && !spec.sinks && spec.split_keys == 0) return "";
  return fmt::format(
      "{} reads dense or varlen sequences without sinks or split_keys; sequences_kv = {}, sinks = {}, "
      "split_keys = {}",
      family, to_string(spec.sequences_kv), spec.sinks, spec.split_keys);
}

/// Whether a family has kernels for an architecture.
template <class Config>
bool is_written_for(Arch arch) {
  constexpr std::span<const Arch> archs = Family<Config>::archs;
  return archs.empty() || std::find(archs.begin(), archs.end(), arch) != archs.end();
}

/// Why a config within ranges is illegal for a problem; empty if it is legal.
template <class Config>
std::string rule_rejection(const Case& problem, const Config& config) {
  if (!is_written_for<Config>(problem.limits.arch)) {
    std::vector<std::string> archs;
    for (const Arch arch : Family<Config>::archs) archs.push_back(to_string(arch));
    return fmt::format("{} needs {}, this is {}", Family<Config>::name, fmt::join(archs, " or "),
                       to_string(problem.limits.arch));
  }
  if (!Family<Config>::reads_latents && facts(problem.spec.key_dtype()).row_bytes != 0) {
    return fmt::format("{} does not read rows of {}", Family<Config>::name,
                       to_string(problem.spec.key_dtype()));
  }
  if (problem.spec.key_arrivals && !Family<Config>::waits_for_keys) {
    return fmt::format("{} does not wait for keys that come while it computes; spec.key_arrivals is true",
                       Family<Config>::name);
  }
  if (!Family<Config>::reads_lists && has_lists(problem.spec))
    return fmt::format("{} does not read lists of keys; spec.list_block is {}", Family<Config>::name,
                       problem.spec.list_block);
  if (std::string reason = output_rejection(problem.spec, Family<Config>::name, Family<Config>::outputs);
      !reason.empty())
    return reason;
  if (std::string reason =
          output_functor_rejection(problem.spec, Family<Config>::name, Family<Config>::applies_output);
      !reason.empty())
    return reason;
  const auto too_wide = [](std::string_view field, int value, int most) {
    return value <= most ? std::string()
                         : fmt::format("{} has room for a {} of up to {}; spec.{} is {}",
                                       Family<Config>::name, field, most, field, value);
  };
  if (std::string reason = too_wide("head_dim", problem.spec.head_dim, Family<Config>::most_head_dim);
      !reason.empty())
    return reason;
  if (std::string reason =
          too_wide("head_dim_v", problem.spec.value_head_dim(), Family<Config>::most_head_dim_v);
      !reason.empty())
    return reason;
  if (std::string reason = Family<Config>::rejection(problem, config); !reason.empty()) return reason;
  const Footprint needs = Family<Config>::footprint(problem.spec, config);
  const DeviceLimits& limits = problem.limits;
  if (needs.smem_bytes > limits.smem_per_block) {
    return fmt::format("shared memory of {} bytes exceeds the {} that a block may have on {}",
                       needs.smem_bytes, limits.smem_per_block, to_string(limits.arch));
  }
  if (needs.blocks_per_sm * (needs.smem_bytes + reserved_smem_per_block) > limits.smem_per_sm) {
    return fmt::format(
        "blocks_per_sm = {} blocks of {} bytes exceed the {} bytes of shared memory of a multiprocessor",
        needs.blocks_per_sm, needs.smem_bytes, limits.smem_per_sm);
  }
  if (needs.registers > needs.register_cap + needs.register_slack) {
    return fmt::format("about {} registers per thread are needed, but at most {} can be had", needs.registers,
                       needs.register_cap);
  }
  return "";
}

/// Why `config` is illegal for a problem; empty if it is legal.
template <class Config>
std::string family_rejection(const Case& problem, const Config& config) {
  std::string reason = range_rejection(Family<Config>::fields(), config);
  return reason.empty() ? rule_rejection(problem, config) : reason;
}

/// The config with the smallest footprint for the problem's spec.
template <class Config>
Config smallest_of(const Case& problem) {
  Config config = Family<Config>::smallest_for(problem.spec);
  if constexpr (requires { config.tile_kv; }) {
    if (Family<Config>::pass == Pass::forward && has_fixed_bits(problem.spec)) {
      Config fixed = config;
      fixed.tile_kv = fixed_bits_tile(problem.spec, problem.limits.arch);
      if (range_rejection(Family<Config>::fields(), fixed).empty()) config = fixed;
    }
  }
  return config;
}

/// Whether a family has any config for a problem.
template <class Config>
bool serves(const Case& problem) {
  return family_rejection(problem, smallest_of<Config>(problem)).empty();
}

/// The legal configs of a family's search grid.
template <class Config>
std::vector<Config> legal_space(const Case& problem) {
  if (!is_written_for<Config>(problem.limits.arch)) return {};
  std::vector<Config> configs = Family<Config>::space(problem);
  std::erase_if(configs, [&](const Config& config) { return !rule_rejection(problem, config).empty(); });
  return configs;
}

}  // namespace jit
