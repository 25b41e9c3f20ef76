// The pages of the rows of a step's tiles.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/smem.cuh"
#include "forward_split_kv/traits.cuh"
#include "problem/variable_sequences.cuh"
#include "split_keys/work_list.cuh"

namespace jit::forward_split_kv {

/// The pages of a step's rows, a thread for each of some, in two halves: they are on their way between them.
template <class Config>
class PageReader {
  using Traits = KernelTraits<Config>;
  static constexpr int rows_per_thread =
      Traits::has_pages ? (Config::tile_kv + Traits::threads - 1) / Traits::threads : 0;

 public:
  __device__ __forceinline__ void ask(const AttentionParams& params, const Smem<Config>& smem, int step) {
    const StepInfo info = smem.info(step);
    const Info<Config>& split = smem.splits()[info.split];
    const int keys = (info.flags & step_has_tile) != 0 ? split.seqlen_kv : 0;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int key = info.k_begin + row(i);
      pages_[i] = -1;
      if (row(i) >= Config::tile_kv || key >= keys) continue;
      pages_[i] = VariableSequences<Config>(params).page(split.batch, split.kv_begin + key);
      expect_page<Config>(params, work_tile_of<Config>(split, Traits::tile_rows), key, 1, pages_[i]);
    }
  }
  __device__ __forceinline__ void put(const Smem<Config>& smem, int step) const {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      if (row(i) < Config::tile_kv) smem.pages(step)[row(i)] = pages_[i];
    }
  }

 private:
  static __device__ __forceinline__ int row(int i) { return threadIdx.x + i * Traits::threads; }

  int pages_[rows_per_thread + 1];
};

}  // namespace jit::forward_split_kv
