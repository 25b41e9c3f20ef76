// Tile schedulers of persistent kernels: they give a block its next work tile from the list of all tiles
// (scheduling/work_tiles.cuh).
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/warp_sum.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/atomic.cuh"
#include "scheduling/block_pair.cuh"
#include "scheduling/tile_sequences.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

template <class Config>
JIT_DEVICE WorkTile work_tile(const AttentionParams& params, const TileSchedule& schedule, int index) {
  using Order = TilesByWork<typename Config::Mask, Config::tile_q>;
  WorkTile work = work_tile<Config::tile_q>(schedule.order, index, params.heads_q, params.batch_begin);
  if constexpr (Order::are_known)
    work.q_begin =
        Order::tile(context_of<Config>(params, work), work.q_begin / Config::tile_q) * Config::tile_q;
  return work;
}

/// Schedules the list of work tiles dynamically: a block takes the next tile from a counter in global memory. The
/// counter is 0 before and after a launch, since the last of all requests resets it.
template <class Config>
class TileScheduler {
 public:
  JIT_DEVICE TileScheduler(const AttentionParams& params, const TileSchedule& schedule)
      : params_(params), schedule_(schedule) {}

  /// The block's tile; no_work when none is left.
  JIT_DEVICE WorkTile tile() const {
    return index_ < schedule_.order.tiles() ? work_tile<Config>(params_, schedule_, index_) : no_work;
  }

  /// Requests the next tile, once per tile; `answer` waits for it. By a whole warp.
  JIT_DEVICE void ask() {
    // `counter` is never null. The test keeps its address out of the registers of the producer, which has few.
    if (!pairs_blocks<Config> && schedule_.counter != nullptr && lane_id() == 0)
      taken_ = atomicAdd(schedule_.counter, 1);
  }
  JIT_DEVICE void answer() {
    if constexpr (pairs_blocks<Config>) {
      index_ += places_at_a_time<Config>();  // mutate: PairStays
      return;
    }
    // mutate: CounterIsSetBack
    if (lane_id() == 0 && taken_ == schedule_.order.tiles() - 1) store_relaxed(schedule_.counter, 0);
    index_ = static_cast<int>(gridDim.x) + uniform(taken_);  // mutate: ForgetsTheTileAfterTheFirst
  }

 private:
  const AttentionParams& params_;
  const TileSchedule& schedule_;
  int index_ = first_place<Config>();
  int taken_ = 0;
};

// The list of work tiles of sequences whose lengths are known only on the device is WorkOrder's, sequence by sequence.
// It has two parts, so that blocks end at about the same time: first the long tiles of each sequence, which see more
// than a quarter of the keys of the longest sequence, then all others. Each block finds its places in the list itself,
// testing 32 sequences at a time.

/// Schedules this list by the same counter as TileScheduler. By a whole warp; all lanes return the same results.
template <class Config>
class VarlenTileScheduler : PlaceInTurn<Config> {
 public:
  /// Finds the block's first tile.
  JIT_DEVICE VarlenTileScheduler(const AttentionParams& params, const TileSchedule& schedule)
      : params_(params), schedule_(schedule) {
    int most = 0;
#pragma unroll 1
    for (int batch = lane_id(); batch < params.batch; batch += warp_size) {
      own_ = sequence(batch);
      if (own_.q.length > 0) most = maximum(most, own_.kv.length);
    }
    most = __reduce_max_sync(full_warp, most);
    few_keys_ = most <= few_tokens ? 0 : most / 4;
    if (params.batch > warp_size) look_at(0);
    find(first_place<Config>());
  }

  /// The block's tile; no work when none is left.
  JIT_DEVICE const SequenceTile& tile() const { return tile_; }

  /// Goes on to the next tile. Requires: the last one was work.
  JIT_DEVICE void next() {
    if constexpr (pairs_blocks<Config>) {
      find(this->place += places_at_a_time<Config>());
      return;
    }
    const int taken = uniform(lane_id() == 0 ? atomicAdd(schedule_.counter, 1) : 0);
    find(static_cast<int>(gridDim.x) + taken);
    // Each tile's block makes one request.
    // mutate: SchedulerSetsCounterBack
    if (!is_work(tile_) && lane_id() == 0 && taken == begin_ - 1) store_relaxed(schedule_.counter, 0);
  }

