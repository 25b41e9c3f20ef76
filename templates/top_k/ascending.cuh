// Writes what was chosen in the order of columns: their bits are set in shared memory, and each thread writes those of some
// words, as many as stand in front of it behind the first. Ties are decided there, too: the first bits are the smaller columns.
#pragma once

#include "base/prelude.cuh"
#include "top_k/block_sum.cuh"
#include "top_k/row.cuh"

namespace jit {

/// `for_each(begin, end, f)` calls f(is_there, key, column) for each candidate among these columns, and perhaps for others, by
/// whole warps. By the whole block, behind a barrier.
template <class Config, class ForEach>
JIT_DEVICE void write_ascending(const TopKParams& params, const TopKRow<Config>& row,
                                const Threshold& threshold, unsigned* smem, const ForEach& for_each) {
  constexpr TopKSmem layout = top_k_smem(Config::k);
  constexpr int words = top_k_window / bits_of_word, own_words = words / top_k_threads;
  unsigned *const sure = smem + layout.sure, *const tied = smem + layout.tied,
                  *const chosen = smem + layout.bins;
  const int thread = static_cast<int>(threadIdx.x), own = thread * own_words;
  int written = 0, ties = threshold.ties;
#pragma unroll 1
  for (int base = row.begin; base < row.end; base += top_k_window) {
#pragma unroll
    for (int i = 0; i < own_words; ++i) sure[own + i] = tied[own + i] = 0;
    __syncthreads();  // mutate: BitsBeforeTheyAreZero
    const auto set = [&](unsigned* bits, int column) {
      const int bit = column - base;
      if (bit >= 0 && bit < top_k_window) atomicOr(&bits[bit / bits_of_word], 1u << bit % bits_of_word);
    };
    for_each(base, row.end - base < top_k_window ? row.end : base + top_k_window,
             [&](bool is_there, unsigned key, int column) {
               if (!is_there || key < threshold.key || key == no_key) return;
               if (key > threshold.key) set(sure, column);
               if (key == threshold.key && threshold.ties > 0) set(tied, column);
             });
    for (int i = thread; i < row.free_begin - row.begin; i += top_k_threads) set(sure, row.begin + i);
    for (int i = thread; i < row.end - row.free_end; i += top_k_threads) set(sure, row.free_end + i);
    __syncthreads();  // mutate: BitsReadEarly
    // At most 2,048 bits are sure, and 65,536 tied: their sums share a number.
    constexpr int sure_bits = 12;
    int count = 0;
#pragma unroll
    for (int i = 0; i < own_words; ++i)
      count +=
          __popc(static_cast<int>(sure[own + i])) + (__popc(static_cast<int>(tied[own + i])) << sure_bits);
    const BlockSum sum = block_sum(count, smem + layout.sums);
    constexpr int low = (1 << sure_bits) - 1;
    int left = maximum(0, ties - (sum.before >> sure_bits));
    int place = written + (sum.before & low) + minimum(ties, sum.before >> sure_bits);
#pragma unroll 1
    for (int i = 0; i < own_words; ++i) {
      unsigned bits = sure[own + i];
      for (unsigned some = tied[own + i]; some != 0 && left > 0; some &= some - 1, --left)
        bits |= some & ~(some - 1);
      for (; bits != 0; bits &= bits - 1)
        chosen[place++] =
            static_cast<unsigned>(base + (own + i) * bits_of_word + __ffs(static_cast<int>(bits)) - 1);
    }
    written += (sum.all & low) + minimum(ties, sum.all >> sure_bits);
    ties -= minimum(ties, sum.all >> sure_bits);
  }
  __syncthreads();  // mutate: ChosenReadEarly
  int* const indices = indices_of(params, row);
  for (int i = thread; i < Config::k; i += top_k_threads)
    indices[i] = i < written ? index_of<Config>(params, row.row, static_cast<int>(chosen[i])) : -1;
  if (thread == 0) *count_of(params, row) = written;
}

}  // namespace jit
