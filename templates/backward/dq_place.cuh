// How a consumer leaves a part of dQ for the warp that adds it to global memory: in shared memory, in the order in which the
// sums lie, that of the consumer's registers.
#pragma once

#include "ptx/bulk_tensor.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// After the wait for the product, by each thread of the consumer. `part` counts those of the adder, whose pipeline it is.
template <class Pipeline, class Product>
__device__ __forceinline__ void put_dq(const Pipeline& pipeline, unsigned part, const Product& dq) {
  pipeline.producer_acquire(part);  // mutate: NoWaitForTheAdder
  // mutate: TheOtherPlaceOfDq
  const unsigned own = pipeline.tile(part) + reread_thread_index() % warpgroup_size * 16;
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n)
    store_shared(own + n * warpgroup_size * 16, dq.registers[0][n]);
}

/// Behind put_dq. What is started between the two does not wait for the fence.
template <class Pipeline>
__device__ __forceinline__ void pass_dq(const Pipeline& pipeline, unsigned part) {
  fence_proxy_async_shared();  // mutate: NoFenceBehindDq
  pipeline.producer_commit(part);
}

}  // namespace jit
