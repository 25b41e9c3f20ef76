// Backward calls: arguments → parameters → the plan of two kernels for their sizes → launch.
#include <jit/attention.h>
#include <jit/device.h>

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "generator/access.h"
#include "generator/attention_state.h"
#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/problem/arguments.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/size_key.h"
#include "runtime/capture.h"

namespace jit {
namespace {

ProblemShape backward_shape(const AttentionParams& params) {
  ProblemShape shape = shape_of(params);
  shape.tma = false;  // no kernel asks
  return shape;
}

BackwardPlan choose_plan(const AttentionState& state, int device, ProblemShape shape) {
  const DeviceInfo info = device_info(device);
  BackwardPlan result{
      .plan = {.spec = state.spec, .config = {}, .steps = {}, .why = "cost model, these sizes"},
      .configs = {}};
  // In this order: the second kernel reads what the first one leaves of each query.
  for (const Pass pass : {Pass::backward_dq, Pass::backward_dkv}) {
    shape.pass = pass;
    BuiltKernel kernel =
        choose_kernel(state.context, state.spec, {}, shape, device_limits(info), native_target(info));
    result.plan.steps.push_back(
        plan_step(load_kernel(state.context, std::move(kernel.image), device), state.spec, kernel.config));
    result.configs.push_back(kernel.config);
  }
  result.plan.config = result.configs.back();
  return result;
}

const BackwardPlan& prepared_plan(const AttentionState& state, int device, const AttentionParams& params) {
  const ProblemShape shape = backward_shape(params);
  const Digest key = size_key(device, shape);
  const std::lock_guard lock(state.choosing);
  if (const BackwardPlan* known = state.backward_by_size.find(key)) return *known;
  const RelaxedCapture relaxed;
  const CurrentDevice scope(device);
  return *state.backward_by_size.insert(
      key, std::make_unique<const BackwardPlan>(choose_plan(state, device, shape)));
}

const BackwardPlan& plan_for_launch(const AttentionState& state, int device, const AttentionParams& params,
                                    Stream stream) {
  if (const BackwardPlan* known = state.backward_by_size.find(size_key(device, backward_shape(params))))
    return *known;
  if (!is_capturing(stream)) return prepared_plan(state, device, params);
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
  const BackwardPlan& plan = plan_for_launch(state, device, params, stream);
  run_plan(plan.plan, params, state.context.memory, stream, &gradients);
}

void Attention::prepare_backward(const BackwardArguments& arguments) const {
  AttentionParams params;
  GradientParams gradients;
  if (!fill_params(state_->spec, state_->tensors, arguments, params, gradients)) return;
  prepared_plan(*state_, current_device(), params);
}

std::vector<CompiledKernel> Attention::backward_kernels(const BackwardArguments& arguments) const {
  AttentionParams params;
  GradientParams gradients;
  fill_params(state_->spec, state_->tensors, arguments, params, gradients);
  const BackwardPlan& plan = prepared_plan(*state_, current_device(), params);
  std::vector<CompiledKernel> kernels;
  for (std::size_t i = 0; i < plan.configs.size(); ++i)
    kernels.push_back(Access::kernel(state_->context.shared_from_this(), state_->spec, plan.configs[i],
                                     plan.plan.steps[i].kernel.image, plan.plan.why));
  return kernels;
}

}  // namespace jit
