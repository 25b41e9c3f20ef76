// Attention forward with TMA and wgmma, for sm_90a. A block is one warpgroup of loaders, with a warp for keys
// and values, one for queries and one for outputs, and one to three warpgroups of consumers, which compute.
#pragma once

#include "forward_consumer_sm90.cuh"
#include "forward_loaders_sm90.cuh"
#include "forward_rings_sm90.cuh"
#include "key_word_ranges.cuh"
#include "masks.cuh"
#include "params.cuh"
#include "ptx/griddepcontrol.cuh"
#include "scores.cuh"
#include "tile_copy.cuh"
#include "work_ring.cuh"

namespace jit {

template <class Config>
__device__ __forceinline__ void attention_forward(const AttentionParams& params, const TensorMaps& maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_rings<Config>(smem);
  if constexpr (Config::dependent_launch) griddepcontrol_wait();
  if constexpr (KeyWordRanges<Config>::is_used) KeyWordRanges<Config>(params, maps, smem).fill(maps);
  __syncthreads();
  if (threadIdx.x < warpgroup_size) {
    if constexpr (Config::producer_registers != 0) setmaxnreg_dec<Config::producer_registers>();
    switch (uniform(threadIdx.x / warp_size)) {
      case 0:
        return load_keys<Config>(params, maps, smem);
      case 1:
        return load_queries<Config>(params, maps, smem);
      case 2:
        if constexpr (!Config::direct_o) store_outputs<Config>(params, maps, smem);
        return;
    }
  } else {
    if constexpr (Config::consumer_registers != 0) setmaxnreg_inc<Config::consumer_registers>();
    ForwardConsumer<Config>(params, maps, smem).run();
  }
}

}  // namespace jit
