// Messages of softmax warps to correction warps, for each tile of keys: whether O must be rescaled, and by which factor of
// each row; at the end of a work tile the factors that normalize O. A warp of either has the same rows of a query tile.
#pragma once

#include "base/prelude.cuh"
#include "forward_tcgen05/smem_layout.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_tcgen05 {

enum FactorFlags : int {
  factors_rescale = 1,  ///< O is multiplied by the factors
  factors_end = 2,      ///< they normalize O: the work tile ends
  factors_of_none = 4,  ///< there is no O: no query of the tile sees a key
};

/// One side's place in the pipeline of a query tile.
template <class Traits>
class RowFactors {
  static constexpr PipelinePlace place = Traits::layout.factors;
  static constexpr int flag_bytes = warps_per_tile * 4, factor_bytes = query_rows * 4;

 public:
  JIT_DEVICE RowFactors(unsigned smem, int tile)
      : pipeline_(Pipeline<stages_factors, 0>(smem, place).moved(0, tile * stages_factors * 8)),
        flags_(smem + Traits::layout.factor_flags + tile * stages_factors * flag_bytes + own_warp() * 4),
        factors_(smem + Traits::layout.row_factors + tile * stages_factors * factor_bytes + own_row() * 4) {}

  /// Tells flags, alike in the warp, and the factor of the thread's row where these say that it counts.
  JIT_DEVICE void put(int flags, float factor) {
    pipeline_.producer_acquire();  // mutate: FactorsOverFactorsThatWait
    if (flags != 0) store_shared(factors_ + pipeline_.stage() * factor_bytes, __float_as_int(factor));
    if (lane_id() == 0) store_shared(flags_ + pipeline_.stage() * flag_bytes, flags);
    pipeline_.producer_commit();
    pipeline_.advance();
  }

  /// Waits for the next flags.
  JIT_DEVICE int take() const {
    pipeline_.consumer_wait();
    return load_shared_by_warp(flags_ + pipeline_.stage() * flag_bytes);
  }
  JIT_DEVICE float factor() const {
    return __int_as_float(load_shared(factors_ + pipeline_.stage() * factor_bytes));
  }
  JIT_DEVICE void release() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

 private:
  static JIT_DEVICE int own_row() { return threadIdx.x % query_rows; }
  static JIT_DEVICE int own_warp() { return own_row() / warp_size; }

  Pipeline<stages_factors, 0> pipeline_;
  const unsigned flags_, factors_;
};

}  // namespace jit::forward_tcgen05
