// Attention forward with TMA and wgmma, for sm_90a. A block has a producer warpgroup, with one warp for keys and
// values, one for queries and one that stores outputs, and one to three consumer warpgroups. With 8-bit q, another
// warpgroup transposes values. With 8-bit k and v but 16-bit q, another warpgroup, or two warps of the producer
// warpgroup, upcast them. Sequences have one length, or lengths that are known only on the device.
#pragma once

#include "base/params.cuh"
#include "epilogue/output_storer.cuh"
#include "forward_wgmma/consumer.cuh"
#include "forward_wgmma/traits.cuh"
#include "mainloop/convert_keys.cuh"
#include "mainloop/key_word_ranges.cuh"
#include "mainloop/load_keys.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/q_producer.cuh"
#include "mainloop/transpose_values.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/griddepcontrol.cuh"
#include "split_keys/span_memory.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_wgmma {

/// Initializes all pipelines. By one thread, before any other use; a __syncthreads must follow.
template <class Traits>
JIT_DEVICE void init_pipelines(unsigned smem) {
  constexpr SmemLayout layout = Traits::layout;
  constexpr int warps = warpgroup_size / warp_size;
  init_pipeline(smem, layout.q, 1, Traits::o_aliases_q ? 1 : warps);
  init_kv_pipelines<Traits>(smem);
  init_pipeline(smem, layout.o, warps, 1);
  init_pipeline(smem, layout.work, 1, Traits::work_readers);
  if constexpr (Traits::has_lengths) mbarrier_init(smem + layout.work_wanted, 1);
  fence_mbarrier_init();  // mutate: NoFenceBehindInit
}

/// Runs a converter warp: upcasts keys and values, or transposes values.
template <class Traits>
JIT_DEVICE void convert(unsigned smem) {
  if constexpr (Traits::upcasts) {
    KeyConverter<Traits>(smem, Traits::first_converter).run();
  } else {
    transpose_values<Traits>(smem);
  }
}

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const TensorMaps& maps,
                                  const SpanMemory& spans = {}) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_pipelines<Traits>(smem);
  // Whether other kernels, before and after this one, compute the other requests of the call.
  constexpr bool is_between = Config::requests == Requests::many_queries;
  if constexpr (is_between) {
    begin_concurrent_grid();
    griddepcontrol_launch_dependents();
  } else {
    griddepcontrol_wait();  // mutate: ForwardDoesNotWait
  }
  if constexpr (Traits::sums_by_products) write_ones<Traits>(smem);  // mutate: NoOnes
  if constexpr (KeyWordRanges<Traits>::is_used)
    KeyWordRanges<Traits>(params, maps.schedule, smem).fill(maps.schedule);
  __syncthreads();  // mutate: NoBarrierBehindInit
  const auto clear_padding = [&] {
    if constexpr (Traits::has_lengths && !is_between)
      zero_padding<Config>(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  };
  if (threadIdx.x < warpgroup_size) {
    if constexpr (Config::producer_registers != 0) setmaxnreg_dec<Config::producer_registers>();
    switch (uniform(threadIdx.x / warp_size)) {
      case 0:
        load_keys<Traits>(params, maps, smem);
        if constexpr (is_between) end_concurrent_grid();
        if constexpr (Traits::has_spare_converters) clear_padding();
        return;
      case 1:
        return load_queries<Traits>(params, maps, smem);
      case 2:
        if constexpr (!Traits::has_spare_converters) {
          if constexpr (Config::output != OutputPlace::direct) store_outputs<Traits>(params, maps, smem);
          return;
        }
        // With spare converters warp 2 falls through: it converts, as does warp 3.
      case 3:
        if constexpr (Traits::has_spare_converters) {
          return convert<Traits>(smem);
        }
        if constexpr (Traits::has_value_producer) load_values<Traits>(params, maps, smem);
        clear_padding();
        return;
    }
  } else if (Traits::has_converter_group && threadIdx.x >= Traits::threads - warpgroup_size) {
    if constexpr (Traits::has_converter_group) {
      if constexpr (Config::converter_registers != 0) setmaxnreg_dec<Config::converter_registers>();
      convert<Traits>(smem);
    }
  } else {
    if constexpr (Config::consumer_registers != 0) setmaxnreg_inc<Config::consumer_registers>();
    Consumer<Config>(params, params.dropout, params.descale, spans, smem).run();
  }
}

}  // namespace jit::forward_wgmma
