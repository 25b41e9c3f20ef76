// The kernel for Hopper (sm_90a), where TMA copies tiles: a producer warp loads tiles and plans the next steps, all
// other warps are consumers. Warps synchronize only at the end of a split:
//
//     producer    acquire a stage ─ its tile info ─ boxes of K and V [, rows of Q]
//     consumer    wait for tile n ─ S = Q Kᵀ ─ mask, softmax ─ O += P V ─ [merge, store] ─ release tile n
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/box_producer.cuh"
#include "forward_split_kv/results.cuh"
#include "forward_split_kv/traits.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/warpgroup.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/row_functors.cuh"
#include "split_keys/rows_apart.cuh"
#include "split_keys/split_dequant.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "split_keys/transposed_products.cuh"
#include "steps/softmax.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_kv {

/// The mainloop of a consumer warp, and its registers.
template <class Config>
class TmaConsumer {
  using Traits = KernelTraits<Config>;

 public:
  JIT_DEVICE TmaConsumer(const AttentionParams& params, const SplitParams& split_params, unsigned char* bytes,
                         unsigned smem)
      : params_(params),
        split_params_(split_params),
        bytes_(bytes),
        smem_(smem),
        scale_log2_(exponent_scale<typename Config::Score>(params.softmax_scale)),
        pipeline_(box_pipeline<Config>(smem)),
        splits_(bytes, smem),
        scales_(params) {}

  JIT_DEVICE void run() {
    output_.clear();
    while (splits_.take()) {
      signal_begun<Config>(split_params_, splits_.info(), static_cast<int>(threadIdx.x));
      bool begins = true;
      while (true) {
        pipeline_.consumer_wait();  // mutate: NoWaitForBoxes
        const KeyTileInfo info = load_key_info(key_tile_info<Traits>(smem_, pipeline_.stage()));
        if (begins) begin_split();
        begins = false;
        if ((info.flags & key_info_none) == 0) multiply(info);
        if ((info.flags & (key_info_none | key_info_end)) != 0) break;
        release_stage();
      }
      scales_.scale_output(output_);
      finish_split<Config>(params_, split_params_, splits_.info(), output_, state_, scale_log2_,
                           bytes_ + pipeline_.stage() * Traits::layout.stage_bytes);
      // mutate: ResultsWithoutProxyFence
      fence_proxy_async_shared();  // orders generic writes to this stage before later TMA writes
      release_stage();
      splits_.release();
    }
  }

 private:
  JIT_DEVICE void begin_split() {
    if (brings_queries<Config>(splits_.info())) q_.load(pipeline_.tile(), row_warp());
    scales_.begin_split(splits_.info(), q_);
  }

  JIT_DEVICE void multiply(const KeyTileInfo& info) {
    const auto& split = splits_.info();
    const unsigned stage = pipeline_.tile(), v = stage + Traits::layout.v;
    const int keys = split.kv.length - info.k_begin;
    if (keys < Config::tile_kv) clear_values(v, keys);  // mutate: RowsBehindTheSequenceInBoxes
    typename Traits::Scores scores;
    Products::multiply_qk(scores, q_, stage + Traits::layout.k + first_key() * Traits::KTile::row_bytes,
                          stage, first_key());
    scales_.scale_scores(scores, stage, first_key());
    apply_row_functors<Config>(scores, params_, split,
                               score_origin(split, info, row_warp() * Traits::warp_rows, first_key()));
    online_softmax<split_rescale<Config>>(scores, output_, state_, scale_log2_);
    scales_.scale_weights(scores, stage, first_key());
    Products::multiply_pv(output_, scores, v + first_key() * Traits::VTile::row_bytes, stage, first_key());
  }

  // Clears rows of values from `first` on, which are not the sequence's. By all consumers.
  static JIT_DEVICE void clear_values(unsigned tile, int first) {
    clear_rows<typename Traits::Tiles::VPanels, Traits::VTile::chunks, Traits::threads>(
        tile, first, static_cast<int>(threadIdx.x));
    bar_sync(Traits::consumers_barrier, Traits::threads);
  }

  JIT_DEVICE void release_stage() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

  static JIT_DEVICE int row_warp() { return warp_id() % Config::row_warps; }
  static JIT_DEVICE int first_key() { return warp_id() / Config::row_warps * Traits::warp_keys; }

  using Products = SplitProducts<Traits>;
  const AttentionParams& params_;
  const SplitParams& split_params_;
  unsigned char* const bytes_;
  const unsigned smem_;
  const float scale_log2_;
  BoxPipeline<Config> pipeline_;
  SplitPipeline<Traits> splits_;
  typename Products::Queries q_;
  SplitDequant<Traits, typename Products::Queries> scales_;
  typename Traits::Output output_;
  typename Traits::State state_;
};

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const KernelMemory& memory) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  const unsigned smem = smem_address(bytes);
  const int warp = uniform(warp_id());
  Work<Config> work;
  griddepcontrol_wait();
  if (warp == Traits::warps) {
    work.begin(params, memory.split_params.known);
  } else if (threadIdx.x == 0) {
    init_box_pipelines<Config>(smem);
    prefetch_tensor_map(memory.k);
    prefetch_tensor_map(memory.v);
  }
  __syncthreads();
  if (warp == Traits::warps) {
    BoxProducer<Config>(params, memory, bytes, smem).run(work);
    griddepcontrol_launch_dependents();
  } else {
    TmaConsumer<Config>(params, memory.split_params, bytes, smem).run();
    // Kernels of few rows have no register for `warp` through the mainloop.
    const int own = Traits::warp_rows < rows_per_warp ? reread_thread_index() / warp_size : warp;
    zero_padding<Config>(params, static_cast<int>(blockIdx.x) * Traits::warps + own,
                         static_cast<int>(gridDim.x) * Traits::warps);
  }
}

}  // namespace jit::forward_split_kv
