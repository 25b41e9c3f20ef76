#include "generator/kernels/persistent/launch.h"
#include "generator/kernels/forward_mma_tma/family.h"

namespace jit {

void Family<ForwardMmaTma>::launch(const KernelLaunch& launch, const ForwardMmaTma& config) {
  launch_persistent(launch, launch.spec, {config.tile_q, config.tile_kv, 1}, launch.params);
}

}  // namespace jit
