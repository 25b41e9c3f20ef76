// The tiles of keys that a block works at, one after another. The producer finds the next one, and tells the others
// by a tile info that goes with the keys:
//
//     producer  wait until a place of keys is free │ tile info and keys of the next tile │ its queries …
//     others    wait for the keys │ read the tile info │ the steps of the tile │ say that they are done
//
// So the next tile's keys and first queries come while gradients of this one leave; with two places of keys
// (smem_layout.cuh) they come while this one is worked at.
#pragma once

#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "ptx/atomic.cuh"

namespace jit::backward_wgmma {

inline constexpr int no_key_tile = -1;

/// The number of those that asked before, of `all`, the last of whom leaves the counter at 0. By a whole warp.
__device__ __forceinline__ int take_number(unsigned* taken, int all) {
  int number = 0;
  if (lane_id() == 0) number = static_cast<int>(atomic_inc_acq_rel(taken, static_cast<unsigned>(all) - 1));
  return uniform(number);
}

/// Blocks, or pairs of them, that tiles are scheduled to, and which of them this is.
template <class Config>
__device__ __forceinline__ int takers() {
  return static_cast<int>(gridDim.x) / (Config::pair ? 2 : 1);
}
template <class Config>
__device__ __forceinline__ int own_taker() {
  return static_cast<int>(blockIdx.x) / (Config::pair ? 2 : 1);  // mutate: AllBeginWithTheFirstTile
}

/// Whose tile of keys is which.
enum class Schedule { any, shared_heads, drawn };
template <class Config>
inline constexpr Schedule schedule_of = !Config::deterministic      ? Schedule::any
                                        : has_entry_lengths<Config> ? Schedule::drawn
                                                                    : Schedule::shared_heads;

/// Schedules a launch's tiles in their order (tile_order.cuh). By the producer's warp.
///
/// A block begins with the one that its own index is the number of, and takes whichever is next when it has started its
/// last load.
template <class Config, Schedule scheduling = schedule_of<Config>>
class KeyTileScheduler {
 public:
  __device__ __forceinline__ KeyTileScheduler(const AttentionParams&, const TensorMaps& maps) : maps_(maps) {}

  __device__ __forceinline__ int first() const { return maps_.order.tile(own_taker<Config>()); }
  // Each block asks once in vain, or never: as often as there are tiles.
  __device__ __forceinline__ int next() const {
    const int number = takers<Config>() + take_number(maps_.taken, maps_.order.count());
    return number < maps_.order.count() ? maps_.order.tile(number) : no_key_tile;
  }

 private:
  const TensorMaps& maps_;
};

/// Where blocks wait for one another, as many as share a head have all of its keys, a tile each in a round, and then those
/// of another head. Their order is another one in each round, there and back, as a causal mask leaves more of the first
/// tiles. Blocks are numbered as they begin, so that those that share a head begin one after another.
template <class Config>
class KeyTileScheduler<Config, Schedule::shared_heads> {
 public:
  __device__ __forceinline__ KeyTileScheduler(const AttentionParams& params, const TensorMaps& maps)
      : maps_(maps), tiles_(key_tiles_of_head<Config>(params)) {}

  __device__ __forceinline__ int first() {
    const int number = take_number(maps_.taken, takers<Config>());
    head_ = number / maps_.turns.visits.sharers;
    place_ = number - head_ * maps_.turns.visits.sharers;
    round_begin_ = 0;
    return tile();
  }
  // In the last round of a head there may be no tile for all: who has none takes part without.
  __device__ __forceinline__ int next() {
    do {
      place_ = maps_.turns.visits.sharers - 1 - place_;
      round_begin_ += maps_.turns.visits.sharers;
      if (round_begin_ >= tiles_) {
        head_ += maps_.turns.visits.heads_at_once;
        round_begin_ = 0;
      }
    } while (round_begin_ + place_ >= tiles_);
    return tile();
  }

 private:
  __device__ __forceinline__ int tile() const {
    return head_ < maps_.order.heads ? head_ * tiles_ + round_begin_ + place_ : no_key_tile;
  }

