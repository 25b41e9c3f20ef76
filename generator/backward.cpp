// Backward calls: arguments → parameters → the plan of the kernels for their sizes → launch.
#include <jit/attention.h>
#include <jit/device.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "generator/attention_state.h"
#include "generator/build/images_beside.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/array_check.h"
#include "generator/plan/backward_plan.h"
#include "generator/plan/mask_check.h"
#include "generator/problem/arguments.h"
#include "generator/problem/functor_gradients.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/size_key.h"
#include "generator/tuning/tune.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

BackwardCall call_of(const AttentionParams& params, const GradientParams& gradients,
                     const BackwardArguments& arguments) {
  return {.shape = backward_shape(params, gradients),
          .deterministic = arguments.deterministic,
          .has_sinks = gradients.d_sinks != nullptr,
          .tensor_slots = gradient_slots(gradients)};
}

Digest plan_key(int device, const BackwardCall& call) {
  Digest key = size_key(device, call.shape);
  key.high ^= std::uint64_t{call.deterministic} << 63 ^ std::uint64_t{call.has_sinks} << 62 ^
              std::uint64_t{call.tensor_slots} << 54;
  return key;
}

// Advice for functor texts that compile in forward but not in backward.
struct Remedy {
  std::string_view mark;  ///< a part of the compiler's message
  std::string_view advice;
};
constexpr Remedy remedies[] = {
    {"ElementDerivatives",
     "the derivative with respect to element i of `table` is stated as `d_table[i] += ...`"},
    {"identifier \"d_",
     "a `derivative` may state those with respect to elements of the text's own tensors of fp32, "
     "bf16 or fp16, of `table` as `d_table[i] += ...`"},
    {"Dual",
     "in gradients, what depends on `score`, or on a tensor whose gradient is wanted, carries its "
     "derivative: the text of a score declares it with `auto` or `decltype(score)`, or gives its "
     "`derivative`"}};

Error with_remedy(const Error& error, const Remedy& remedy) {
  return Error({.code = error.code(),
                .stage = error.stage(),
                .message = fmt::format("{}; {}", error.message(), remedy.advice),
                .field = error.field(),
                .native_code = error.native_code(),
                .log = error.log(),
                .source = error.source()});
}

Plan untuned_plan(const AttentionState& state, const BackwardCall& call, int device, const std::string& why) {
  return untuned_backward_plan(state.context, backward_spec(state.spec, call.shape), call.shape,
                               call.deterministic, device, why);
}

// The plan that computes dq, dk and dv, chosen once for all calls of a size class. Requires: state.choosing
// is held.
const Plan& operand_plan(const AttentionState& state, int device, const AttentionParams& params,
                         const BackwardCall& call) {
  const BackwardCall operands{.shape = call.shape, .deterministic = call.deterministic};
  const Digest key = plan_key(device, operands);
  if (const Plan* known = state.backward_of_operands.find(key)) return *known;
  const BackwardProblem problem(state.spec, device_info(device), call.shape, params, call.deterministic);
  Plan plan = choose_plan(state.context, problem,
                          [&](const std::string& why) { return untuned_plan(state, operands, device, why); });
  return *state.backward_of_operands.insert(key, std::make_unique<const Plan>(std::move(plan)));
}

Plan whole_plan(const AttentionState& state, int device, const AttentionParams& params,
                const BackwardCall& call) {
  try {
    const ImagesBeside beside(state.context, shared_gradient_programs(state.spec, call),
                              native_target(device_info(device)));
    Plan plan = operand_plan(state, device, params, call);
    add_shared_gradients(state.context, plan, state.spec, call, device);
    return plan;
  } catch (const Error& error) {
    const Remedy* const remedy =
        std::find_if(std::begin(remedies), std::end(remedies),
                     [&](const Remedy& known) { return error.log().find(known.mark) != std::string::npos; });
    if (error.code() != ErrorCode::compile_failed || remedy == std::end(remedies)) throw;
    throw with_remedy(error, *remedy);
  }
}

const Plan& prepared_plan(const AttentionState& state, int device, const AttentionParams& params,
                          const BackwardCall& call) {
  const Digest key = plan_key(device, call);
  const std::lock_guard lock(state.choosing);
  if (const Plan* known = state.backward_by_size.find(key)) return *known;
  const RelaxedCapture relaxed;
  const CurrentDevice scope(device);
  Plan plan = whole_plan(state, device, params, call);
  return *state.backward_by_size.insert(key, std::make_unique<const Plan>(std::move(plan)));
}

const Plan& plan_for_launch(const AttentionState& state, int device, const AttentionParams& params,
                            const BackwardCall& call, Stream stream) {
  if (const Plan* known = state.backward_by_size.find(plan_key(device, call))) return *known;
  if (!is_capturing(stream)) {
    // As in forward: tuning reads tensors of mask and score, which the stream may still write.
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    return prepared_plan(state, device, params, call);
  }
  throw Error(ErrorCode::not_prepared, "launch", "stream",
              "the stream is being captured and no kernels of backward are loaded for these sizes: call "
              "prepare_backward() with "
              "these arguments before the capture begins");
}

}  // namespace

void Attention::backward(const BackwardArguments& arguments, Stream stream) const {
  const AttentionState& state = *state_;
  AttentionParams params;
  GradientParams gradients;
  if (!fill_params(state.spec, state.tensors, arguments, params, gradients)) return;
  const int device = current_device();
  const CurrentDevice scope(device);
  const BackwardCall call = call_of(params, gradients, arguments);
  const Plan& plan = plan_for_launch(state, device, params, call, stream);
  std::optional<FaultSlot> slot;
  if (plan.is_checked) slot.emplace(state.context.memory.faults(), device, stream);
  params.sequences.fault = slot ? slot->address() : nullptr;
  if (state.spec.checked) {
    check_arrays(state.context, state.spec, params, device, stream);
    check_mask(state.context, state.spec, params, device, stream);
  }
  run_plan(plan, params, state.context.memory, stream, &gradients);
  if (slot) report_faults(state, *slot);
}

void Attention::prepare_backward(const BackwardArguments& arguments) const {
  AttentionParams params;
  GradientParams gradients;
  if (!fill_params(state_->spec, state_->tensors, arguments, params, gradients)) return;
  prepared_plan(*state_, current_device(), params, call_of(params, gradients, arguments));
}

std::vector<CompiledKernel> Attention::backward_kernels(const BackwardArguments& arguments) const {
  AttentionParams params;
  GradientParams gradients;
  fill_params(state_->spec, state_->tensors, arguments, params, gradients);
  const BackwardCall call = call_of(params, gradients, arguments);
  const Plan& plan = prepared_plan(*state_, current_device(), params, call);
  std::vector<CompiledKernel> kernels;
  for (const PlanStep& step : plan.steps) {
    kernels.push_back(Access::kernel(state_->context.shared_from_this(), state_->spec, step.config,
                                     step.kernel.image, plan.why, plan.tuning_log));
  }
  return kernels;
}

}  // namespace jit
