// The order of tiles of keys by how many tiles of queries see them, where only the device knows: under masks of words, such
// as documents. Blocks take the tiles with the most steps first ("Bounds on Multiprocessing Timing Anomalies", Graham), as
// TileOrder has it for causal masks (tensor_maps.cuh). The kernel before sorts (sort_keys), so that the order costs no
// time: its blocks of the first query head write the ranges of words, and the last of them to finish sorts.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/query_tile.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "mainloop/arrival_table.cuh"
#include "problem/key_memory.cuh"
#include "ptx/atomic.cuh"
#include "ptx/relaxed.cuh"

namespace jit {

/// Whether the order of a kernel's tiles is sorted, unless there are too many. Blocks that take turns have an order of
/// their own.
template <class Config>
inline constexpr bool sorts_keys = reads_query_ranges<typename Config::Mask> && !Config::deterministic &&
                                   !has_entry_lengths<Config> && !has_arrivals<Config> &&
                                   !depends_on_head<typename Config::Mask>;

/// Tiles of keys of all batch entries that are sorted, the same for all heads; 0: too many.
template <class Config>
JIT_DEVICE int sorted_key_tiles(const AttentionParams& params) {
  const long long tiles = static_cast<long long>(params.batch) * key_tiles_of_head<Config>(params);
  return tiles <= most_sorted_keys ? static_cast<int>(tiles) : 0;
}

/// The order: tiles of keys, counted batch entry by batch entry. It lies behind the ranges of words.
template <class Config>
JIT_DEVICE int* sorted_keys(const AttentionParams& params, const GradientParams& gradients) {
  return gradients.query_ranges +
         2ll * params.batch * params.heads_q * query_tiles<Config>(params);
}

/// The number of tiles of queries of the first head that see the keys of a tile. By a whole warp.
template <class Config>
JIT_DEVICE int steps_of_keys(const AttentionParams& params, const GradientParams& gradients, int batch,
                             int k_begin) {
  using Mask = typename Config::Mask;
  const SequencesOf<Config> sequences(params, batch);
  const Mask mask(sequences.context(batch, 0));
  const ScoreTile keys{0, 0, k_begin, minimum(k_begin + Config::tile_kv, sequences.kv(batch).length)};
  const KeyMemory<Mask> memory(mask, keys);
  const int seqlen_q = sequences.q(batch).length, tiles = query_tiles<Config>(params);
  const auto* const ranges = reinterpret_cast<const unsigned long long*>(gradients.query_ranges) +
                             first_query_tile<Config>(params, sequences, batch, 0);
  int steps = 0;
#pragma unroll 1
  for (int first = 0; first < tiles; first += warp_size) {
    const int tile = first + lane_id(), begin = tile * Config::tile_q;
    TileClass kind = TileClass::empty;
    if (tile < tiles) {
      const unsigned long long range = load_relaxed(ranges + tile);
      kind = memory.classify(mask, {begin, minimum(begin + Config::tile_q, seqlen_q), keys.k_begin, keys.k_end},
                             {static_cast<int>(range), static_cast<int>(range >> 32)});
    }
    steps += __popc(__ballot_sync(full_warp, kind != TileClass::empty));
  }
  return steps;
}

/// Sorts the tiles of keys, once all blocks of the first query head have come here, behind the ranges that they have
/// written. By all threads of such a block, the first of which has written the block's range.
template <class Config, int threads>
JIT_DEVICE void sort_keys(const AttentionParams& params, const GradientParams& gradients) {
  const int tiles = sorted_key_tiles<Config>(params);
  if (tiles == 0) return;
  __shared__ int steps[most_sorted_keys];
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    const unsigned last = static_cast<unsigned>(params.batch) * query_tiles<Config>(params) - 1;
    is_last = atomic_inc_acq_rel(gradients.large_rows + 1, last) == last;  // mutate: SortedBeforeRangesAreThere
  }
  __syncthreads();
  if (!is_last) return;
  const int of_head = key_tiles_of_head<Config>(params);
  for (int tile = warp_id(); tile < tiles; tile += threads / warp_size) {
    const int batch = tile / of_head;
    const int count = steps_of_keys<Config>(params, gradients, batch, (tile - batch * of_head) * Config::tile_kv);
    if (lane_id() == 0) steps[tile] = count;
  }
  __syncthreads();  // mutate: SortedBeforeStepsAreCounted
  int* const order = sorted_keys<Config>(params, gradients);
  for (int tile = threadIdx.x; tile < tiles; tile += threads) {
    int place = 0;
    for (int other = 0; other < tiles; ++other)
      place += steps[other] > steps[tile] || (steps[other] == steps[tile] && other < tile);
    order[place] = tile;
  }
}

}  // namespace jit
