// Attention forward for sequences of any lengths, with their keys split over blocks (split-KV). One call serves
// decoding, verification of drafts and chunked prefill. cp.async, ldmatrix and mma.sync: runs on every GPU from sm_80
// on. On Hopper, where TMA copies tiles, box_kernel.cuh replaces this file.
//
// A tile of rows holds the queries of all heads that share a KV head. Each of key_warps warps multiplies its own keys
// of a tile, with a softmax of its own over them; the partial results of warps and blocks are merged at the end
// (results.cuh). Blocks are persistent and take pieces of equal length of one tile space of work
// (scheduling/key_shares.cuh). The first warp looks ahead and writes tile infos for all (step_list.cuh). Loads run
// through a pipeline of stages, across work tiles:
//
//     wait for tile n ─ barrier ─ load tile n + stages − 1 ─ S = Q Kᵀ ─ mask, softmax ─ O += P V ─ [merge, store]
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/box_kernel.cuh"
#include "forward_split_kv/loads.cuh"
#include "forward_split_kv/results.cuh"
#include "forward_split_kv/step_list.cuh"
#include "forward_split_kv/traits.cuh"
#include "mainloop/kv_row_copies.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/cp_async.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/row_functors.cuh"
#include "split_keys/rows_apart.cuh"
#include "split_keys/split_dequant.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/transposed_products.cuh"
#include "steps/softmax.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_kv {

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const SplitParams& split_params) {
  using Traits = KernelTraits<Config>;
  using Products = SplitProducts<Traits>;
  constexpr int loads_ahead = Config::stages - 1, pages_ahead = Config::stages;
  extern __shared__ __align__(128) unsigned char bytes[];
  const Smem<Config> smem{bytes};
  const bool loads_first = warp_id() < (Traits::warps + 1) / 2;
  const int row_warp = warp_id() % Config::row_warps, key_warp = Traits::group_warp() / Config::row_warps;

  if (warp_id() == 0) {
    StepList<Config> steps{};
    steps.work.begin(params, split_params.known);
    smem.clear_steps();  // the compiler reads 16 bytes at once, some beyond the list
    __syncwarp();
    if (lane_id() == 0) smem.steps() = steps;
    __syncwarp();
  }
  typename Products::Queries q;
  SplitDequant<Traits, typename Products::Queries> scales(params);
  typename Traits::Output output = {};
  typename Traits::State state;
  const float scale_log2 = exponent_scale<typename Config::Score>(params.softmax_scale);

  // Negative steps run the same code as a prologue: code that exists once is fetched once.
#pragma unroll 1
  for (int step = -Traits::steps_ahead;; ++step) {
    PageReader<Config, Traits::threads, Traits::tile_rows> pages;
    if (step >= 0) cp_async_wait_group<loads_ahead - 1>();  // mutate: NoWaitForTiles
    __syncthreads();
    StepInfo info{};
    if (step >= 0) info = smem.info(step);
    if (info.flags & step_is_end) break;
    const bool has_load_ahead = step + loads_ahead >= 0 && step > -Traits::steps_ahead;
    const bool has_pages_ahead = Traits::has_pages && step + pages_ahead >= 0 && step > -Traits::steps_ahead;
    if (has_pages_ahead) {
      const StepInfo ahead = smem.info(step + pages_ahead);
      pages.ask(params, smem.splits()[ahead.split], ahead.k_begin, (ahead.flags & step_has_tile) != 0);
    }

    const Info<Config>& split = smem.splits()[info.split];
    if (info.flags & step_begins) signal_begun<Config>(split_params, split, static_cast<int>(threadIdx.x));
    unsigned char* const stage = smem.stage(maximum(step, 0));
    // Half of the warps load while the others multiply, because issuing loads stalls a warp.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == loads_first) {
        if (has_load_ahead) load_step(params, smem, step + loads_ahead);
        continue;
      }
      if ((info.flags & step_has_tile) == 0) continue;
      if (info.flags & step_begins) {
        q.load(smem_address(stage), row_warp);
        scales.begin_split(split, q);
      } else {
        q.go_on(smem_address(stage), row_warp);  // mutate: QueriesOfTheStageBefore
      }
      const int first_key = key_warp * Traits::warp_keys;
      typename Traits::Scores scores;
      Products::multiply_qk(scores, q,
                            smem_address(stage) + Traits::layout.k + first_key * Traits::KTile::row_bytes,
                            smem_address(stage), first_key);
      scales.scale_scores(scores, smem_address(stage), first_key);
      apply_row_functors<Config>(scores, params, split,
                                 {.row = split.row_begin + row_warp * Traits::warp_rows,
                                  .key = info.k_begin + first_key,
                                  .is_partial = (info.flags & step_is_partial) != 0});
      online_softmax<split_rescale<Config>>(scores, output, state, scale_log2);
      scales.scale_weights(scores, smem_address(stage), first_key);
      Products::multiply_pv(output, scores,
                            smem_address(stage) + Traits::layout.v + first_key * Traits::VTile::row_bytes +
                                Traits::first_column() * ElementTraits<KvElement<Config>>::bytes,
                            smem_address(stage), first_key);
    }
    if (has_pages_ahead) pages.put(smem.pages(step + pages_ahead));
    if (info.flags & step_ends) {
      scales.scale_output(output);
      finish_split<Config>(params, split_params, split, output, state, scale_log2, stage);
    }
    if (warp_id() == 0) next_step(params, smem.steps(), smem.info(step + Traits::steps_ahead), smem.splits());
  }
  zero_padding<Config>(params, static_cast<int>(blockIdx.x) * Traits::warps + warp_id(),
                       static_cast<int>(gridDim.x) * Traits::warps);
}

}  // namespace jit::forward_split_kv
