/// @file
/// Measuring, on a GPU, which config of a kernel is the fastest for calls of one size.
///
/// @code
/// // On a GPU: emulated devices have no times.
/// const jit::AttentionSpec spec{.mask = jit::mask::causal()};
/// const jit::AttentionShape shape{.batch = 2, .heads_q = 32, .seqlen_q = 4096, .seqlen_kv = 4096};
/// const jit::TuningResult result = jit::tune(spec, jit::sized_arguments(spec, shape));
/// std::printf("%s: %.1f us\n", jit::to_string(result.configs).c_str(), result.median_us);
/// const jit::TuningResult gradients = jit::tune(spec, jit::sized_backward_arguments(spec, shape));
/// const jit::PlanConfigs both[] = {result.configs, {jit::ForwardMmaSync{}}};
/// for (const jit::ConfigTiming& timing : jit::time_configs(spec, jit::sized_arguments(spec, shape), both, 20))
///   std::printf("%.1f us\n", timing.timing.median_us);
/// @endcode
///
/// Calls tune by themselves, see Settings::tuning; these functions do it ahead of them, or for a report.
///
/// @code
/// const jit::AttentionArguments arguments = jit::sized_arguments({}, {.heads_q = 32, .seqlen_q = 512, .seqlen_kv = 512});
/// const std::vector<jit::KernelConfig> configs = jit::candidate_configs({}, arguments, jit::device_info(0));
/// assert(!configs.empty() && jit::are_near_copies(configs.front(), configs.front()));
/// @endcode
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <jit/attention.h>
#include <jit/compiled_kernel.h>
#include <jit/context.h>
#include <jit/device.h>
#include <jit/kernel_config.h>
#include <jit/timing.h>

namespace jit {

/// The sizes of a call, where there are no tensors yet.
struct AttentionShape {
  std::int64_t batch = 1;      ///< batch entries
  std::int64_t heads_q = 1;    ///< query heads: a multiple of AttentionSpec::gqa_ratio
  std::int64_t seqlen_q = 1;   ///< queries
  std::int64_t seqlen_kv = 1;  ///< keys
};

/// Arguments of these sizes, dense (batch, seqlen, heads, head_dim), with the caller's tensors for mask and
/// score. q, k, v and o lie at addresses without memory: enough to check arguments, to prepare and to tune,
/// not to launch. Throws Error invalid_argument that names the size when one is below 1 or too large, or
/// heads_q is no multiple of the spec's gqa_ratio.
AttentionArguments sized_arguments(const AttentionSpec& spec, const AttentionShape& shape,
                                   const NamedTensors& tensors = {});

/// Arguments of a backward call, whose gradients are those of q, k and v. Throws the same, and Error
/// invalid_spec where the spec has no backward.
BackwardArguments sized_backward_arguments(const AttentionSpec& spec, const AttentionShape& shape,
                                           const NamedTensors& tensors = {});

/// The result of tuning.
struct TuningResult {
  PlanConfigs configs;                ///< the fastest ones
  double median_us = 0;               ///< of a call with these; 0 when no time was left to measure
  double default_us = 0;              ///< of the cost models' first
  int candidates = 0;                 ///< that were measured
  bool out_of_time = false;           ///< whether the time limit ended the search
  std::vector<std::string> log = {};  ///< one line per candidate
  std::string record = {};            ///< what is kept for later calls and processes: a JSON object
  std::string recorded_in = {};       ///< the cache folder that keeps it; empty: there is none
};

/// Measures candidates for calls like `arguments` on the current device, with a cold L2 cache, and records the fastest
/// for this and later processes: calls of the same size class find it. Candidates are the most promising configs,
/// within Settings::tuning_seconds and half of the free memory; all legal ones, without time limit, if Settings::tuning
/// is exhaustive. Each is checked against a reference first. Only sizes and TMA alignment of q, k, v and o matter;
/// tensors of mask and score must have their contents, which decide which tiles are computed. Objects that have already
/// chosen a config for these sizes keep it. Thread safe, but other work on the GPU disturbs the times. Throws Error
/// invalid_spec, invalid_argument (also if there is nothing to compute, or split_keys prevents tuning),
/// unsupported_device (also for an emulated device), and what the cost model's first config throws.
TuningResult tune(const AttentionSpec& spec, const AttentionArguments& arguments,
                  const Context& context = default_context());

/// Tunes backward calls like `arguments`. Candidates are kernels that compute all gradients, if any serve such calls,
/// and pairs of a kernel of dq and one of dk and dv; with `deterministic` only those with a fixed order of sums. The
/// tuner uses its own gradients, q, k, v and o: no tensor of the call is written. The result also serves calls that
/// request gradients of sinks or tensors, whose kernels have nothing to tune. Throws the same, and Error invalid_spec
/// where the spec has no backward.
TuningResult tune(const AttentionSpec& spec, const BackwardArguments& arguments,
                  const Context& context = default_context());

/// The legal configs for calls like `arguments` on `device`, the most promising first by the cost model.
/// Needs no GPU. Throws Error invalid_spec, invalid_argument, unsupported_device, no_valid_config.
std::vector<KernelConfig> candidate_configs(const AttentionSpec& spec, const AttentionArguments& arguments,
                                            const DeviceInfo& device);

/// Whether two configs are expected to take nearly the same time, because they differ only in buffers.
bool are_near_copies(const KernelConfig& a, const KernelConfig& b);
/// Whether the kernels of two calls are near-copies.
bool are_near_copies(const PlanConfigs& a, const PlanConfigs& b);

/// The number of near-copies of a config that are worth timing.
inline constexpr int most_near_copies = 2;

/// The candidates of backward calls, whose kernels are one or two: those of one pass first. Throws the same,
/// and Error invalid_spec where the spec has no backward.
std::vector<PlanConfigs> candidate_configs(const AttentionSpec& spec, const BackwardArguments& arguments,
                                           const DeviceInfo& device);

/// The measurement of one list of configs.
struct ConfigTiming {
  PlanConfigs configs;                       ///< that were timed
  std::vector<CompiledKernel> kernels = {};  ///< of these, once they are compiled
  /// Why there are no times: the configs are illegal, fail to compile or run, or compute a wrong result (then it begins
  /// with "wrong"). Empty: there are times.
  std::string trouble = {};
  Timing timing = {};  ///< times of a call
};

/// Times calls like `arguments` with each of `configs`, `samples` times, on the current device, on random data with a
/// cold L2 cache, interleaved so that clocks and temperature favor none. Each config is checked against a reference
/// first; one that fails has its trouble and does not affect the others. If lengths are on the device, all sequences
/// have the longest possible length, varlen ones the average, and pages are in order. Progress comes as events of kind
/// tune. Throws what tune() throws, but allows split_keys, and Error invalid_argument if the whole batch does not fit
/// in memory.
std::vector<ConfigTiming> time_configs(const AttentionSpec& spec, const AttentionArguments& arguments,
                                       std::span<const PlanConfigs> configs, int samples,
                                       const Context& context = default_context());
/// Times configs for backward calls.
std::vector<ConfigTiming> time_configs(const AttentionSpec& spec, const BackwardArguments& arguments,
                                       std::span<const PlanConfigs> configs, int samples,
                                       const Context& context = default_context());

}  // namespace jit
