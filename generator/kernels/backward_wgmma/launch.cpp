#include "generator/kernels/backward_wgmma/family.h"
#include "generator/kernels/one_pass.h"
#include "templates/backward/tensor_maps.cuh"
#include "templates/backward_wgmma/smem_layout.cuh"

namespace jit {
namespace {

one_pass::Shape shape_of(const AttentionSpec& spec, const BackwardWgmma& config) {
  one_pass::Shape shape = {.tile_q = backward_wgmma::step_queries,
                           .tile_kv = backward_wgmma::tile_kv(spec, config),
                           .blocks_per_tile = backward_wgmma::blocks_per_tile(config),
                           .sum_columns = backward_wgmma::dq_columns(spec.head_dim),
                           .gradient_rows = gradient_rows,
                           .deterministic = config.deterministic};
  if (config.dropout_mask_ahead) shape.dropout_mask = backward_wgmma::dropout_mask_tiles(spec, config);
  return shape;
}

}  // namespace

FamilySteps Family<BackwardWgmma>::steps(const AttentionSpec& spec, const BackwardWgmma& config) {
  return one_pass::steps(spec, shape_of(spec, config), backward_wgmma::prepare_program(spec, config),
                         backward_wgmma::convert_program(spec, config));
}

std::size_t Family<BackwardWgmma>::workspace_bytes(const AttentionSpec& spec, const BackwardWgmma& config,
                                                   const AttentionParams& params, int /*sm_count*/) {
  return one_pass::workspace_bytes(spec, shape_of(spec, config), params);
}

void Family<BackwardWgmma>::launch(const KernelLaunch& launch, const BackwardWgmma& config) {
  one_pass::launch(launch, shape_of(launch.spec, config));
}

}  // namespace jit
