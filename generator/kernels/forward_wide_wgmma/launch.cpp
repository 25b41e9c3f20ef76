#include "generator/kernels/persistent/launch.h"
#include "generator/kernels/forward_wide_wgmma/family.h"
#include "templates/forward_wide_wgmma/smem_layout.cuh"

namespace jit {

void Family<ForwardWideWgmma>::launch(const KernelLaunch& launch, const ForwardWideWgmma&) {
  launch_persistent(launch, launch.spec, {rows_per_warpgroup, forward_wide_wgmma::tile_kv, 1}, launch.params);
}

}  // namespace jit
