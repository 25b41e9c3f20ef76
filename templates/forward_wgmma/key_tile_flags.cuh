// What the key producer tells the consumers of a wgmma kernel about a tile of keys, so that each leaves out
// what its own queries do not see.
#pragma once

#include "base/prelude.cuh"
#include "forward_wgmma/pipelines.cuh"
#include "forward_wgmma/traits.cuh"
#include "problem/functor.cuh"

namespace jit::forward_wgmma {

/// Flags of the tile info of the tile at which `tiles` stands, of a mask that is remembered. `q_begin` is the first
/// query of the work tile, `range_end` the end of the keys that all its queries see.
template <class Config, class Mask, class Tiles>
__device__ __forceinline__ int key_tile_flags(const Mask& mask, const Tiles& tiles, int q_begin, int seqlen_q,
                                              int range_end, int seqlen_kv) {
  using Traits = KernelTraits<Config>;
  int flags = tiles.has(1) ? 0 : key_info_all_last;
  if (!tiles.is_partial()) return flags;
  flags |= key_info_partial;  // mutate: NoInfoOfPartialTiles
  constexpr bool descending = Config::descending;
  // Of this tile in descending order, and of what comes behind it else: few are left to the end of the keys.
  const bool may_skip = range_end - tiles.key(descending ? 0 : 1) <= Traits::most_skipped * Config::tile_kv &&
                        (!descending || tiles.has(1));
  int skipping = 0;
#pragma unroll 1
  for (int consumer = 0; Traits::has_lower_tiles && consumer < Traits::consumers; ++consumer) {
    const int begin = q_begin + consumer * rows_per_warpgroup;  // mutate: UpperHalfOfTheFirstConsumer
    const int end = minimum(begin + rows_per_warpgroup, seqlen_q);
    const bool has_rows = begin < end;
    const ScoreTile upper{begin, end, tiles.key(0) + Traits::lower_keys,
                          minimum(tiles.key(0) + Config::tile_kv, seqlen_kv)};
    if (!has_rows || upper.k_begin >= upper.k_end || mask.drops(consumer, upper))
      flags |= key_info_lower << consumer;
    if (may_skip &&
        // mutate: LeavesOutATileOfKeys
        (!has_rows || mask.key_range_of(consumer, begin, end).end <= tiles.key(descending ? 0 : 1))) {
      flags |= (descending ? key_info_unseen : key_info_last) << consumer;
      ++skipping;
    }
  }
  // Somebody looks at each tile.
  if (descending && skipping == Traits::consumers) flags &= ~(7 * key_info_unseen);
  return flags;
}

}  // namespace jit::forward_wgmma
