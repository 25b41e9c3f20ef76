// Backward calls: arguments → parameters → the plan of the kernels for their sizes → launch.
#include <jit/attention.h>
#include <jit/device.h>

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "generator/access.h"
#include "generator/attention_state.h"
#include "generator/backward_plan.h"
#include "generator/context_state.h"
#include "generator/launch/tensor_maps.h"
#include "generator/problem/arguments.h"
#include "generator/problem/dropout_arguments.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/size_key.h"
#include "runtime/capture.h"

namespace jit {
namespace {

/// A backward call as its plan sees it.
struct BackwardCall {
  ProblemShape shape;
  bool deterministic;
};

BackwardCall call_of(const AttentionParams& params, const GradientParams& gradients,
                     const BackwardArguments& arguments) {
  ProblemShape shape = shape_of(params);
  shape.pass = Pass::backward;
  shape.tma = can_map(params, gradients);
  return {shape, arguments.deterministic};
}

Digest plan_key(int device, const BackwardCall& call) {
  Digest key = size_key(device, call.shape);
  key.high ^= std::uint64_t{call.deterministic} << 63;
  return key;
}

const BackwardPlan& prepared_plan(const AttentionState& state, int device, const BackwardCall& call) {
  const Digest key = plan_key(device, call);
  const std::lock_guard lock(state.choosing);
  if (const BackwardPlan* known = state.backward_by_size.find(key)) return *known;
  const RelaxedCapture relaxed;
  const CurrentDevice scope(device);
  return *state.backward_by_size.insert(
      key, std::make_unique<const BackwardPlan>(
               choose_backward_plan(state.context, state.spec, call.shape, call.deterministic, device)));
}

const BackwardPlan& plan_for_launch(const AttentionState& state, int device, const BackwardCall& call,
                                    Stream stream) {
  if (const BackwardPlan* known = state.backward_by_size.find(plan_key(device, call))) return *known;
  if (!is_capturing(stream)) return prepared_plan(state, device, call);
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
  const BackwardPlan& plan = plan_for_launch(state, device, call_of(params, gradients, arguments), stream);
  run_plan(plan.plan, params, state.context.memory, stream, &gradients,
           dropout_params(arguments.dropout_p, arguments.rng_state));
  if (plan.plan.is_checked) report_faults(state, device, stream);
}

void Attention::prepare_backward(const BackwardArguments& arguments) const {
  AttentionParams params;
  GradientParams gradients;
  if (!fill_params(state_->spec, state_->tensors, arguments, params, gradients)) return;
  prepared_plan(*state_, current_device(), call_of(params, gradients, arguments));
}

std::vector<CompiledKernel> Attention::backward_kernels(const BackwardArguments& arguments) const {
  AttentionParams params;
  GradientParams gradients;
  fill_params(state_->spec, state_->tensors, arguments, params, gradients);
  const BackwardPlan& plan = prepared_plan(*state_, current_device(), call_of(params, gradients, arguments));
  std::vector<CompiledKernel> kernels;
  for (std::size_t i = 0; i < plan.configs.size(); ++i)
    kernels.push_back(Access::kernel(state_->context.shared_from_this(), state_->spec, plan.configs[i],
                                     plan.plan.steps[i].kernel.image, plan.plan.why));
  return kernels;
}

}  // namespace jit
