#include "generator/kernels/persistent/launch.h"
#include "generator/kernels/forward_tcgen05/family.h"
#include "templates/forward_tcgen05/smem_layout.cuh"

namespace jit {

void Family<ForwardTcgen05>::launch(const KernelLaunch& launch, const ForwardTcgen05&) {
  using namespace forward_tcgen05;
  const Blocks blocks = blocks_of(launch.spec);
  launch_persistent(launch, launch.spec,
                    {.tile_q = tile_q, .tile_kv = blocks.keys(), .blocks_per_tile = blocks.count},
                    launch.params);
}

}  // namespace jit