 private:
  // Goes on to a later place in the list. After the last place, `begin_` is the number of all tiles.
  JIT_DEVICE void find(int place) {
#pragma unroll 1
    while (place >= sequence_end_ && part_ < parts) {
      const WorkOrder order = order_of(own_);
      const int count = part_ == 0 ? order.long_tiles() : order.tiles() - order.long_tiles();
      const int end = begin_ + sum_up_to_lane(count);
      const unsigned behind = __ballot_sync(full_warp, end > place);
      if (behind != 0) {
        enter(__ffs(static_cast<int>(behind)) - 1, end - count, end);
        break;
      }
      begin_ = __shfl_sync(full_warp, end, warp_size - 1);
      const bool is_last = first_ + warp_size >= params_.batch;
      if (is_last) ++part_;
      // mutate: OneSequenceOf32Less
      if (params_.batch > warp_size) look_at(is_last ? 0 : first_ + warp_size);
    }
    if (part_ == parts) {
      tile_.q_begin = -1;
      return;
    }
    const int before = part_ == 0 ? 0 : order_.long_tiles();
    const WorkTile at =
        // mutate: SecondPartFromTheBeginning
        work_tile<Config::tile_q>(order_, place - sequence_begin_ + before, params_.heads_q, tile_.batch);
    tile_.head = at.head;
    tile_.q_begin = at.q_begin;
  }

  // Enters the sequence of `lane`, whose tiles have places [begin, end) in this part of the list.
  JIT_DEVICE void enter(int lane, int begin, int end) {
    tile_.batch = first_ + lane;
    tile_.q.begin = __shfl_sync(full_warp, own_.q.begin, lane);
    tile_.kv.begin = __shfl_sync(full_warp, own_.kv.begin, lane);
    tile_.q.length = __shfl_sync(full_warp, own_.q.length, lane);
    tile_.kv.length = __shfl_sync(full_warp, own_.kv.length, lane);
    order_ = order_of(tile_);
    sequence_begin_ = __shfl_sync(full_warp, begin, lane);
    sequence_end_ = __shfl_sync(full_warp, end, lane);
  }

  // Goes to 32 sequences, one for each lane.
  JIT_DEVICE void look_at(int first) {
    first_ = first;
    own_ = sequence(first + lane_id());
  }

  // Lengths of a sequence; an index from the batch size on has no queries.
  JIT_DEVICE SeqlenInfo sequence(int batch) const {
    if (batch >= params_.batch) return {};
    const VariableSequences<Config> sequences(params_);
    return {own_queries(sequences, batch), sequences.kv(batch)};
  }

  // The order of all tiles of one sequence. Any mask is assumed to be causal.
  JIT_DEVICE WorkOrder order_of(const SeqlenInfo& sequence) const {
    constexpr bool is_masked = !is_same<typename Config::Mask, NoMask>;
    const int rows = (sequence.q.length + Config::tile_q - 1) / Config::tile_q;
    int last_rows = 0;
    if (sequence.kv.length <= few_keys_) {
      last_rows = rows;
    } else if (is_masked) {
      const long long last_queries =
          static_cast<long long>(few_keys_) - sequence.kv.length + sequence.q.length;
      last_rows = static_cast<int>(maximum(0ll, minimum<long long>(last_queries, sequence.q.length))) /
                  Config::tile_q;
    }
    const int fitting = schedule_.section_keys / maximum(1, sequence.kv.length);
    return {.rows = rows,
            .slices = params_.heads_q,
            .section_slices = is_masked ? section_slices(params_.heads_q, fitting) : 1,
            .first_rows = 0,
            .last_rows = last_rows};
  }

  static constexpr int parts = 2;  // mutate: NoSecondPart

  const AttentionParams& params_;
  const TileSchedule& schedule_;
  SeqlenInfo own_{};  // the lane's sequence of the 32 that are tested
  int few_keys_;      // tiles that see at most this many keys belong to the second part
  int part_ = 0;      // current part of the list
  int first_ = 0;     // first of the 32 sequences
  int begin_ = 0;     // place of the first tile of these sequences
  SequenceTile tile_{};
  WorkOrder order_{};       // of the sequence of tile_
  int sequence_begin_ = 0;  // its first place in this part of the list
  int sequence_end_ = 0;
};

}  // namespace jit
