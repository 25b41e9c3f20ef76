#include "generator/kernels/backward_tcgen05/family.h"
#include "generator/kernels/one_pass.h"
#include "templates/backward_tcgen05/smem_layout.cuh"

namespace jit {
namespace {

one_pass::Shape shape_of(const AttentionSpec& spec, const BackwardTcgen05& config) {
  return {.tile_q = backward_tcgen05::tile_q,
          .tile_kv = backward_tcgen05::tile_kv,
          .sum_columns = backward_tcgen05::dq_columns(spec.head_dim),
          .deterministic = config.deterministic};
}

}  // namespace

FamilySteps Family<BackwardTcgen05>::steps(const AttentionSpec& spec, const BackwardTcgen05& config) {
  return one_pass::steps(spec, shape_of(spec, config), backward_tcgen05::prepare_program(spec, config),
                         backward_tcgen05::convert_program(spec, config));
}

std::size_t Family<BackwardTcgen05>::workspace_bytes(const AttentionSpec& spec, const BackwardTcgen05& config,
                                                     const AttentionParams& params, int /*sm_count*/) {
  return one_pass::workspace_bytes(spec, shape_of(spec, config), params);
}

void Family<BackwardTcgen05>::launch(const KernelLaunch& launch, const BackwardTcgen05& config) {
  one_pass::launch(launch, shape_of(launch.spec, config));
}

}  // namespace jit
