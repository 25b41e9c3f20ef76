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
  unsigned bound = candidates.bound();
  candidates.clear();
  __syncthreads();  // mutate: CountOfCandidatesBeforeItIsZero
  candidates.collect(bound, part.begin, part.end);
  __syncthreads();  // mutate: ColumnsReadEarly
  candidates.read_keys();
  if constexpr (Config::cluster == 1) {
    __syncthreads();  // mutate: CandidatesReadEarly
  } else {
    candidates.gather();
    if (cluster_rank() != 0) return;
  }
  // Columns with these keys are looked at, besides the candidates: none where these are known to have all that is wanted.
  enum { none, equal_to_bound, all } others = none;
  int listed = candidates.count();
  Threshold threshold{no_key, 0};
  bool is_known = row.wanted == 0;
  if (is_known) threshold.key = 0xffffffffu;  // no score has it
  if (listed > candidates.room && bound > nan_key) {
    // Perhaps too many have the bound's score: the others alone.
    __syncthreads();  // mutate: CountGoneBeforeItIsRead
    candidates.clear();
    __syncthreads();  // mutate: CountOfOthersBeforeItIsZero
    candidates.collect(bound + 1, row.free_begin, row.free_end);
    __syncthreads();  // mutate: OtherColumnsReadEarly
    candidates.read_keys();
    __syncthreads();  // mutate: OtherKeysReadEarly
    listed = candidates.count();
    if (listed < row.wanted) {
      others = equal_to_bound;
      threshold = {bound, row.wanted - listed};
      is_known = true;
    } else {
      bound += 1;
    }
  }
  // The bound was too low or too high.
  if (listed > candidates.room || (listed < row.wanted && others == none && bound != no_key + 1)) {
    others = all;
    listed = 0;
  }
  const auto for_each = [&](int begin, int end, const auto& f) {
    candidates.for_each(listed, f);
    if (others == none) return;
    const int first = maximum(begin, row.free_begin);
    for_each_of_block(minimum(end, row.free_end) - first, [&](bool is_there, int i) {
      const unsigned key = is_there ? row.key(first + i) : no_key;
      f(is_there && (others == all || key == bound), key, first + i);
    });
  };
  if (!is_known) {
    unsigned low = bound, high = candidates.largest();
    int keys = listed;
    if (others == all) {
      low = no_key + 1;
      high = 0xffffffffu;
      int own = 0;
      for_each(row.free_begin, row.free_end, [&](bool, unsigned key, int) { own += key != no_key; });
      keys = block_sum(own, smem + layout.sums).all;
    }
    if (keys > row.wanted) {
      threshold = radix_select(smem + layout.bins, smem + layout.sums, smem + layout.numbers, low, high,
                               row.wanted, [&](const auto& f) {
                                 for_each(row.free_begin, row.free_end,
                                          [&](bool is_there, unsigned key, int) { f(is_there, key); });
                               });
    }
  }
  write_ascending(params, row, threshold, smem, for_each);
}

template <class Config>
JIT_DEVICE void choose_top_k(const TopKParams& params) {
  extern __shared__ __align__(16) unsigned smem[];
  wait_on_dependent_grids();  // mutate: TopKOfScoresThatAreNotThere
  if (params.columns <= top_k_warp_columns) {
    const int unit = static_cast<int>(blockIdx.x) * (top_k_threads / warp_size) + warp_id();
    if (unit >= params.rows * params.heads) return;
    constexpr int most = top_k_warp_columns / warp_size;
    if (params.columns <= top_k_warp_columns / 2) {
      choose_by_warp<Config, most / 2>(params, unit, smem);
    } else {
      choose_by_warp<Config, most>(params, unit, smem);
    }
  } else {
    choose_by_block<Config>(params, static_cast<int>(blockIdx.x) / Config::cluster, smem);
  }
  launch_dependent_grids();
}

}  // namespace jit
