// The units of all batch entries in their order, and the block's share of them.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/key_shares.cuh"

namespace jit::forward_split_kv {

/// Tiles of keys.
struct TileRange {
  int begin;
  int end;

  __device__ __forceinline__ int count() const { return end - begin; }
};

/// A tile of rows of one KV head of a batch entry.
struct Unit {
  int batch;
  int kv_head;
  int row_begin;
  Sequence q;
  Sequence kv;
};

template <class Config>
__device__ __forceinline__ BlockContext context_of(const AttentionParams& params, const Unit& unit, int head) {
  return {unit.batch, head, params.heads_q, unit.q.length, unit.kv.length, params.tensors};
}

/// Queries [begin, end) to which the rows of a unit belong.
template <class Config>
__device__ __forceinline__ ScoreTile queries_of(const Unit& unit) {
  const int rows = unit.q.length * Config::gqa_ratio;
  const int row_end = minimum(unit.row_begin + KernelTraits<Config>::tile_rows, rows);
  return {unit.row_begin / Config::gqa_ratio, (row_end - 1) / Config::gqa_ratio + 1, 0, 0};
}

/// The tiles of keys that a unit's share of the line is measured by: no tile outside of them holds a key that its rows
/// see. Asked by single lanes: a mask that answers by warps is not asked.
template <class Config>
__device__ __forceinline__ TileRange tiles_of(const AttentionParams& params, const Unit& unit) {
  using Mask = typename Config::Mask;
  KeyRange keys{0, unit.kv.length};
  if constexpr (has_row_range<Mask>) {
    const ScoreTile queries = queries_of<Config>(unit);
    const Mask mask(context_of<Config>(params, unit, unit.kv_head * Config::gqa_ratio));
    keys = mask.key_range(queries.q_begin, queries.q_end);
  }
  if (keys.begin >= keys.end) return {0, 0};
  return {keys.begin / Config::tile_kv, (keys.end + Config::tile_kv - 1) / Config::tile_kv};
}

/// What a batch entry has on the line.
struct EntryLength {
  long long total;
  int most_tiles;  ///< of a unit
};

template <class Config>
__device__ __forceinline__ EntryLength entry_length(const AttentionParams& params,
                                                    const VariableSequences<Config>& sequences, int batch) {
  Unit unit{batch, 0, 0, sequences.q(batch), sequences.kv(batch)};
  EntryLength length{0, 0};
  for (; unit.row_begin < unit.q.length * Config::gqa_ratio; unit.row_begin += KernelTraits<Config>::tile_rows) {
    const int tiles = tiles_of<Config>(params, unit).count();
    length.total += unit_length(tiles);
    length.most_tiles = maximum(length.most_tiles, tiles);
  }
  length.total *= params.heads_kv;
  return length;
}

__device__ __forceinline__ long long warp_sum(long long x) {
#pragma unroll
  for (int step = warp_size / 2; step > 0; step /= 2) x += __shfl_xor_sync(full_warp, x, step);
  return x;
}

/// The sum over this lane and those before it.
__device__ __forceinline__ long long sum_up_to_lane(long long x) {
#pragma unroll
  for (int step = 1; step < warp_size; step *= 2) {
    const long long before = __shfl_up_sync(full_warp, x, step);
    if (lane_id() >= step) x += before;
  }
  return x;
}

/// Walks through the block's share of the line, by a whole warp whose lanes all get the same answers. A plain value.
template <class Config>
struct WorkList {
  KeyShares shares;
  Unit unit;
  TileRange tiles;  ///< of the unit
  long long unit_begin;

  /// Goes to the first unit of the block's share.
  __device__ __forceinline__ void begin(const AttentionParams& params) {
    const VariableSequences<Config> sequences(params);
    long long total = 0;
    int most_tiles = 0;
    for (int batch = lane_id(); batch < params.batch; batch += warp_size) {
      const EntryLength length = entry_length(params, sequences, batch);
      total += length.total;
      most_tiles = maximum(most_tiles, length.most_tiles);
    }
    shares = key_shares(warp_sum(total), static_cast<int>(gridDim.x), __reduce_max_sync(full_warp, most_tiles),
                        params.sequences.num_splits);
    unit = {.batch = params.batch};
    if (static_cast<int>(blockIdx.x) < shares.blocks) find_first(params, blockIdx.x * shares.length);
  }

  /// Whether there is a unit, of which the block may have no part.
  __device__ __forceinline__ bool has_unit(const AttentionParams& params) const {
    return unit.batch < params.batch && unit_begin < (static_cast<long long>(blockIdx.x) + 1) * shares.length;
  }
  __device__ __forceinline__ UnitPart part() const {
    return shares.part(static_cast<int>(blockIdx.x), unit_begin, tiles.count());
  }

  /// The next one. Requires: has_unit().
  __device__ __forceinline__ void next(const AttentionParams& params) {
    unit_begin += unit_length(tiles.count());
    unit.row_begin += KernelTraits<Config>::tile_rows;
    if (unit.row_begin >= unit.q.length * Config::gqa_ratio) {
      unit.row_begin = 0;
      if (++unit.kv_head == params.heads_kv) enter(params, unit.batch + 1);
    }
    if (unit.batch < params.batch) tiles = tiles_of<Config>(params, unit);
  }

 private:
  // Goes to the first batch entry from this one on that has queries.
  __device__ __forceinline__ void enter(const AttentionParams& params, int batch) {
    const VariableSequences<Config> sequences(params);
    unit.kv_head = unit.row_begin = 0;
    for (unit.batch = batch; unit.batch < params.batch; ++unit.batch) {
      unit.q = sequences.q(unit.batch);
      if (unit.q.length > 0) break;
    }
    if (unit.batch < params.batch) unit.kv = sequences.kv(unit.batch);
  }

  // Goes to the unit that holds this place on the line, or past the last batch entry.
  __device__ __forceinline__ void find_first(const AttentionParams& params, long long place) {
    const VariableSequences<Config> sequences(params);
    unit_begin = 0;
    int first = 0;
    for (; first < params.batch; first += warp_size) {
      const int batch = first + lane_id();
      const long long own = batch < params.batch ? entry_length(params, sequences, batch).total : 0;
      const long long end = unit_begin + sum_up_to_lane(own);
      const unsigned behind = __ballot_sync(full_warp, end > place);
      if (behind != 0) {
        const int lane = __ffs(static_cast<int>(behind)) - 1;
        unit_begin = __shfl_sync(full_warp, end - own, lane);
        first += lane;
        break;
      }
      unit_begin = __shfl_sync(full_warp, end, warp_size - 1);
    }
    enter(params, first);
    if (unit.batch >= params.batch) return;
    // The KV heads of an entry are alike.
    const long long head_length = entry_length(params, sequences, unit.batch).total / params.heads_kv;
    unit.kv_head = static_cast<int>((place - unit_begin) / head_length);
    unit_begin += unit.kv_head * head_length;
    tiles = tiles_of<Config>(params, unit);
    while (unit_begin + unit_length(tiles.count()) <= place) next(params);
  }
};

}  // namespace jit::forward_split_kv
