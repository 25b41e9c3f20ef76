// The tile scheduler of backward: the next tile of keys of a block, or of a pair of blocks.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/key_waits.cuh"
#include "backward/tensor_maps.cuh"
#include "ptx/atomic.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The number of those that asked before, of `all`, the last of whom leaves the counter at 0. By a whole warp.
JIT_DEVICE int take_number(unsigned* taken, int all) {
  int number = 0;
  if (lane_id() == 0) number = static_cast<int>(atomic_inc_acq_rel(taken, static_cast<unsigned>(all) - 1));
  return uniform(number);
}

/// Blocks, or pairs of them, that tiles are scheduled to, and which of them this is.
template <class Config>
JIT_DEVICE int takers() {
  return static_cast<int>(gridDim.x) / (Config::pair ? 2 : 1);
}
template <class Config>
JIT_DEVICE int own_taker() {
  return static_cast<int>(blockIdx.x) / (Config::pair ? 2 : 1);  // mutate: AllBeginWithTheFirstTile
}

/// Whose tile of keys is which.
enum class Schedule { any, shared_heads, drawn };
template <class Config>
inline constexpr Schedule schedule_of = !Config::deterministic      ? Schedule::any
                                        : has_entry_lengths<Config> ? Schedule::drawn
                                                                    : Schedule::shared_heads;

/// Schedules a launch's tiles in their order (tensor_maps.cuh): a block takes whichever is next when it has started its last
/// load. By the producer's warp.
///
/// A block begins with the one that its own index is the number of. But where blocks wait for one another, and the host knows
/// no lengths, all tiles are drawn, the first ones, too, and a block waits for those alone that were drawn before its own: the
/// unfinished one with the smallest number waits for no other, however many are resident.
template <class Config, Schedule scheduling = schedule_of<Config>>
class KeyTileScheduler {
  static constexpr bool draws_first = scheduling == Schedule::drawn;

 public:
  JIT_DEVICE KeyTileScheduler(const AttentionParams& params, const KeySchedule& schedule)
      : schedule_(schedule), tiles_(params, schedule.order) {}

  JIT_DEVICE int first() const {
    if constexpr (draws_first) return next();
    if constexpr (has_arrivals<Config>) {  // fewer tiles than the host knows
      if (own_taker<Config>() >= tiles_.count()) return no_key_tile;
    }
    return tiles_.tile(own_taker<Config>());
  }
  // Each block asks once without a result, or never, where there are as many tiles as blocks.
  JIT_DEVICE int next() const {
    const int tiles = tiles_.count(), given = draws_first ? 0 : takers<Config>();
    const int number = given + take_number(schedule_.taken, tiles + takers<Config>() - given);
    return number < tiles ? tiles_.tile(number) : no_key_tile;  // mutate: TheLastTilesAreDrawnFirst
  }

 private:
  const KeySchedule& schedule_;
  const TakenTiles<Config> tiles_;
};

/// Where blocks wait for one another, as many as share a head have all of its keys, a tile each in a round, and then those
/// of another head. Their order is another one in each round, there and back, as a causal mask leaves more of the first
/// tiles. Blocks are numbered as they begin, so that those that share a head begin one after another.
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
  // In the last round of a head there may be no tile for all: who has none takes part without.
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
  const int tiles_;  // of a head, at least as many as share it
  int head_;         // of the launch
  int place_;        // among those that share it
  int round_begin_;  // first tile of these
};

}  // namespace jit
