// Multi-head latent attention in its absorbed form ("DeepSeek-V2"): one KV head serves all query heads, and values are the
// first columns of the keys. Sequences of any lengths, keys split over blocks. TMA and wgmma, for sm_90a.
//
// A block has a producer warpgroup, some of whose warps load keys and the others queries, a score warpgroup, which computes
// scores and their softmax, and two output warpgroups, which multiply P with values and own half of the columns of O each,
// since O exceeds the registers of one. P passes through shared memory. Where 16-bit rows are copied one by one, these two
// compute scores as well, of every other tile of keys. A block computes 64 rows, the queries of all heads one after another. A
// tile of keys is read from memory once, and serves as keys and as values in place. Work tiles and the merge of partial results
// are those of forward_split_wgmma.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/output_warpgroup.cuh"
#include "forward_mla_wgmma/score_warpgroup.cuh"
#include "forward_mla_wgmma/seesaw_warpgroup.cuh"
#include "forward_mla_wgmma/traits.cuh"
#include "mainloop/key_row_copies.cuh"
#include "mainloop/latent_row_copies.cuh"
#include "mainloop/panel_producer.cuh"
#include "mainloop/row_planner.cuh"
#include "mainloop/split_kv_producer.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/griddepcontrol.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/load_queries.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_mla_wgmma {

/// By one thread, before any other use; then a __syncthreads. Splits are told by the first key producer to all others;
/// queries come from the query producers, where there are some, by cp.async, and keys from the key producers.
template <class Traits>
JIT_DEVICE void init_pipelines(unsigned smem) {
  constexpr SmemLayout layout = Traits::layout;
  if constexpr (Traits::has_query_warps)
    init_pipeline(smem, layout.q, Traits::query_warps, Traits::score_warps);
  constexpr int readers = Traits::warps * (Traits::is_pair ? 2 : 1);  // those of both blocks
  init_pipeline(smem, layout.k, Traits::row_arrivals, readers);
  // mutate: FullWhenHalfOfTheRowsAreThere
  init_pipeline(smem, layout.v, Traits::row_arrivals, readers);
  if constexpr (!Traits::uses_tma) init_pipeline(smem, layout.plans, 1, Traits::copy_warps);
  init_pipeline(smem, layout.infos, 1, Traits::score_warps);
  init_pipeline(smem, layout.p, Traits::warps, Traits::seesaws ? Traits::warps : Traits::consumer_warps);
  init_split_pipeline<Traits>(smem, Traits::split_readers);
  fence_mbarrier_init();
}

/// The work of producer warp `warp`; `work` is that of the first one.
template <class Traits, class Work>
JIT_DEVICE void produce(const AttentionParams& params, const KernelMemory& memory, unsigned char* bytes,
                        unsigned smem, int warp, Work& work) {
  if constexpr (Traits::uses_tma) {
    if (warp == 0) {
      SplitKvProducer<Traits, PanelProducer<Traits, KernelMemory, RowPlace>>(params, memory, bytes, smem)
          .run(work);
      griddepcontrol_launch_dependents();
    } else {
      load_queries(params, SplitPipeline<Traits>(bytes, smem), QPipeline<Traits>(smem, Traits::layout.q));
    }
  } else if (warp == 0) {
    RowPlanner<Traits>(params, bytes, smem).run(work);
    griddepcontrol_launch_dependents();
  } else if constexpr (converts_latents<typename Traits::Config>) {
    copy_planned_rows<Traits, LatentRowCopies<Traits>>(params, smem, warp - 1);
  } else {
    copy_planned_rows<Traits, KeyRowCopies<Traits>>(params, smem, warp - 1);
  }
}

/// By all warps at their end: blocks of a pair read and write each other's memory until both have done all.
template <class Traits>
JIT_DEVICE void end_block() {
  if constexpr (!Traits::is_pair) return;
  __syncwarp();
  cluster_sync();  // mutate: BlocksEndBeforeTheirPeers
}

/// By consumer warps at their end.
template <class Config>
JIT_DEVICE void zero_padding_of_consumers(const AttentionParams& params, int warp) {
  using Traits = KernelTraits<Config>;
  constexpr int warps = Traits::consumer_warps;
  zero_padding<Config>(
      params, static_cast<int>(blockIdx.x) * warps + warp - Traits::first_consumer_thread / warp_size,
      static_cast<int>(gridDim.x) * warps);
}

/// The work of warp `warp` where consumers compute scores.
template <class Config, class Work>
JIT_DEVICE void seesaw(const AttentionParams& params, const KernelMemory& memory, unsigned char* bytes,
                       unsigned smem, int warp, Work& work) {
  using Traits = KernelTraits<Config>;
  if (warp < Traits::warps) {
    setmaxnreg_dec<Config::producer_registers>();
    return produce<Traits>(params, memory, bytes, smem, warp, work);
  }
  setmaxnreg_inc<Config::consumer_registers>();
  if (warp < 2 * Traits::warps) {
    SeesawWarpgroup<Config, 0>(params, memory.split_params, bytes, smem).run();
  } else {
    SeesawWarpgroup<Config, 1>(params, memory.split_params, bytes, smem).run();
  }
  zero_padding_of_consumers<Config>(params, warp);
}

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const KernelMemory& memory) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  const unsigned smem = smem_address(bytes);
  const int warp = uniform(warp_id());
  SplitTileScheduler<Config, Traits::tile_rows> work;
  griddepcontrol_wait();
  if (warp == 0) {
    work.begin(params, memory.split_params.known);
  } else if (threadIdx.x == warp_size) {
    init_pipelines<Traits>(smem);
    if (Traits::uses_tma) prefetch_tensor_map(memory.k);
  } else if (threadIdx.x >= Traits::first_consumer_thread) {
    clear_queries<Traits>(smem + Traits::layout.q.tiles,
                          static_cast<int>(threadIdx.x) - Traits::first_consumer_thread);
  }
  if constexpr (Traits::is_pair) {
    cluster_sync();  // mutate: BarriersOfThePeerAreNotThereYet
  } else {
    __syncthreads();
  }
  if constexpr (Traits::seesaws) {
    seesaw<Config>(params, memory, bytes, smem, warp, work);
  } else {
    switch (warp / Traits::warps) {
      case 0:
        setmaxnreg_dec<Config::producer_registers>();
        produce<Traits>(params, memory, bytes, smem, warp, work);
        return end_block<Traits>();
      case 1:
        setmaxnreg_of_launched<Config::score_registers, Traits::threads>();
        ScoreWarpgroup<Config>(params, bytes, smem).run();
        return end_block<Traits>();
      default:
        setmaxnreg_inc<Config::consumer_registers>();
        OutputWarpgroup<Config>(params, memory.split_params, bytes, smem, warp / Traits::warps - 2).run();
        zero_padding_of_consumers<Config>(params, warp);
        end_block<Traits>();
    }
  }
}

}  // namespace jit::forward_mla_wgmma
