#include "generator/pack/training_kernels.h"

#include <jit/spec_table.h>

#include "generator/kernels/backward_output/steps.h"
#include "generator/kernels/backward_sinks/steps.h"
#include "generator/kernels/backward_tensors/steps.h"
#include "generator/kernels/families.h"
#include "generator/problem/functor_gradients.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/problem/kernel_spec.h"

namespace jit {

std::vector<Pass> training_passes(const AttentionSpec& spec, const DeviceLimits& limits) {
  check_has_backward(spec);
  std::vector<Pass> passes = {Pass::backward_dq, Pass::backward_dkv};
  const AttentionSpec kernel_spec = gradient_spec(spec);
  if (!config_space({kernel_spec, limits}, {.pass = Pass::backward}).empty())
    passes.push_back(Pass::backward);
  return passes;
}

std::vector<KernelBuild> around_one_pass(const AttentionSpec& spec, const OutputFunctor& output,
                                         const KernelConfig& config, Target target) {
  AttentionSpec with_output = spec;
  with_output.output = output;
  FamilySteps around = steps_around(with_output, config);
  std::vector<KernelBuild> builds;
  for (auto* steps : {&around.before, &around.behind}) {
    for (FamilyStep& step : *steps) builds.push_back(build_of(std::move(step.program), target));
  }
  return builds;
}

std::vector<KernelBuild> of_shared_gradients(const AttentionSpec& spec, Target target) {
  std::vector<KernelBuild> builds;
  if (spec.sinks) builds.push_back(build_of(backward_sinks::program(spec), target));
  if (!spec.output.is_none()) builds.push_back(build_of(backward_output::program(spec), target));
  const std::vector<FunctorTensorUse> tensors = functor_tensor_uses(spec);
  const unsigned slots = slots_with_gradient(tensors) & ~output_slots(tensors);
  if (slots != 0) {
    const AttentionSpec kernel_spec = gradient_spec(spec);
    builds.push_back(build_of(backward_tensors::sum_program(kernel_spec, slots), target));
    builds.push_back(build_of(backward_tensors::convert_program(kernel_spec, slots), target));
  }
  return builds;
}

}  // namespace jit
