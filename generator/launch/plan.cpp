#include "generator/launch/plan.h"

#include <algorithm>

#include "generator/kernels/families.h"

namespace jit {

PlanStep plan_step(LoadedKernel kernel, const AttentionSpec& spec, const KernelConfig& config) {
  return std::visit([&](const auto& own) { return plan_step(std::move(kernel), spec, own); }, config);
}

void run_plan(const Plan& plan, AttentionParams& params, const StreamMemory& memory, Stream stream,
              GradientParams* gradients) {
  std::size_t bytes = 0;
  for (const PlanStep& step : plan.steps) bytes = std::max(bytes, step.workspace_bytes(params));
  MemoryOfStream of_stream = memory.of(plan.steps.front().kernel.device, stream);
  void* const workspace = of_stream.workspace(bytes);
  for (const PlanStep& step : plan.steps) {
    step.launch({.kernel = step.kernel,
                 .spec = plan.spec,
                 .params = params,
                 .stream = stream,
                 .memory = of_stream,
                 .workspace = workspace,
                 .gradients = gradients});
  }
}

}  // namespace jit
