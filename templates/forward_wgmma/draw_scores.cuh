// The warpgroup that draws for dropout, a tile of keys ahead of the consumers: products leave these no time in which
// they could draw unseen. Of each score it leaves a bit, in words that lie in the order in which consumers have scores.
//
//     drawn tile    64 keys      │ consumer 0, warp 0: 32 words │ warp 1 │ … │ consumer 1, warp 0 │ …
//                   64 further   │ …
//
// Each of its warps draws for one warp of each consumer.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/rings.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/traits.cuh"
#include "forward_wgmma/work.cuh"
#include "forward_wgmma/work_ring.cuh"
#include "ptx/mbarrier.cuh"
#include "steps/dropout.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

/// Draws for the tile whose first query and key these are, and leaves a warp's words of it at shared address `tile`.
template <class Config>
__device__ __forceinline__ void draw_tile(const DropoutHead& head, int q_begin, int k_begin, unsigned tile) {
  using Traits = KernelTraits<Config>;
  using Drawn = typename Traits::Drawn;
  constexpr int whole_words = Drawn::last_groups == 2 ? Drawn::words : Drawn::words - 1;
  const int lane = lane_id(), warp = threadIdx.x % warpgroup_size / warp_size;
#pragma unroll 1
  for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
    const int q = q_begin + consumer * rows_per_warpgroup + warp * dropout_group_queries;
    const unsigned own = tile + (consumer * warpgroup_size + warp * warp_size + lane) * 4;
    const auto leave = [&](int w, unsigned bits) {
      store_shared(own + w * Traits::drawn_bytes_of_word, static_cast<int>(bits));
    };
    const auto key = [&](int w) { return k_begin + w * Drawn::keys_of_word; };
    // What a key has alike for all consumers is kept in registers, which there are enough of for two words.
#pragma unroll(whole_words == 2 ? 2 : 1)
    for (int w = 0; w < whole_words; ++w) leave(w, head.kept_of_keys<2>(q, key(w), lane));
    if constexpr (whole_words < Drawn::words)
      leave(whole_words, head.kept_of_keys<1>(q, key(whole_words), lane));
  }
}

/// Goes through the tiles of keys as the key loader notes them. By a warpgroup.
template <class Config>
__device__ __forceinline__ void draw_scores(const AttentionParams& params, const DropoutParams& dropout,
                                            const TensorMaps& maps, unsigned smem) {
  using Traits = KernelTraits<Config>;
  const DropoutSeed seed(dropout);
  WorkRing<Config> work(params, maps, smem);
  Rings<Config> rings(smem);
  for (Work<Config> own = work.take(); is_work(own); own = work.take()) {
    work.release();
    const DropoutHead head(seed, params.heads_q, own.batch, own.head);
    int flags = 0;
    while ((flags & (key_note_end | key_note_none)) == 0) {
      rings.k.wait_full();
      const unsigned note = key_note<Config>(smem, rings.k.stage());
      const int k_begin = load_key_note_begin(note);
      flags = load_key_note_flags(note);
      const int stage = rings.k.stage();
      if ((flags & key_note_none) == 0)
        draw_tile<Config>(head, own.q_begin, k_begin, drawn_scores_of<Config>(smem, stage));
      // Also where there is nothing to draw: of each stage of K in turn consumers ask for one round.
      mbarrier_arrive(smem + Traits::layout.drawn_full + stage * 8);
      // Behind it, so that nobody asks for a round that is two ahead of what was drawn.
      rings.k.arrive_empty();
      rings.k.advance();
    }
  }
}

}  // namespace jit::forward_wgmma
