// The list of work tiles of sequences whose lengths only the device knows.
//
// The list is WorkOrder's, a sequence at a time: first the long part of each, whose tiles see more than a quarter of the
// keys of the longest sequence, then what is left of all of them, so that blocks end at about the same time. Each block
// looks for its places in the list itself, 32 sequences at a time.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/warp_sum.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/work.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/atomic.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit::forward_wgmma {

/// Deals the list to the blocks as WorkDealer does. By a whole warp, whose lanes all get the same answers.
template <class Config>
class SequenceDealer {
 public:
  /// Finds the block's first tile.
  __device__ __forceinline__ SequenceDealer(const AttentionParams& params, const TensorMaps& maps)
      : params_(params), maps_(maps) {
    int most = 0;
#pragma unroll 1
    for (int batch = lane_id(); batch < params.batch; batch += warp_size) {
      const VariableSequences<Config> sequences(params);
      if (sequences.q(batch).length > 0) most = maximum(most, sequences.kv(batch).length);
    }
    most = __reduce_max_sync(full_warp, most);
    few_keys_ = most <= few_tokens ? 0 : most / 4;
    find(static_cast<int>(blockIdx.x));
  }

  /// The block's tile; no work when none is left.
  __device__ __forceinline__ const SequenceTile& tile() const { return tile_; }

  /// Once for each tile that there was: asks for the next one. `answer` waits for it.
  __device__ __forceinline__ void ask() {
    if (maps_.counter != nullptr && lane_id() == 0) taken_ = atomicAdd(maps_.counter, 1);
  }
  __device__ __forceinline__ void answer() {
    const int taken = uniform(taken_);
    find(static_cast<int>(gridDim.x) + taken);
    // There are as many questions as tiles.
    if (!is_work(tile_) && lane_id() == 0 && taken == begin_ - 1) store_relaxed(maps_.counter, 0);
  }

 private:
  // Goes on to a place in the list behind those that were looked for before. Behind the last one `begin_` is the number
  // of all tiles.
  __device__ __forceinline__ void find(int place) {
#pragma unroll 1
    while (part_ < parts) {
      const SequenceTile own = sequence(first_ + lane_id());
      const WorkOrder order = order_of(own);
      const int count = part_ == 0 ? order.long_tiles() : order.tiles() - order.long_tiles();
      const int end = begin_ + sum_up_to_lane(count);
      const unsigned behind = __ballot_sync(full_warp, end > place);
      if (behind != 0) {
        const int lane = __ffs(static_cast<int>(behind)) - 1;
        const int in_part = place - __shfl_sync(full_warp, end - count, lane);
        enter(__shfl_sync(full_warp, own.batch, lane), __shfl_sync(full_warp, own.first_row, lane),
              __shfl_sync(full_warp, own.seqlen_q, lane), __shfl_sync(full_warp, own.seqlen_kv, lane),
              in_part);
        return;
      }
      begin_ = __shfl_sync(full_warp, end, warp_size - 1);
      first_ += warp_size;
      if (first_ < params_.batch) continue;
      first_ = 0;
      ++part_;
    }
    tile_.q_begin = -1;
  }

  // Goes to a place in the sequence's share of this part of the list.
  __device__ __forceinline__ void enter(int batch, int first_row, int seqlen_q, int seqlen_kv, int place) {
    tile_ = {{batch, 0, 0}, first_row, seqlen_q, seqlen_kv};
    const WorkOrder order = order_of(tile_);
    const WorkTile at = work_tile<Config::tile_q>(order, place + (part_ == 0 ? 0 : order.long_tiles()),
                                                  params_.heads_q, batch);
    tile_.head = at.head;
    tile_.q_begin = at.q_begin;
  }

  // Without queries behind the last one.
  __device__ __forceinline__ SequenceTile sequence(int batch) const {
    if (batch >= params_.batch) return {{batch, 0, 0}, 0, 0, 0};
    const VariableSequences<Config> sequences(params_);
    const Sequence q = sequences.q(batch);
    return {{batch, 0, 0}, q.begin, q.length, sequences.kv(batch).length};
  }

  // The order of all tiles of one sequence. Under any mask tiles are taken to see what they see under a causal one.
  __device__ __forceinline__ WorkOrder order_of(const SequenceTile& sequence) const {
    constexpr bool is_masked = !is_same<typename Config::Mask, NoMask>;
    const int rows = (sequence.seqlen_q + Config::tile_q - 1) / Config::tile_q;
    int last_rows = 0;
    if (sequence.seqlen_kv <= few_keys_) {
      last_rows = rows;
    } else if (is_masked) {
      const long long last_queries =
          static_cast<long long>(few_keys_) - sequence.seqlen_kv + sequence.seqlen_q;
      last_rows = static_cast<int>(maximum(0ll, minimum<long long>(last_queries, sequence.seqlen_q))) /
                  Config::tile_q;
    }
    const int fitting = maps_.section_keys / maximum(1, sequence.seqlen_kv);
    return {.rows = rows,
            .slices = params_.heads_q,
            .section_slices = is_masked ? section_slices(params_.heads_q, fitting) : 1,
            .last_rows = last_rows};
  }

  static constexpr int parts = 2;

  const AttentionParams& params_;
  const TensorMaps& maps_;
  int few_keys_;   // tiles that see no more belong to the second part
  int part_ = 0;   // of the list
  int first_ = 0;  // sequence of the 32 that are looked at
  int begin_ = 0;  // place in the list of the first tile of these
  int taken_ = 0;
  SequenceTile tile_;
};

}  // namespace jit::forward_wgmma
