// Attention forward with TMA and wgmma, for sm_90a. A block is one warpgroup of producers, with a warp for keys
// and values, one for queries and one for outputs, and one to three warpgroups of consumers, which compute; where elements
// of q have 8 bits one more, which transposes values, and where those of k and v alone have, one that upcasts them,
// or two of the producers' warps that do. Sequences are of one length, or of lengths that only the device knows.
#pragma once

#include "base/params.cuh"
#include "forward_wgmma/consumer.cuh"
#include "forward_wgmma/key_word_ranges.cuh"
#include "forward_wgmma/load_keys.cuh"
#include "forward_wgmma/pipelines.cuh"
#include "forward_wgmma/producers.cuh"
#include "forward_wgmma/transpose_values.cuh"
#include "forward_wgmma/work_pipeline.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/griddepcontrol.cuh"
#include "scheduling/side_by_side.cuh"
#include "steps/convert_keys.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_wgmma {

/// The work of converters.
template <class Config>
__device__ __forceinline__ void convert(unsigned smem) {
  using Traits = KernelTraits<Config>;
  if constexpr (Traits::upcasts) {
    KeyConverter<ConvertedKeys<Config>>(smem, Traits::first_converter).run();
  } else {
    transpose_values<Config>(smem);
  }
}

template <class Config>
__device__ __forceinline__ void attention_forward(const AttentionParams& params, const TensorMaps& maps) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_pipelines<Config>(smem);
  // Of a call whose other requests another kernel computes, before it and behind it.
  constexpr bool is_between = Config::requests == Requests::many_queries;
  if constexpr (is_between) {
    start_beside_grids_before();
    griddepcontrol_launch_dependents();
  } else {
    griddepcontrol_wait();  // mutate: ForwardDoesNotWait
  }
  if constexpr (Traits::sums_by_products) write_ones<Config>(smem);  // mutate: NoOnes
  if constexpr (KeyWordRanges<Config>::is_used) KeyWordRanges<Config>(params, maps, smem).fill(maps);
  __syncthreads();  // mutate: NoBarrierBehindInit
  const auto clear_padding = [&] {
    if constexpr (Traits::has_lengths && !is_between)
      zero_padding<Config>(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  };
  if (threadIdx.x < warpgroup_size) {
    if constexpr (Config::producer_registers != 0) setmaxnreg_dec<Config::producer_registers>();
    switch (uniform(threadIdx.x / warp_size)) {
      case 0:
        load_keys<Config>(params, params.descale, maps, smem);
        if constexpr (is_between) end_behind_grids_before();
        if constexpr (Traits::has_spare_converters) clear_padding();
        return;
      case 1:
        return load_queries<Config>(params, maps, smem);
      case 2:
        if constexpr (!Traits::has_spare_converters) {
          if constexpr (Config::output != OutputPlace::direct) store_outputs<Config>(params, maps, smem);
          return;
        }
        // Else it does what warp 3 does.
      case 3:
        if constexpr (Traits::has_spare_converters) {
          return convert<Config>(smem);
        }
        if constexpr (Traits::has_value_producer) load_values<Config>(params, maps, smem);
        clear_padding();
        return;
    }
  } else if (Traits::has_converter_group && threadIdx.x >= Traits::threads - warpgroup_size) {
    if constexpr (Traits::has_converter_group) {
      if constexpr (Config::converter_registers != 0) setmaxnreg_dec<Config::converter_registers>();
      convert<Config>(smem);
    }
  } else {
    if constexpr (Config::consumer_registers != 0) setmaxnreg_inc<Config::consumer_registers>();
    Consumer<Config>(params, params.dropout, params.descale, maps, smem).run();
  }
}

}  // namespace jit::forward_wgmma
