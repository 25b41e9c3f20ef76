#include "generator/pack/training_kernels.h"

#include <jit/spec_table.h>

#include "generator/kernels/backward_sinks/steps.h"
#include "generator/kernels/backward_tensors/steps.h"
#include "generator/kernels/families.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/functor_gradients.h"
#include "generator/problem/gradient_arguments.h"

namespace jit {
namespace {

// As kernels of backward know a spec: LSE has the sinks.
AttentionSpec without_sinks(AttentionSpec spec) {
  spec.sinks = false;
  return spec;
}

}  // namespace

std::vector<Pass> training_passes(const AttentionSpec& spec, const DeviceLimits& limits) {
  check_has_backward(spec);
  std::vector<Pass> passes = {Pass::backward_dq, Pass::backward_dkv};
  const AttentionSpec own = without_sinks(spec);
  if (!config_space({own, limits}, {.pass = Pass::backward}).empty()) passes.push_back(Pass::backward);
  return passes;
}

std::vector<KernelBuild> around_one_pass(const AttentionSpec& spec, const BackwardWgmma& config,
                                         const DeviceLimits& limits, Target target) {
  std::vector<BackwardWgmma> configs = {config};
  if (!config.deterministic) {
    configs.push_back(config);
    configs.back().deterministic = true;
  }
  std::vector<KernelBuild> builds;
  for (const BackwardWgmma& own : configs) {
    builds.push_back([spec, own, limits, target](KernelStore& store) {
      return choose_kernel(store, spec, own, {.pass = Pass::backward}, limits, target).image;
    });
    builds.push_back(build_of(backward_wgmma::prepare_program(spec, own), target));
    builds.push_back(build_of(backward_wgmma::convert_program(spec, own), target));
  }
  return builds;
}

std::vector<KernelBuild> of_shared_gradients(const AttentionSpec& spec, Target target) {
  std::vector<KernelBuild> builds;
  if (spec.sinks) builds.push_back(build_of(backward_sinks::program(spec), target));
  const unsigned slots = slots_with_gradient(functor_tensor_uses(spec));
  if (slots != 0) {
    const AttentionSpec own = without_sinks(spec);
    builds.push_back(build_of(backward_tensors::sum_program(own, slots), target));
    builds.push_back(build_of(backward_tensors::convert_program(own, slots), target));
  }
  return builds;
}

}  // namespace jit
