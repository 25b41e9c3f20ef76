// The tile scheduler of backward kernels: the next tile of keys of a block, or of a pair of blocks.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/key_waits.cuh"
#include "backward/tensor_maps.cuh"
#include "backward/turns.cuh"
#include "ptx/atomic.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The number of earlier requests, out of `all`; the last request resets the counter to 0. By a whole warp.
JIT_DEVICE int take_number(unsigned* taken, int all) {
  int number = 0;
  if (lane_id() == 0) number = static_cast<int>(atomic_inc_acq_rel(taken, static_cast<unsigned>(all) - 1));
  return uniform(number);
}

/// The number of blocks, or pairs of blocks, that take tiles, and this block's index among them.
template <class Config>
JIT_DEVICE int takers() {
  return static_cast<int>(gridDim.x) / (Config::pair ? 2 : 1);
}
template <class Config>
JIT_DEVICE int own_taker() {
  return static_cast<int>(blockIdx.x) / (Config::pair ? 2 : 1);  // mutate: AllBeginWithTheFirstTile
}

/// Schedules a launch's tiles dynamically, in order (tensor_maps.cuh): a block takes the next tile when it has started
/// its last load. By the producer warp.
///
/// A block begins with the tile of its own index. But if blocks draw tiles and wait for each other, all are drawn from
/// the counter, including the first ones, and a block waits only for tiles with smaller numbers: the smallest unfinished
/// one waits for none, however many blocks are resident.
template <class Config, Schedule scheduling = schedule_of<Config>>
class KeyTileScheduler {
  static constexpr bool draws_first = scheduling == Schedule::drawn;

 public:
  JIT_DEVICE KeyTileScheduler(const AttentionParams& params, const KeySchedule& schedule)
      : params_(params), schedule_(schedule), tiles_(params, schedule.order) {}

  JIT_DEVICE int first() const {
    if constexpr (draws_first) return next();
    if constexpr (has_arrivals<Config>) {  // fewer tiles than the host knows
      if (own_taker<Config>() >= tiles_.count()) return no_key_tile;
    }
    return tiles_.tile(own_taker<Config>());
  }
  // Each block makes one request without a result, or none if there are as many tiles as blocks.
  JIT_DEVICE int next() const {
    const int tiles = tiles_.count(), given = draws_first ? 0 : takers<Config>();
    const int number = given + take_number(schedule_.taken, tiles + takers<Config>() - given);
    return number < tiles ? tile(number) : no_key_tile;  // mutate: TheLastTilesAreDrawnFirst
  }

 private:
  JIT_DEVICE int tile(int number) const {
    if constexpr (draws_first) {
      const int from_last = schedule_.turns.heads_from_last - params_.batch_begin * params_.heads_kv;
      return DrawnOrder{schedule_.order, maximum(0, minimum(from_last, schedule_.order.heads))}.tile(number);
    } else {
      return tiles_.tile(number);
    }
  }

  const AttentionParams& params_;
  const KeySchedule& schedule_;
  const TakenTiles<Config> tiles_;
};

/// Static schedule for blocks that wait for each other: `sharers` blocks take all keys of a head, a tile each per
/// round, then those of another head. Their order is reversed in every other round, since a causal mask leaves more
/// queries to the first tiles. Blocks are numbered as they begin, so that blocks of a head begin one after another.
template <class Config>
class KeyTileScheduler<Config, Schedule::shared_heads> {
 public:
  JIT_DEVICE KeyTileScheduler(const AttentionParams& params, const KeySchedule& schedule)
      : schedule_(schedule), tiles_(key_tiles_of_head<Config>(params)) {}

  JIT_DEVICE int first() {
    const int number = take_number(schedule_.taken, takers<Config>());
    head_ = number / schedule_.turns.visits.sharers;
    place_ = number - head_ * schedule_.turns.visits.sharers;
    round_begin_ = 0;
    return tile();
  }
  // In the last round of a head there may be fewer tiles than blocks; blocks without a tile skip the round.
  JIT_DEVICE int next() {
    do {
      place_ = schedule_.turns.visits.sharers - 1 - place_;
      round_begin_ += schedule_.turns.visits.sharers;
      if (round_begin_ >= tiles_) {
        head_ += schedule_.turns.visits.heads_at_once;
        round_begin_ = 0;
      }
    } while (round_begin_ + place_ >= tiles_);
    return tile();
  }

 private:
  JIT_DEVICE int tile() const {
    return head_ < schedule_.order.heads ? head_ * tiles_ + round_begin_ + place_ : no_key_tile;
  }

  const KeySchedule& schedule_;
  const int tiles_;  // tiles of a head, at least as many as blocks that share it
  int head_;         // current head, counted in the launch
  int place_;        // index among the blocks that share the head
  int round_begin_;  // first tile of the round
};

}  // namespace jit
