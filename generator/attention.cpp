// Calls: arguments → parameters → the plan for their sizes → launch.
#include <jit/attention.h>
#include <jit/device.h>

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "generator/attention_state.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/dispatch_key.h"
#include "generator/kernels/families.h"
#include "generator/plan/array_check.h"
#include "generator/plan/mask_check.h"
#include "generator/plan_selection.h"
#include "generator/problem/arguments.h"
#include "generator/problem/dropout_arguments.h"
#include "generator/size_key.h"

namespace jit {
namespace {

std::unique_ptr<AttentionState> new_state(ContextState& context, const AttentionSpec& spec,
                                          const std::optional<KernelConfig>& config, bool deferred) {
  validate(spec);
  if (config && is_of_two(*config)) {
    throw Error(ErrorCode::no_valid_config, "configure", "config",
                "config: requests must be all: a kernel of one config computes all requests of a call; calls "
                "take two by themselves");
  }
  return std::make_unique<AttentionState>(context, spec, config, deferred);
}

// The context owns the state, so a handle keeps the context alive.
Attention handle(const Context& context, const AttentionState* state) {
  return Access::attention(std::shared_ptr<const AttentionState>(Access::state(context), state));
}

bool fill(const AttentionState& state, const AttentionArguments& arguments, AttentionParams& params) {
  return fill_params(state.spec, state.rules, state.tensors, arguments, params);
}

// Fills the parameters, from the last call's if it had such arguments (KnownAttention).
bool fill_as_last_call(const AttentionState& state, const AttentionArguments& arguments,
                       AttentionParams& params) {
  bool is_known = false;
  state.last_call.use([&](const std::optional<KnownAttention>& last) {
    is_known = last && last->fill(state.spec, arguments, params);
  });
  if (is_known) return true;
  if (!fill(state, arguments, params)) return false;
  if (KnownAttention::is_possible(arguments)) {
    state.last_call.use(
        [&](std::optional<KnownAttention>& last) { last.emplace(state.rules, arguments, params); });
  }
  return true;
}

CompiledKernel describe(const AttentionState& state, const Plan& plan) {
  return Access::kernel(state.context.shared_from_this(), state.spec, plan.config,
                        plan.steps.front().kernel.image, plan.why, plan.tuning_log);
}

}  // namespace

void report_faults(const AttentionState& state, FaultSlot& slot) {
  const std::optional<ArrayFault> fault = slot.take();
  if (!fault) return;
  const FaultText found = fault_text(*fault);
  if (state.spec.checked)
    throw Error(ErrorCode::invalid_argument, "launch", std::string(found.array), found.text);
  state.context.notify(Event::Kind::warning, found.text);
}

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
  if (!fill_as_last_call(state, arguments, params)) return;
  const CurrentDevice device;
  const Plan* plan = state.by_size.find(size_key(device.ordinal(), shape_of(params)));
  if (plan == nullptr) plan = plan_for_new_sizes(state, device.ordinal(), params, stream);
  std::optional<FaultSlot> slot;
  if (plan->is_checked && !device_length_argument(params).empty())
    slot.emplace(state.context.memory.faults(), device.ordinal(), stream);
  params.sequences.fault = slot ? slot->address() : nullptr;
  if (state.spec.checked) {
    check_arrays(state.context, state.spec, params, device.ordinal(), stream);
    check_mask(state.context, state.spec, params, device.ordinal(), stream);
  }
  run_plan(*plan, params, state.context.memory, stream);
  if (slot) report_faults(state, *slot);
}

void Attention::prepare(const AttentionArguments& arguments) const {
  AttentionParams params;
  if (!fill(*state_, arguments, params)) return;
  prepared_plan(*state_, current_device(), params);
}

CompiledKernel Attention::kernel(const AttentionArguments& arguments) const {
  AttentionParams params;
  if (!fill(*state_, arguments, params)) return kernel();
  return describe(*state_, *prepared_plan(*state_, current_device(), params));
}

CompiledKernel Attention::kernel() const {
  const std::lock_guard lock(state_->choosing);
  return describe(*state_, *default_plan(*state_, current_device()));
}

const AttentionSpec& Attention::spec() const { return state_->spec; }

Attention attention(const AttentionSpec& spec, std::optional<KernelConfig> config, const Context& context) {
  ContextState& shared = *Access::state(context);
  const Digest key = dispatch_key(spec, config);
  const AttentionState* state = shared.attentions.find(key);
  if (state == nullptr) {
    std::unique_ptr<AttentionState> fresh = new_state(shared, spec, config, /*deferred=*/false);
    const int device = current_device();
    const CurrentDevice scope(device);
    {
      const std::lock_guard lock(fresh->choosing);
      default_plan(*fresh, device);
    }
    state = shared.attentions.insert(key, std::move(fresh));
  }
  return handle(context, state);
}

Attention attention_when_called(const AttentionSpec& spec, const Context& context) {
  ContextState& shared = *Access::state(context);
  const auto has_spec = [&](const AttentionState& state) { return state.spec == spec; };
  if (const AttentionState* recent = shared.recent_attentions.find(has_spec)) return handle(context, recent);
  Digest key = dispatch_key(spec, {});
  key.low = ~key.low;  // separate: states of attention() have a loaded kernel
  const AttentionState* state = shared.attentions.find(key);
  if (state == nullptr) state = shared.attentions.insert(key, new_state(shared, spec, {}, /*deferred=*/true));
  shared.recent_attentions.add(state);
  return handle(context, state);
}

}  // namespace jit
