// The four warps that bring dQ of each step from tensor memory to shared memory, some columns at a time, from where the
// adder (backward/dq_adder.cuh) adds them to the sums of all blocks. A thread has a query.
#pragma once

#include "backward/key_tiles.cuh"
#include "backward_tcgen05/pipelines.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/tcgen05.cuh"

namespace jit::backward_tcgen05 {

template <class Config>
class DqWarp {
  using Traits = KernelTraits<Config>;
  static constexpr int columns = 16, loads = Traits::dq_part_columns / columns;

 public:
  JIT_DEVICE DqWarp(unsigned smem, unsigned tmem)
      : pipelines_(smem), dq_(pipelines_.dq(0)), tmem_(own_lanes(tmem + Traits::dq_column)) {}

  JIT_DEVICE void run(const AttentionParams& params) const {
    for_each_key_tile<Config>(
        params, pipelines_, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
          pipelines_.keys.consumer_release(keys.round);
          for (int info = has_queries ? 0 : last_dq_tile; (info & last_dq_tile) == 0; ++step) {
            wait_for(pipelines_.dq_sums, step);  // mutate: DqIsReadBeforeItIsThere
            info = load_shared_by_warp(pipelines_.dq_info(step));
            leave(step);
          }
          return step;
        });
  }

 private:
  JIT_DEVICE void leave(unsigned step) const {
#pragma unroll 1
    for (int i = 0; i < Traits::dq_parts; ++i) {
      float dq[loads][columns];
#pragma unroll
      for (int j = 0; j < loads; ++j) tcgen05_load(dq[j], tmem_ + i * Traits::dq_part_columns + j * columns);
      tcgen05_wait_load();  // mutate: NoWaitForDqColumns
#pragma unroll
      for (int j = 0; j < loads; ++j) tcgen05_hold(dq[j]);
      if (i + 1 == Traits::dq_parts) {
        tcgen05_fence_before();                     // mutate: NoFenceBehindDqOfStep
        pipelines_.dq_sums.consumer_release(step);  // dP of the next step may come
      }
      const unsigned part = step * Traits::dq_parts + i;
      dq_.producer_acquire(part);  // mutate: NoWaitForTheAdderOfParts
      const unsigned own = dq_.tile(part) + reread_thread_index() % tile_q * 16;
#pragma unroll
      for (int j = 0; j < Traits::dq_part_columns; j += 4)
        store_shared(own + j / 4 * tile_q * 16,
                     reinterpret_cast<const float(&)[4]>(dq[j / columns][j % columns]));
      fence_proxy_async_shared();  // mutate: NoFenceBehindDqParts
      dq_.producer_commit(part);
    }
  }

  const Pipelines<Config> pipelines_;
  const typename Pipelines<Config>::DqPipeline dq_;
  const unsigned tmem_;
};

}  // namespace jit::backward_tcgen05
