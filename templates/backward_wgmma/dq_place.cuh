// How a consumer leaves a part of dQ for the warp that adds it to global memory (dq_adder.cuh): in shared memory, in
// the order in which the sums lie (dq_sums.cuh).
#pragma once

#include "backward_wgmma/pipelines.cuh"
#include "ptx/bulk_tensor.cuh"

namespace jit::backward_wgmma {

/// After the wait for the product, by each thread of the consumer. `part` counts those of the adder.
template <class Config>
__device__ __forceinline__ void put_dq(const Pipelines<Config>& pipelines, int adder, unsigned part,
                                       const typename KernelTraits<Config>::QueryGradient& dq) {
  const auto pipeline = pipelines.dq(adder);
  pipeline.producer_acquire(part);  // mutate: NoWaitForTheAdder
  // mutate: TheOtherPlaceOfDq
  const unsigned own = pipeline.tile(part) + reread_thread_index() % warpgroup_size * 16;
#pragma unroll
  for (int n = 0; n < KernelTraits<Config>::QueryGradient::column_blocks; ++n)
    store_shared(own + n * warpgroup_size * 16, dq.registers[0][n]);
}

/// Behind put_dq. What is started between the two does not wait for the fence.
template <class Config>
__device__ __forceinline__ void pass_dq(const Pipelines<Config>& pipelines, int adder, unsigned part) {
  fence_proxy_async_shared();  // mutate: NoFenceBehindDq
  pipelines.dq(adder).producer_commit(part);
}

}  // namespace jit::backward_wgmma
