// Calls: arguments → parameters → the plan for their sizes → launch.
#include <jit/attention.h>
#include <jit/device.h>

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "generator/access.h"
#include "generator/attention_state.h"
#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/problem/arguments.h"
#include "generator/problem/descale_arguments.h"
#include "generator/problem/dispatch_key.h"
#include "generator/problem/dropout_arguments.h"
#include "generator/problem/padded_spec.h"
#include "generator/size_key.h"
#include "generator/tuning/tune.h"
#include "generator/tuning/tuning_record.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"
#include "templates/scheduling/request_kinds.cuh"

namespace jit {

namespace {

Digest device_key(int device, const ProblemShape& shape) {
  return spread(
      static_cast<std::uint64_t>(device) << 5 | static_cast<std::uint64_t>(shape.has_many_heads) << 4 |
      static_cast<std::uint64_t>(shape.pass) << 2 |
      static_cast<std::uint64_t>(shape.has_device_lengths) << 1 | static_cast<std::uint64_t>(shape.tma));
}

const Plan* keep(DispatchTable<Plan>& table, const Digest& key, Plan plan) {
  return table.insert(key, std::make_unique<const Plan>(std::move(plan)));
}

Plan plan_of(const AttentionState& state, const AttentionSpec& spec, BuiltKernel kernel,
             const DeviceInfo& device, std::string why) {
  return make_plan(state.context, spec, std::move(kernel), device.ordinal, std::move(why));
}

// What the cost model, or the config that was given, makes of `shape`. Where what the model chooses cannot be had, the
// best kernel that is at hand will do.
Plan untuned_plan(const AttentionState& state, const DeviceInfo& device, const ProblemShape& shape,
                  std::string why) {
  const AttentionSpec spec = forward_spec(state.spec, shape.has_device_lengths);
  BuiltKernel kernel = choose_kernel(state.context, spec, state.given, shape, device_limits(device),
                                     native_target(device), Missing::is_replaced);
  if (kernel.stands_in) remark_stand_in(why);
  return plan_of(state, spec, std::move(kernel), device, std::move(why));
}

// The plan for sizes that nothing was chosen for; of `shape` it is only asked which kernels can read the tensors.
// Requires: state.choosing is held.
const Plan* default_plan(const AttentionState& state, int device, const ProblemShape& shape = {}) {
  const Digest key = device_key(device, shape);
  if (const Plan* known = state.defaults.find(key)) return known;
  const DeviceInfo info = device_info(device);
  ProblemShape typical = typical_shape(device_limits(info), state.spec);
  typical.tma = shape.tma;
  typical.has_device_lengths = shape.has_device_lengths;
  typical.has_many_heads = shape.has_many_heads;
  return keep(state.defaults, key,
              untuned_plan(state, info, typical, state.given ? "given" : "cost model, typical sizes"));
}

// The kernel for some requests of mixed calls: of the config that was recorded for calls of their sizes, else of the cost
// model's, else the best that is at hand.
std::optional<BuiltKernel> kernel_for(const AttentionState& state, const DeviceInfo& device,
                                      Requests requests, const ProblemShape& shape) {
  std::optional<KernelConfig> config;
  if (state.context.settings.tuning != TuningMode::off && !device.emulated && can_time(state.spec)) {
    const ForwardProblem problem(state.spec, device, shape);
    if (const auto recorded = find_record(state.context, problem); recorded)
      config = config_for(recorded->configs.front(), requests);
  }
  const auto choose = [&](const std::optional<KernelConfig>& wanted, Missing missing) {
    return choose_kernel_for(state.context, state.spec, requests, wanted, shape, device_limits(device),
                             native_target(device), missing);
  };
  if (config) {
    try {
      // None for some requests alone is made with the fields of some configs.
      if (std::optional<BuiltKernel> kernel = choose(config, Missing::is_an_error)) return kernel;
    } catch (const Error& error) {
      if (!is_out_of_reach(error)) throw;
    }
  }
  return choose({}, Missing::is_replaced);
}

// Two kernels for a call of requests of few queries and of many, one behind the other. None where one of them is missing:
// not made for such tensors, or neither at hand nor to be compiled.
std::optional<Plan> mixed_plan(const AttentionState& state, const DeviceInfo& device,
                               const ProblemShape& shape) {
  const AttentionSpec& spec = state.spec;
  if (shape.surplus_q == 0 || spec.split_keys != 0 || spec.dropout) return std::nullopt;
  try {
    std::optional<BuiltKernel> many = kernel_for(state, device, Requests::many_queries, shape_of_many(shape));
    if (!many) return std::nullopt;
    std::optional<BuiltKernel> few = kernel_for(state, device, Requests::few_queries, shape_of_few(shape));
    if (!few) return std::nullopt;
    std::string why = fmt::format("cost model; beside requests of more than {} queries, those by {}",
                                  few_queries, to_string(many->config));
    if (many->stands_in || few->stands_in) remark_stand_in(why);
    Plan plan = plan_of(state, state.spec, *std::move(few), device, std::move(why));
    add_kernel(state.context, plan, *std::move(many), device.ordinal);
    return plan;
  } catch (const Error& error) {
    if (!is_out_of_reach(error)) throw;
    return std::nullopt;
  }
}

// A config that was given is taken at its word, but never computes something else.
void check_given(const AttentionState& state, const AttentionParams& params) {
  const std::string_view argument = device_length_argument(params);
  if (!state.given || argument.empty() || reads_device_lengths(forward_spec(state.spec, true), *state.given))
    return;
  throw Error(
      ErrorCode::invalid_argument, "launch", std::string(argument),
      fmt::format("{}: is not read by kernels of family={}, whose config was given; give no config, or one "
                  "with family=forward_split_kv",
                  argument, family_name(*state.given)));
}

// A plan for these sizes as the settings want it chosen. Requires: state.choosing is held.
Plan plan_for_sizes(const AttentionState& state, int device, const AttentionParams& params) {
  const ForwardProblem problem = forward_problem(state.spec, device_info(device), params);
  const ProblemShape& shape = problem.shape();
  if (state.given) return *default_plan(state, device, shape);
  if (shape.seqlen_kv != 0) {
    if (std::optional<Plan> mixed = mixed_plan(state, problem.device(), shape)) return *std::move(mixed);
  }
  return choose_plan(state.context, problem, [&](std::string why) {
    return untuned_plan(state, problem.device(), shape, std::move(why));
  });
}

const Plan* prepared_plan(const AttentionState& state, int device, const AttentionParams& params) {
  check_given(state, params);
  const Digest key = size_key(device, shape_of(params));
  const std::lock_guard lock(state.choosing);
  if (const Plan* known = state.by_size.find(key)) return known;
  const RelaxedCapture relaxed;
  const CurrentDevice scope(device);
  return keep(state.by_size, key, plan_for_sizes(state, device, params));
}

// For sizes that were not seen before: under capture what is loaded already, else a choice.
const Plan* plan_for_new_sizes(const AttentionState& state, int device, const AttentionParams& params,
                               Stream stream) {
  if (!is_capturing(stream)) {
    // Tuning reads the caller's mask and score tensors on a stream of its own: what the caller still writes
    // must be there.
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    return prepared_plan(state, device, params);
  }
  check_given(state, params);
  if (const Plan* known = state.defaults.find(device_key(device, shape_of(params)))) return known;
  if (state.deferred) {
    const std::lock_guard lock(state.choosing);
    const RelaxedCapture relaxed;
    return default_plan(state, device, shape_of(params));
  }
  throw Error(
      ErrorCode::not_prepared, "launch", "stream",
      "the stream is being captured and no kernel is loaded on this device: call prepare() with these "
      "arguments before the capture begins");
}

std::unique_ptr<AttentionState> new_state(ContextState& context, const AttentionSpec& spec,
                                          const std::optional<KernelConfig>& config, bool deferred) {
  validate(spec);
  if (config && is_of_two(*config)) {
    throw Error(ErrorCode::no_valid_config, "configure", "config",
                "config: requests must be all: a kernel of one config computes all requests of a call; calls "
                "take two by themselves");
  }
  context.tell_of_fallback();
  return std::make_unique<AttentionState>(context, spec, config, deferred);
}

// The context owns the state, so a handle keeps the context alive.
Attention handle(const Context& context, const AttentionState* state) {
  return Access::attention(std::shared_ptr<const AttentionState>(Access::state(context), state));
}

bool fill(const AttentionState& state, const AttentionArguments& arguments, AttentionParams& params) {
  return fill_params(state.spec, state.rules, state.tensors, arguments, params);
}

// The same, and the scales, as the last call has them where it vouches for this one.
bool fill(const AttentionState& state, const AttentionArguments& arguments, AttentionParams& params,
          DescaleParams& descale) {
  bool is_known = false;
  state.last_call.use([&](const std::optional<KnownAttention>& last) {
    is_known = last && last->fill(state.spec, arguments, params, descale);
  });
  if (is_known) return true;
  if (!fill(state, arguments, params)) return false;
  descale = descale_params(state.spec, arguments);
  if (KnownAttention::is_possible(arguments)) {
    state.last_call.use(
        [&](std::optional<KnownAttention>& last) { last.emplace(state.rules, arguments, params, descale); });
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
  DescaleParams descale;
  if (!fill(state, arguments, params, descale)) return;
  const CurrentDevice device;
  const Plan* plan = state.by_size.find(size_key(device.ordinal(), shape_of(params)));
  if (plan == nullptr) plan = plan_for_new_sizes(state, device.ordinal(), params, stream);
  std::optional<FaultSlot> slot;
  if (plan->is_checked && !device_length_argument(params).empty())
    slot.emplace(state.context.memory.faults(), device.ordinal(), stream);
  params.sequences.fault = slot ? slot->address() : nullptr;
  run_plan(*plan, params, state.context.memory, stream, nullptr,
           dropout_params(arguments.dropout_p, arguments.rng_state), descale);
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
  key.low = ~key.low;  // a state of its own: those of attention() have a kernel loaded
  const AttentionState* state = shared.attentions.find(key);
  if (state == nullptr) state = shared.attentions.insert(key, new_state(shared, spec, {}, /*deferred=*/true));
  shared.recent_attentions.add(state);
  return handle(context, state);
}

}  // namespace jit