  const TensorMaps& maps_;
  const int tiles_;  // of a head, at least as many as share it
  int head_;         // of the launch
  int place_;        // among those that share it
  int round_begin_;  // first tile of these
};

/// Where blocks wait for one another, and the host knows no lengths. All tiles are drawn, the first ones, too, and a block
/// waits for those alone that were drawn before its own: the one of the smallest number that is not done waits for nobody,
/// whatever there is room for.
template <class Config>
class KeyTileScheduler<Config, Schedule::drawn> {
 public:
  __device__ __forceinline__ KeyTileScheduler(const AttentionParams&, const TensorMaps& maps) : maps_(maps) {}

  __device__ __forceinline__ int first() const { return next(); }
  // Each block asks once in vain.
  __device__ __forceinline__ int next() const {
    const int tiles = maps_.order.count();
    const int number = take_number(maps_.taken, tiles + takers<Config>());
    return number < tiles ? maps_.order.tile(number) : no_key_tile;  // mutate: TheLastTilesAreDrawnFirst
  }

 private:
  const TensorMaps& maps_;
};

/// Schedules a block's tiles, one after another; of a pair the first block's scheduler does, and tells the second
/// one's.
template <class Config>
class BlockScheduler {
 public:
  __device__ __forceinline__ BlockScheduler(const AttentionParams& params, const TensorMaps& maps,
                                            unsigned smem)
      : scheduler_(params, maps), pipelines_(smem) {}

  __device__ __forceinline__ int first() {
    return agree([&] { return scheduler_.first(); });
  }
  __device__ __forceinline__ int next() {
    return agree([&] { return scheduler_.next(); });
  }

 private:
  template <class Take>
  __device__ __forceinline__ int agree(Take take) {
    if constexpr (Config::pair) {
      const unsigned round = round_++;
      if (pair_rank<Config>() != 0) return told_tile(pipelines_, round);
      const int tile = take();
      tell_tile(pipelines_, round, tile);
      return tile;
    } else {
      return take();
    }
  }

  KeyTileScheduler<Config> scheduler_;
  const Pipelines<Config> pipelines_;
  unsigned round_ = 0;
};

/// By the producer, when nobody reads the tile info that was there.
template <class Config>
__device__ __forceinline__ void store_key_info(const Pipelines<Config>& pipelines, unsigned round, int tile,
                                               bool has_queries) {
  store_shared(pipelines.key_tile_info(round), tile);
  store_shared(pipelines.key_tile_info(round) + 4, has_queries);
}

/// The same, of a tile that no query sees, or that none is left, when that is so. By a whole warp.
template <class Config>
__device__ __forceinline__ void tell_no_queries(const Pipelines<Config>& pipelines, unsigned round,
                                                int tile) {
  pipelines.keys.producer_acquire(round);
  if (lane_id() != 0) return;
  store_key_info(pipelines, round, tile, false);
  for (int i = 0; i < key_arrivals; ++i) mbarrier_arrive(pipelines.keys.full_at(round));
}

/// Waits for the keys of the tile that is `round`-th of the block, and calls `f` with it, whether queries see it, and the
/// number of steps before it; `f` returns that of those behind it, in place of `step`. False, and nothing is called,
/// behind the last one. By whole warps, each of which says once for each tile that it needs neither tile info nor
/// keys any more (Pipelines::keys).
template <class Config, class F>
__device__ __forceinline__ bool with_key_tile(const AttentionParams& params,
                                              const Pipelines<Config>& pipelines, unsigned round,
                                              unsigned& step, F f) {
  pipelines.keys.consumer_wait(round);                                   // mutate: NoWaitForKeys
  const int tile = load_shared_by_warp(pipelines.key_tile_info(round));  // mutate: TheInfoOfTheOtherTile
  if (tile == no_key_tile) return false;
  const bool has_queries = load_shared_by_warp(pipelines.key_tile_info(round) + 4) != 0;
  KeyTile<Config> keys = key_tile<Config>(params, tile);
  keys.round = round;
  step = f(keys, has_queries, step);
  return true;
}

/// The same for all tiles of the block. Returns the number of steps.
template <class Config, class F>
__device__ __forceinline__ unsigned for_each_key_tile(const AttentionParams& params,
                                                      const Pipelines<Config>& pipelines, F f) {
  unsigned step = 0;
#pragma unroll 1
  for (unsigned round = 0; with_key_tile<Config>(params, pipelines, round, step, f); ++round) {
  }
  return step;
}

}  // namespace jit::backward_wgmma
