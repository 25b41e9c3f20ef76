// The whole way: spec → config → program → image → loaded kernel → launch.
#include <jit/attention.h>
#include <jit/device.h>

#include <utility>

#include <fmt/format.h>

#include "generator/access.h"
#include "generator/attention_state.h"
#include "generator/context_state.h"
#include "generator/launch/loaded_kernel.h"
#include "generator/problem/arguments.h"
#include "generator/problem/dispatch_key.h"
#include "generator/tuning/tune.h"
#include "generator/tuning/tuning_record.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {

namespace {

// DispatchTable takes its slot from the low half: multiply so that neighbouring classes fall apart.
Digest spread(std::uint64_t number) { return {.high = number, .low = number * 0x9e3779b97f4a7c15u >> 16}; }

Digest size_key(int device, const ProblemShape& shape) {
  const SizeClass sizes = size_class(shape);
  return spread(static_cast<std::uint64_t>(device) << 32 | static_cast<std::uint64_t>(sizes.tma) << 24 |
                static_cast<std::uint64_t>(sizes.rows) << 16 |
                static_cast<std::uint64_t>(sizes.seqlen_q) << 8 |
                static_cast<std::uint64_t>(sizes.seqlen_kv));
}

Digest device_key(int device, bool tma) {
  return spread(static_cast<std::uint64_t>(device) << 1 | static_cast<std::uint64_t>(tma));
}

std::shared_ptr<const KernelImage> image_of(const AttentionState& state, const KernelConfig& config,
                                            Arch arch) {
  return build_image(state.context, emit_forward(state.spec, config), state.spec, config, arch);
}

const LoadedKernel* keep(DispatchTable<LoadedKernel>& table, const Digest& key, LoadedKernel kernel) {
  return table.insert(key, std::make_unique<const LoadedKernel>(std::move(kernel)));
}

// The kernel for sizes that nothing was chosen for; `tma` tells whether the tensors suit TMA. Requires:
// state.choosing is held.
const LoadedKernel* default_kernel(const AttentionState& state, int device, bool tma = true) {
  if (const LoadedKernel* known = state.defaults.find(device_key(device, tma))) return known;
  const DeviceInfo info = device_info(device);
  const Arch arch = native_arch(info);
  if (const std::vector<Refusal> refusals = supports(state.spec, info); !refusals.empty()) {
    throw Error(ErrorCode::unsupported_device, "validate", refusals[0].field,
                fmt::format("{} cannot run this: {}", info.name, refusals[0].to_string()));
  }
  const DeviceLimits limits = device_limits(info);
  LoadedKernel kernel;
  if (state.given) {
    if (const std::string reason = config_rejection(state.spec, *state.given, limits); !reason.empty()) {
      throw Error(ErrorCode::no_valid_config, "configure", "config", reason);
    }
    kernel = load_kernel(state.context, image_of(state, *state.given, arch), device, "given");
  } else {
    ProblemShape shape = typical_shape(limits);
    shape.tma = tma;
    const std::vector<KernelConfig> configs = ranked_configs(state.spec, shape, limits);
    kernel = load_kernel(state.context, build_clean(state.context, state.spec, configs, arch), device,
                         "heuristic, typical sizes");
  }
  return keep(state.defaults, device_key(device, tma), std::move(kernel));
}

LoadedKernel heuristic_kernel(const AttentionState& state, const DeviceInfo& device,
                              const ProblemShape& shape, std::string why = "heuristic for these sizes") {
  const std::vector<KernelConfig> configs = ranked_configs(state.spec, shape, device_limits(device));
  return load_kernel(state.context, build_clean(state.context, state.spec, configs, native_arch(device)),
                     device.ordinal, std::move(why));
}

LoadedKernel tuned_kernel(const AttentionState& state, const DeviceInfo& device,
                          const AttentionParams& params) {
  ContextState& context = state.context;
  TuningResult result = tune_and_record(context, {.spec = state.spec, .device = device, .params = params});
  LoadedKernel kernel = load_kernel(context, image_of(state, result.config, native_arch(device)),
                                    device.ordinal, "tuned: " + result.record);
  kernel.tuning_log = std::move(result.log);
  return kernel;
}

// A kernel for these sizes as the settings want it chosen. Requires: state.choosing is held.
LoadedKernel choose_kernel(const AttentionState& state, int device, const AttentionParams& params) {
  ContextState& context = state.context;
  const ProblemShape shape = shape_of(params);
  if (state.given) return *default_kernel(state, device, shape.tma);
  const DeviceInfo info = device_info(device);
  const TuningMode mode = context.settings.tuning;
  // No keys to look at: there is nothing to measure, and no difference to find.
  if (mode == TuningMode::off || shape.seqlen_kv == 0) return heuristic_kernel(state, info, shape);
  if (info.emulated) {
    return heuristic_kernel(state, info, shape, "heuristic; an emulated device has no time to measure");
  }

  const Key operation = tuning_operation(state.spec, size_class(shape));
  for (const bool exhaustive : {true, false}) {
    if (!exhaustive && mode == TuningMode::exhaustive) continue;
    const std::optional<std::string> record =
        context.tuning.load(tuning_environment(context, info, exhaustive), operation);
    if (!record) continue;
    const auto config = read_record(*record, state.spec, info);
    if (!config) continue;
    try {
      return load_kernel(state.context, image_of(state, *config, native_arch(info)), device,
                         "recorded: " + *record);
    } catch (const Error& error) {  // offline without this kernel, say
      context.notify(Event::Kind::warning,
                     fmt::format("the recorded config cannot be used: {}", error.what()));
    }
  }
  if (mode == TuningMode::recorded || context.settings.offline) return heuristic_kernel(state, info, shape);

  try {
    return tuned_kernel(state, info, params);
  } catch (const Error& error) {  // too little memory to tune in, say: no reason not to compute
    context.notify(Event::Kind::warning,
                   fmt::format("tuning failed, the heuristic decides: {}", error.what()));
    return heuristic_kernel(state, info, shape);
  }
}

const LoadedKernel* prepared_kernel(const AttentionState& state, int device, const AttentionParams& params) {
  const Digest key = size_key(device, shape_of(params));
  const std::lock_guard lock(state.choosing);
  if (const LoadedKernel* known = state.by_size.find(key)) return known;
  const RelaxedCapture relaxed;
  const CurrentDevice scope(device);
  return keep(state.by_size, key, choose_kernel(state, device, params));
}

// For sizes that were not seen before: under capture what is loaded already, else a choice.
const LoadedKernel* kernel_for_new_sizes(const AttentionState& state, int device,
                                         const AttentionParams& params, Stream stream) {
  if (!is_capturing(stream)) {
    // Tuning reads the caller's mask and score tensors on a stream of its own: what the caller still writes
    // must be there.
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    return prepared_kernel(state, device, params);
  }
  if (const LoadedKernel* known = state.defaults.find(device_key(device, shape_of(params).tma))) return known;
  throw Error(ErrorCode::not_prepared, "launch", "stream",
              "the stream is being captured and no kernel is loaded on this device: call prepare() with "
              "these arguments "
              "before the capture begins");
}

CompiledKernel describe(const AttentionState& state, const LoadedKernel& kernel) {
  return Access::kernel(state.context.shared_from_this(), state.spec, kernel.image, kernel.why,
                        kernel.tuning_log);
}

}  // namespace

