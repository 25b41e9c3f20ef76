// Queries in registers, as the A operand of Q Kᵀ: the first columns of the rows of the score warpgroup.
#pragma once

#include "base/prelude.cuh"
#include "ptx/wgmma.cuh"
#include "split_keys/packed_rows.cuh"
#include "tiles/accumulator.cuh"

namespace jit::forward_mla_wgmma {

/// A thread's words of these columns: those of an accumulator's places, step by step.
template <class Traits>
class HeldQueries {
  using Config = typename Traits::Config;
  static constexpr int steps = Traits::part_steps;  // of a part
  using Part = unsigned[steps][4];

 public:
  /// Loads the rows of a split, of which the warp's begin with `first_row`; those that there are not are zeros.
  JIT_DEVICE void load(const QueryRows<Config>& rows, int first_row) {
    const int row = first_row + MmaLayout::lane_row(lane_id()), column = MmaLayout::lane_column(lane_id());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* const source = rows(MmaLayout::row(row, 0, half));
#pragma unroll
      for (int i = 0; i < 2 * Traits::held_steps; ++i) {
        words_[i / 2][i % 2 * 2 + half] =
            source == nullptr ? 0
                              : *reinterpret_cast<const unsigned*>(source + MmaLayout::column(column, i, 0));
      }
    }
  }
  /// Ties them to a place, before their products and behind these.
  JIT_DEVICE void hold() { wgmma_hold(words_); }
  /// Queries of a part, which begins with a column that is held.
  JIT_DEVICE const Part& from(int column) const {
    return reinterpret_cast<const Part&>(words_[column / Traits::mma_k]);  // mutate: HeldColumnsOfAnotherPart
  }

 private:
  unsigned words_[Traits::held_steps][4];
};

}  // namespace jit::forward_mla_wgmma
