// The tiles of queries that a block visits with a tile of keys, and their order.
#pragma once

#include "backward/key_tile_scheduler.cuh"
#include "backward/query_tile.cuh"
#include "backward/turn_tiles.cuh"
#include "backward/turns.cuh"
#include "base/gradient_params.cuh"
#include "problem/key_memory.cuh"
#include "problem/positions.cuh"
#include "problem/query_tiles.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/relaxed.cuh"

namespace jit {

/// Visits that begin where other blocks are. Lists differ in length, so that blocks which all began with the first query would
/// soon be anywhere, and need all of Q, dO and dQ of a head at once, which L2 may not hold. A block counts its looks at a table
/// (query_tiles.cuh), of which each tile of keys takes as many: their sum tells where blocks are on average, and is 0 again after
/// the last look of a launch.
class SharedSweep {
 public:
  JIT_DEVICE SharedSweep(int tiles, int tiles_of_look, unsigned sweeps, unsigned takers, unsigned* looks)
      : looks_(looks) {
    const unsigned of_sweep = static_cast<unsigned>(rounded_up_quotient(tiles, tiles_of_look));
    last_ = sweeps * of_sweep - 1;
    const unsigned of_round = takers * of_sweep;
    // By one lane: others might read another number.
    const unsigned now = tiles == 0 ? 0 : uniform(load_relaxed(looks)) % of_round;
    visits_ = {tiles,
               static_cast<int>(static_cast<unsigned long long>(now) * static_cast<unsigned>(tiles) /
                                maximum(of_round, 1u)),
               1};
  }
  JIT_DEVICE int query_tile(int place) const { return visits_.query_tile(place); }
  JIT_DEVICE void look() const {
    if (lane_id() == 0) count_relaxed(looks_, last_);
  }

 private:
  unsigned* const looks_;
  unsigned last_;
  Visits visits_;
};

/// Whether blocks visit queries so. Nobody counts looks where tiles of keys have none, or unequally many.
template <class Config>
inline constexpr bool sweeps_together =
    !has_entry_lengths<Config> && !has_arrivals<Config> && !Config::pair &&
    schedule_of<Config> == Schedule::any && looks_ahead<Config>;

/// Tiles of queries of a head that ascend, or descend from the last one.
struct DirectedTiles {
  int tiles;
  bool ascends;
  JIT_DEVICE int query_tile(int place) const { return ascends ? place : tiles - 1 - place; }
};

/// The order in which a block visits the tiles of queries of a head. If all queries see all keys, each block begins at
/// its own diagonal, so that concurrent blocks add to different rows of dQ.
template <class Config>
JIT_DEVICE auto query_order(const AttentionParams& params, const KeySchedule& schedule,
                            const KeyTile<Config>& keys) {
  if constexpr (schedule_of<Config> == Schedule::drawn) {
    return DirectedTiles{query_tiles<Config>(params),
                         last_adds_first(params, schedule.turns, keys.batch, keys.kv_head)};
  } else if constexpr (schedule_of<Config> == Schedule::shared_heads) {
    return own_visits<Config>(params, schedule.turns.visits, keys);
  } else if constexpr (keeps_every_score<typename Config::Mask> && !has_entry_lengths<Config>) {
    const int tiles = query_tiles<Config>(params), begin = keys.k_begin / Config::tile_q;
    return Visits{tiles, begin < tiles || tiles == 0 ? begin : begin % tiles, 1};
  } else if constexpr (sweeps_together<Config>) {
    griddepcontrol_wait();  // counters may be those of a kernel before
    return SharedSweep(query_tiles<Config>(params), looks_at_once<Config> * warp_size,
                       static_cast<unsigned>(schedule.order.count()) * Config::gqa_ratio,
                       static_cast<unsigned>(takers<Config>()), schedule.taken + KeySchedule::looks_behind);
  } else {
    return AscendingTiles{};
  }
}

/// Ranges of the words of tiles of queries, written by prepare.cuh. Requires: griddepcontrol_wait.
template <class Config>
class QueryRanges {
 public:
  static constexpr bool are_known = true;
  using Record = typename TableMemory<AskedMaskOf<Config>>::Record;
  JIT_DEVICE QueryRanges(const AttentionParams& params, const GradientParams& gradients,
                         const SequencesOf<Config>& sequences, int batch)
      : ranges_(reinterpret_cast<const Record*>(gradients.query_ranges) +
                first_query_tile<Config>(params, sequences, batch, 0)) {}
  JIT_DEVICE Record of(int tile) const { return ranges_[tile]; }

 private:
  const Record* ranges_;  // of the batch entry
};

template <class Config>
JIT_DEVICE auto query_ranges(const AttentionParams& params, const GradientParams& gradients,
                             const SequencesOf<Config>& sequences, int batch) {
  if constexpr (reads_query_ranges<Config>) {
    griddepcontrol_wait();  // mutate: ProducerOfRanges
    return QueryRanges<Config>(params, gradients, sequences, batch);
  } else {
    return NoQueryRanges{};
  }
}

/// Whether blocks in any order visit a tile of queries for all heads of a group before the next one. Otherwise blocks with
/// different tiles of keys would drift apart over the heads, and read queries and add to dQ beyond the L2 cache.
template <class Config>
inline constexpr bool keeps_heads_together =
    Config::gqa_ratio > 1 && has_row_range<typename Config::Mask> &&
    !keeps_every_score<typename Config::Mask> && !has_positions<Config>;
template <class Config>
inline constexpr bool visits_heads_together =
    schedule_of<Config> == Schedule::drawn ? has_entry_lengths<Config> || Config::gqa_ratio > 1
    : schedule_of<Config> == Schedule::any ? keeps_heads_together<Config>
                                           : false;

/// The tiles of queries that see the keys of a tile before `k_end`, in the order in which the block visits them.
template <class Config>
JIT_DEVICE auto visited_queries(const AttentionParams& params, const GradientParams& gradients,
                                const KeySchedule& schedule, const SequencesOf<Config>& sequences,
                                const KeyTile<Config>& keys, int k_end) {
  const ScoreTile of_keys{0, 0, keys.k_begin, k_end};
  auto ranges = query_ranges<Config>(params, gradients, sequences, keys.batch);
  if constexpr (visits_heads_together<Config>) {
    const bool ascends = schedule_of<Config> == Schedule::drawn &&
                         last_adds_first(params, schedule.turns, keys.batch, keys.kv_head);
    return TurnTiles<Config, decltype(ranges)>(sequences, keys.batch, keys.kv_head, of_keys, ascends, ranges);
  } else {
    auto order = query_order<Config>(params, schedule, keys);
    return QueryTiles<Config, 1, decltype(order), decltype(ranges)>(sequences, keys.batch, keys.kv_head,
                                                                    of_keys, order, ranges);
  }
}

}  // namespace jit
