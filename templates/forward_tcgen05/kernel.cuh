// Attention forward with TMA, tcgen05 and tensor memory, for sm_100a and sm_103a, after FlashAttention-4. A block computes
// two tiles of 128 queries, or a pair of blocks one each. One warp, of a pair that of the leader, issues all products,
// whose results lie in tensor memory. A warpgroup for each query tile computes softmax, and another one rescales and writes
// O; one warp loads keys and values, one queries, and one more values of several boxes.
#pragma once

#include "base/params.cuh"
#include "forward_tcgen05/correction.cuh"
#include "forward_tcgen05/mma.cuh"
#include "forward_tcgen05/softmax.cuh"
#include "forward_tcgen05/traits.cuh"
#include "mainloop/load_keys.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/q_producer.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/cluster.cuh"
#include "ptx/griddepcontrol.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_tcgen05 {

/// By one thread, before any other use; then a __syncthreads.
template <class Traits>
JIT_DEVICE void init_pipelines(unsigned smem) {
  constexpr SmemLayout layout = Traits::layout;
  constexpr int by_commit = 1, blocks = Traits::blocks.count;
  init_pipeline(smem, layout.q, 1, by_commit);
  init_pipeline(smem, layout.k, 1, by_commit);
  init_pipeline(smem, layout.v, 1, by_commit);
  constexpr int of_warp = decltype(KeyInfoPipeline<Traits>::k)::warp_arrivals;
  init_pipeline(smem, layout.infos, of_warp, Traits::key_readers * of_warp);
  init_pipeline(smem, layout.scores, by_commit, 1);
  init_pipeline(smem, layout.p, blocks * 2 * warps_per_tile, 1);  // of softmax and of correction
  init_pipeline(smem, layout.p_end, blocks * warps_per_tile, 1);
  init_pipeline(smem, layout.o_sums, by_commit, 1);
  init_pipeline(smem, layout.factors, warps_per_tile, warps_per_tile);
  init_pipeline(smem, layout.work, 1, Traits::work_readers);
  if constexpr (Traits::has_lengths) mbarrier_init(smem + layout.work_wanted, 1);
  fence_mbarrier_init();
}

/// All threads of the blocks of a work tile meet, and order what they did in tensor memory.
template <class Traits>
JIT_DEVICE void meet() {
  tcgen05_fence_before();
  if constexpr (Traits::is_pair) {
    cluster_sync();  // mutate: BlocksOfAPairEndAlone
  } else {
    __syncthreads();
  }
  tcgen05_fence_after();
}

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const TensorMaps& maps) {
  using Traits = KernelTraits<Config>;
  constexpr int mma_warp = 4 * (Traits::query_tiles + 1), blocks = Traits::blocks.count;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  const unsigned tmem_place = smem + Traits::layout.tmem_address;
  const int warp = uniform(threadIdx.x / warp_size);
  if (threadIdx.x == 0) init_pipelines<Traits>(smem);
  if (warp == mma_warp) {
    tcgen05_alloc<Traits::columns, blocks>(tmem_place);
    tcgen05_relinquish_alloc_permit<blocks>();
  }
  griddepcontrol_wait();
  meet<Traits>();
  const unsigned tmem = static_cast<unsigned>(load_shared(tmem_place));
  if (warp < 4 * Traits::query_tiles) {
    setmaxnreg_inc<Config::softmax_registers>();
    SoftmaxWarpgroup<Config>(params, smem, tmem, warp / 4).run();
  } else if (warp < mma_warp) {
    setmaxnreg_dec<Config::correction_registers>();
    CorrectionWarpgroup<Config>(params, smem, tmem).run();
  } else {
    setmaxnreg_dec<Config::producer_registers>();
    switch (warp - mma_warp) {
      case 0:
        MmaWarp<Config>(params, smem, tmem).run();
        break;
      case 1:
        load_keys<Traits>(params, maps, smem);
        break;
      case 2:
        load_queries<Traits>(params, maps, smem);
        break;
      default:
        if constexpr (Traits::has_value_producer) load_values<Traits>(params, maps, smem);
        if constexpr (Traits::has_lengths)
          zero_padding<Config>(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
    }
  }
  meet<Traits>();
  // mutate: ColumnsKept
  if (warp == mma_warp) tcgen05_dealloc<Traits::columns, blocks>(tmem);
}

}  // namespace jit::forward_tcgen05
