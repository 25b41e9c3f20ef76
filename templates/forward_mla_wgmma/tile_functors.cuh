// The mask and score functors of a tile of scores, for the warpgroup that computed it.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "split_keys/row_functors.cuh"

namespace jit::forward_mla_wgmma {

/// `infos` stands at the tile, of which `keys` was read; the warp's scores begin at `warp_row`. Queries with lists see what
/// the words of these keep.
template <class Config, class Scores, class Infos, class Split>
JIT_DEVICE void apply_tile_functors(Scores& scores, const AttentionParams& params, const Infos& infos,
                                    const KeyTileInfo& keys, const Split& split, int warp_row) {
  const ScoreOrigin origin = score_origin(split, keys, warp_row);
  if constexpr (has_key_lists<Config>) {
    apply_list_functors<Config>(scores, params, split, origin, ListInWords<Config>{infos.list_words()});
  } else {
    apply_row_functors<Config>(scores, params, split, origin);
  }
}

}  // namespace jit::forward_mla_wgmma