NamedTensors::NamedTensors(std::initializer_list<NamedTensor> tensors) {
  for (const NamedTensor& tensor : tensors) add(tensor);
}

void NamedTensors::add(const NamedTensor& tensor) {
  if (count_ == tensors_.size()) {
    throw Error(ErrorCode::invalid_argument, "launch", "tensors",
                fmt::format("at most {} named tensors can be given", tensors_.size()));
  }
  tensors_[count_++] = tensor;
}

void check_arguments(const AttentionSpec& spec, const AttentionArguments& arguments) {
  AttentionParams unused;
  fill_params(spec, functor_tensor_uses(spec), arguments, unused);
}

void Attention::operator()(const AttentionArguments& arguments, Stream stream) const {
  const AttentionState& state = *state_;
  AttentionParams params;
  if (!fill_params(state.spec, state.tensors, arguments, params)) return;
  const int device = current_device();
  const LoadedKernel* kernel = state.by_size.find(size_key(device, shape_of(params)));
  const CurrentDevice scope(device);
  if (kernel == nullptr) kernel = kernel_for_new_sizes(state, device, params, stream);
  launch_forward(*kernel, params, stream);
}

void Attention::prepare(const AttentionArguments& arguments) const {
  AttentionParams params;
  if (!fill_params(state_->spec, state_->tensors, arguments, params)) return;
  prepared_kernel(*state_, current_device(), params);
}

CompiledKernel Attention::kernel(const AttentionArguments& arguments) const {
  AttentionParams params;
  if (!fill_params(state_->spec, state_->tensors, arguments, params)) return kernel();
  return describe(*state_, *prepared_kernel(*state_, current_device(), params));
}

CompiledKernel Attention::kernel() const {
  const std::lock_guard lock(state_->choosing);
  return describe(*state_, *default_kernel(*state_, current_device()));
}

const AttentionSpec& Attention::spec() const { return state_->spec; }

Attention attention(const AttentionSpec& spec, std::optional<KernelConfig> config, const Context& context) {
  ContextState& shared = *Access::state(context);
  const Digest key = dispatch_key(spec, config);
  const AttentionState* state = shared.attentions.find(key);
  if (state == nullptr) {
    validate(spec);
    shared.tell_of_fallback();
    auto fresh = std::make_unique<AttentionState>(shared, spec, config);
    const int device = current_device();
    const CurrentDevice scope(device);
    {
      const std::lock_guard lock(fresh->choosing);
      default_kernel(*fresh, device);
    }
    state = shared.attentions.insert(key, std::move(fresh));
  }
  // The context owns the state, so a handle keeps the context alive.
  return Access::attention(std::shared_ptr<const AttentionState>(Access::state(context), state));
}

}  // namespace jit
