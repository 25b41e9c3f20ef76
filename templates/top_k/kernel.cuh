// The largest scores of each row, their columns in ascending order. Short rows have a warp each, others a block, which reads
// them once, or in the worst case a few times.
#pragma once

#include "base/bit_words.cuh"
#include "base/prelude.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/functor.cuh"
#include "ptx/cluster.cuh"
#include "top_k/ascending.cuh"
#include "top_k/candidates.cuh"
#include "top_k/radix_select.cuh"
#include "top_k/row.cuh"
#include "top_k/warp_rows.cuh"

namespace jit {

/// The free columns that this block of the cluster looks at.
template <class Config>
JIT_DEVICE KeyRange part_of_row(const TopKRow<Config>& row) {
  if constexpr (Config::cluster == 1) {
    return {row.free_begin, row.free_end};
  } else {
    const int size = rounded_up_quotient(row.free_end - row.free_begin, Config::cluster);
    const int begin = minimum(row.free_begin + cluster_rank() * size, row.free_end);
    return {begin, minimum(begin + size, row.free_end)};
  }
}

/// By the whole block.
template <class Config>
JIT_DEVICE void choose_by_block(const TopKParams& params, int unit, unsigned* smem) {
  constexpr TopKSmem layout = top_k_smem(Config::k);
  const TopKRow<Config> row(params, unit);
  const KeyRange part = part_of_row<Config>(row);
  Candidates<Config> candidates(row, smem);
  const unsigned bound = candidates.bound();
  candidates.clear();
  __syncthreads();  // mutate: CountOfCandidatesBeforeItIsZero
  candidates.collect(bound, part.begin, part.end);
  if constexpr (Config::cluster == 1) {
    __syncthreads();  // mutate: CandidatesReadEarly
  } else {
    candidates.gather();
    if (cluster_rank() != 0) return;
  }
  const int count = candidates.count();
  const bool are_all = bound == no_key + 1;
  const auto choose = [&](bool has_more, unsigned low, unsigned high, const auto& for_each) {
    Threshold threshold{no_key, 0};
    if (row.wanted == 0) {
      threshold.key = 0xffffffffu;  // no score has it
    } else if (has_more) {
      threshold = radix_select(
          smem + layout.bins, smem + layout.sums, smem + layout.numbers, low, high, row.wanted,
          [&](const auto& f) { for_each([&](bool is_there, unsigned key, int) { f(is_there, key); }); });
    }
    write_ascending(params, row, threshold, smem, for_each);
  };
  if (count <= candidates.room && (are_all || count >= row.wanted)) {
    choose(count > row.wanted, bound, candidates.largest(),
           [&](const auto& f) { candidates.for_each(count, f); });
    return;
  }
  // The bound was too low or too high: all of the row's keys.
  const auto for_each = [&](const auto& f) {
    for_each_of_block(row.free_end - row.free_begin, [&](bool is_there, int i) {
      const int column = row.free_begin + i;
      f(is_there, is_there ? row.key(column) : no_key, column);
    });
  };
  int keys = 0;
  for_each([&](bool, unsigned key, int) { keys += key != no_key; });
  const int all = block_sum(keys, smem + layout.sums).all;
  choose(all > row.wanted, no_key + 1, 0xffffffffu, for_each);
}

template <class Config>
JIT_DEVICE void choose_top_k(const TopKParams& params) {
  extern __shared__ __align__(16) unsigned smem[];
  wait_for_grids_before();  // mutate: TopKOfScoresThatAreNotThere
  if (params.columns <= top_k_warp_columns) {
    const int unit = static_cast<int>(blockIdx.x) * (top_k_threads / warp_size) + warp_id();
    if (unit >= params.rows * params.heads) return;
    constexpr int most = top_k_warp_columns / warp_size;
    if (params.columns <= top_k_warp_columns / 2) {
      choose_by_warp<Config, most / 2>(params, unit);
    } else {
      choose_by_warp<Config, most>(params, unit);
    }
  } else {
    choose_by_block<Config>(params, static_cast<int>(blockIdx.x) / Config::cluster, smem);
  }
  let_next_grid_start();
}

}  // namespace jit
