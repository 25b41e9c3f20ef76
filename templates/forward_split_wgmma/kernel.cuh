// Attention forward for sequences of any lengths, with their keys split over blocks: decoding, verifying, chunks of
// prefill, one call for all of them. TMA and wgmma, for sm_90a.
//
// A block is one warpgroup of loaders, with a warp for keys and values and three for queries, and one or two warpgroups
// of consumers, which compute. A tile of rows holds the queries of all heads that share a KV head. Blocks stay, and take
// pieces of equal length of one line of work (scheduling/key_shares.cuh); what blocks have come to for a tile of rows
// that they share is merged by the one that has the first keys.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/consumer.cuh"
#include "forward_split_wgmma/load_keys.cuh"
#include "forward_split_wgmma/load_queries.cuh"
#include "forward_split_wgmma/rings.cuh"
#include "forward_split_wgmma/tensor_maps.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/griddepcontrol.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_wgmma {

template <class Config>
__device__ __forceinline__ void attention_forward(const AttentionParams& params, const KernelMemory& memory) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  const unsigned smem = smem_address(bytes);
  const int warp = uniform(warp_id());
  Work<Config> work;
  griddepcontrol_wait();
  if (warp == 0) {
    work.begin(params, memory.split.known);
  } else if (threadIdx.x == warp_size) {
    init_rings<Config>(smem);
    prefetch_tensor_map(memory.k);
    prefetch_tensor_map(memory.v);
  } else if (threadIdx.x >= warpgroup_size) {
    clear_queries<Config>(smem, static_cast<int>(threadIdx.x) - warpgroup_size);
  }
  __syncthreads();
  if (threadIdx.x < warpgroup_size) {
    if constexpr (Config::loader_registers != 0) setmaxnreg_dec<Config::loader_registers>();
    if (warp == 0) {
      KeyLoader<Config>(params, memory, bytes, smem).run(work);
      griddepcontrol_launch_dependents();
    } else {
      load_queries<Config>(params, bytes, smem);
    }
  } else {
    if constexpr (Config::consumer_registers != 0) setmaxnreg_inc<Config::consumer_registers>();
    Consumer<Config>(params, memory.split, bytes, smem).run();
    constexpr int warps = KernelTraits<Config>::consumer_warps;
    zero_padding<Config>(params, static_cast<int>(blockIdx.x) * warps + warp - warpgroup_size / warp_size,
                         static_cast<int>(gridDim.x) * warps);
  }
}

}  // namespace jit::forward_split_wgmma
