#include "generator/kernels/persistent/launch.h"
#include "generator/kernels/forward_tcgen05/family.h"
#include "templates/forward_tcgen05/smem_layout.cuh"

namespace jit {

void Family<ForwardTcgen05>::launch(const KernelLaunch& launch, const ForwardTcgen05&) {
  launch_persistent(launch, launch.spec, {forward_tcgen05::tile_q, forward_tcgen05::tile_kv, 1},
                    launch.params);
}

}  // namespace jit
