// The tiles of keys that a block works at, one after another. The loader finds the next one, and tells the others by a
// note that goes with the keys:
//
//     loader    wait until nobody needs the keys that are there │ note and keys of the next tile │ its queries …
//     others    wait for the keys │ read the note │ the steps of the tile │ say that they are done
//
// So the next tile's keys and first queries come while gradients of this one leave.
#pragma once

#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/rings.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "ptx/atomic.cuh"

namespace jit::backward_wgmma {

inline constexpr int no_key_tile = -1;

/// Deals a launch's tiles in their order. By the loader's warp.
///
/// A block begins with the tile of its own index, and takes whichever is next when it has started its last load. Where
/// blocks wait for one another, each takes one tile alone, the next when it begins: a tile that was held back behind
/// another one could be waited for by that.
template <class Config>
class KeyTileDealer {
 public:
  __device__ __forceinline__ explicit KeyTileDealer(const TensorMaps& maps) : maps_(maps) {}

  __device__ __forceinline__ int first() const {
    return Config::deterministic ? take() : static_cast<int>(blockIdx.x);
  }
  __device__ __forceinline__ int next() const {
    if constexpr (Config::deterministic) return no_key_tile;
    const int tile = static_cast<int>(gridDim.x) + take();
    return tile < maps_.key_tiles ? tile : no_key_tile;
  }

 private:
  // Each block asks once in vain, or never, and begins without asking, or does not: as often as there are tiles.
  __device__ __forceinline__ int take() const {
    int taken = 0;
    if (lane_id() == 0)
      taken = static_cast<int>(atomic_inc_acq_rel(maps_.taken, static_cast<unsigned>(maps_.key_tiles) - 1));
    return uniform(taken);
  }

  const TensorMaps& maps_;
};

/// By the loader, when nobody reads the note of the tile before.
template <class Config>
__device__ __forceinline__ void store_key_note(const Rings<Config>& rings, int tile, bool has_queries) {
  store_shared(rings.key_note(), tile);
  store_shared(rings.key_note() + 4, has_queries);
}

/// Waits for the keys of the tile that is `round`-th of the block, and calls `f` with it, whether queries see it, and the
/// number of steps before it; `f` returns that of those behind it, in place of `step`. False, and nothing is called,
/// behind the last one. By whole warps, each of which says once for each tile that it needs neither note nor keys any
/// more (Rings::arrive_keys_empty).
template <class Config, class F>
__device__ __forceinline__ bool with_key_tile(const AttentionParams& params, const Rings<Config>& rings,
                                              unsigned round, unsigned& step, F f) {
  mbarrier_wait_parity(rings.keys_full(), round % 2);
  const int tile = load_shared_by_warp(rings.key_note());
  if (tile == no_key_tile) return false;
  const bool has_queries = load_shared_by_warp(rings.key_note() + 4) != 0;
  step = f(key_tile<Config>(params, tile), has_queries, step);
  return true;
}

/// The same for all tiles of the block.
template <class Config, class F>
__device__ __forceinline__ void for_each_key_tile(const AttentionParams& params, const Rings<Config>& rings,
                                                  F f) {
  unsigned step = 0;
#pragma unroll 1
  for (unsigned round = 0; with_key_tile<Config>(params, rings, round, step, f); ++round) {
  }
}

/// The same by those who add to dQ. Where blocks wait for one another there is one tile alone, and with a loop around it
/// ptxas spilled, the consumers' registers, too: up to 532 bytes.
template <class Config, class F>
__device__ __forceinline__ void for_each_added_key_tile(const AttentionParams& params,
                                                        const Rings<Config>& rings, F f) {
  if constexpr (Config::deterministic) {
    unsigned step = 0;
    with_key_tile<Config>(params, rings, 0, step, f);
  } else {
    for_each_key_tile<Config>(params, rings, f);
  }
}

}  // namespace jit::backward_wgmma
