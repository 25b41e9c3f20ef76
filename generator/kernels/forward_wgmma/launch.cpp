#include "generator/kernels/persistent/launch.h"
#include "generator/kernels/forward_wgmma/family.h"
#include "generator/launch/kernel_launch.h"

namespace jit {

void Family<ForwardWgmma>::launch(const KernelLaunch& launch, const ForwardWgmma& config) {
  AttentionParams params = launch.params;
  if (config.upcast_ahead) params = launch_upcast_keys(launch);
  if (config.dropout_mask_ahead)
    params = launch_dropout_mask(launch, forward_wgmma::dropout_mask_tiles(config), launch.workspace);
  launch_persistent(launch, forward_wgmma::read_spec(launch.spec, config),
                    {config.tile_q, config.tile_kv, config.blocks_per_sm}, params);
}

}  // namespace jit
