// Attention forward for sequences of any lengths, with their keys split over blocks (split-KV). One call serves
// decoding, verification of drafts and chunked prefill. TMA and wgmma, for sm_90a.
//
// A block has a producer warpgroup, with a warp for keys and values and three for queries, and one or two consumer
// warpgroups, which compute; a further warpgroup converts 8-bit keys and values to 16 bits (mainloop/convert_keys.cuh).
// A tile of rows holds the queries of all heads that share a KV head. Blocks are persistent and take pieces of equal
// length of one tile space of work (scheduling/key_shares.cuh). Partial results of a tile of rows that several blocks
// share are merged by the block with the first keys, or by all of them (split_keys/end_split.cuh).
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/consumer.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "mainloop/convert_keys.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/split_kv_producer.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/griddepcontrol.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/load_queries.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_wgmma {

/// Initializes all pipelines. By one thread, before any other use; a __syncthreads must follow. The key producer passes
/// splits to query producers and consumers; query producers load queries by cp.async.
template <class Traits>
JIT_DEVICE void init_pipelines(unsigned smem) {
  init_pipeline(smem, Traits::layout.q, Traits::query_warps, Traits::consumer_warps);
  init_kv_pipelines<Traits>(smem);
  init_split_pipeline<Traits>(smem, Traits::query_warps + Traits::consumer_warps);
  fence_mbarrier_init();
}

/// Begins the grid, before the first read. If another kernel computes the requests of many queries, it runs between two
/// launches of this one. None of the three reads the output of another one, except for partial results that the two
/// launches exchange. So the first launch lets the next one start at once.
template <class Config>
JIT_DEVICE void begin_grid(const SplitParams& split_params) {
  if (Config::requests == Requests::few_queries && split_params.blocks_before != 0)
    return begin_concurrent_grid();
  griddepcontrol_wait();  // mutate: SplitDoesNotWait
  if constexpr (Config::requests == Requests::few_queries) griddepcontrol_launch_dependents();
}

/// Ends the grid. Called when the block has found all of its work.
template <class Config>
JIT_DEVICE void end_grid(const SplitParams& split_params) {
  griddepcontrol_launch_dependents();
  if (Config::requests == Requests::few_queries && split_params.blocks_before != 0) end_concurrent_grid();
}

/// Whether the thread belongs to the converter warpgroup.
template <class Config>
JIT_DEVICE bool converts() {
  using Traits = KernelTraits<Config>;
  return Traits::upcasts && threadIdx.x >= warpgroup_size + Traits::consumer_threads;
}

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const KernelMemory& memory) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  const unsigned smem = smem_address(bytes);
  const int warp = uniform(warp_id());
  SplitTileScheduler<Config, Traits::tile_rows> work;
  begin_grid<Config>(memory.split_params);
  if (warp == 0) {
    work.enter_tile_space(memory.split_params);
    work.begin(params, memory.split_params.known);
  } else if (threadIdx.x == warp_size) {
    init_pipelines<Traits>(smem);
    prefetch_tensor_map(memory.k);
    prefetch_tensor_map(memory.v);
  } else if (threadIdx.x >= warpgroup_size && !converts<Config>()) {
    clear_queries<Traits>(smem + Traits::layout.q.tiles, static_cast<int>(threadIdx.x) - warpgroup_size);
  }
  __syncthreads();
  // Branches on the warp's index: from thread indices the compiler could not tell that warps do not diverge, and would
  // keep the addresses of products in registers of each lane.
  if (warp < warpgroup_size / warp_size) {
    if constexpr (Config::producer_registers != 0) setmaxnreg_dec<Config::producer_registers>();
    if (warp == 0) {
      SplitKvProducer<Traits>(params, memory, bytes, smem).run(work);
      end_grid<Config>(memory.split_params);
    } else {
      load_queries(params, SplitPipeline<Traits>(bytes, smem), QPipeline<Traits>(smem, Traits::layout.q));
    }
  } else if (converts<Config>()) {
    if constexpr (Traits::upcasts) {
      setmaxnreg_dec<Config::converter_registers>();
      KeyConverter<Traits>(smem, 0).run();
    }
  } else {
    if constexpr (Config::consumer_registers != 0) setmaxnreg_inc<Config::consumer_registers>();
    Consumer<Config>(params, memory.split_params, bytes, smem).run();
    constexpr int warps = Traits::consumer_warps;
    TileSpaceBlockOf<Config> place;
    place.enter_tile_space(memory.split_params);
    zero_padding<Config>(params, place.index() * warps + warp - warpgroup_size / warp_size,
                         place.blocks() * warps);
  }
}

}  // namespace jit::forward_split_wgmma
