// compile() without a device, and its checks of arguments.
#include <jit/compiled_kernel.h>

#include <utility>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/plan/kernel_choice.h"

namespace jit {

CompiledKernel compile(const AttentionSpec& spec, Arch arch, std::optional<KernelConfig> config,
                       const Context& context) {
  validate(spec);
  const DeviceLimits limits = device_limits(arch);
  ProblemShape shape = typical_shape(limits, spec);
  if (config) shape.pass = pass_of(*config);
  BuiltKernel kernel = choose_kernel(*Access::state(context), spec, config, shape, limits, {.arch = arch});
  return Access::kernel(Access::state(context), spec, kernel.config, std::move(kernel.image),
                        config ? "given" : "cost model, typical sizes");
}

std::vector<KernelConfig> candidate_configs(const AttentionSpec& spec, Arch arch) {
  validate(spec);
  const DeviceLimits limits = device_limits(arch);
  ProblemShape shape = typical_shape(limits, spec);
  shape.any_size = false;
  return ranked_configs(spec, shape, limits);
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config, Arch arch) {
  return config_rejection(spec, config, device_limits(arch));
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceInfo& device) {
  return config_rejection(spec, config, device_limits(device));
}

}  // namespace jit
