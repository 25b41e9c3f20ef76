// The warp that adds up statistics of columns, of all pieces of work of a unit in their order: some columns of each
// unit, one block after another.
#pragma once

#include "quantize/statistics.cuh"
#include "quantize_resident/exchange.cuh"

namespace jit {

/// Lanes of a column have some pieces of work each, which are on their way together.
template <class Config, QkvTensor tensor>
class ResidentReducer {
  using Plan = QuantizePlan<Config, tensor>;
  using Statistics = ColumnStatistics<Plan>;
  static constexpr int count = Statistics::count, columns = resident_job_columns;
  static constexpr int at_once = 8;  // of a lane
  static constexpr int lanes = warp_size / columns;

 public:
  static constexpr int jobs = Plan::columns / columns;

  JIT_DEVICE ResidentReducer(const ResidentParams& params, unsigned number)
      : own_(Plan::of(params.all)), exchange_(params, number) {}

  /// By a whole warp.
  JIT_DEVICE void run(int unit, int job) const {
    const int column = job * columns + lane_id() % columns, part = lane_id() / columns;
    float totals[count] = {};
    for (int first = 0; first < own_.items; first += lanes * at_once) {
      float found[at_once][count];
      const int own_first = first + part * at_once;
      // All at once; and where some are missing one of them until it is there, which leaves L2 to others meanwhile.
      while (true) {
        int missing = -1;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          if (own_first + i >= own_.items) continue;
          if (!exchange_.find_statistics(unit, own_first + i, column, found[i])) missing = own_first + i;
        }
        if (__all_sync(full_warp, missing < 0)) break;
        if (missing >= 0) exchange_.wait_for_statistics(unit, missing, column);
        __syncwarp();
      }
      // One lane continues from the sum of the one before.
#pragma unroll 1
      for (int step = 0; step < lanes; ++step) {
        if (step == part) {
#pragma unroll
          for (int i = 0; i < at_once; ++i) {
            if (own_first + i >= own_.items) continue;
#pragma unroll
            for (int which = 0; which < count; ++which)
              totals[which] = own_first + i == 0 ? found[i][which]
                                                 : Statistics::both(which, totals[which], found[i][which]);
          }
        }
#pragma unroll
        for (int which = 0; which < count; ++which)
          totals[which] = __shfl_sync(full_warp, totals[which], step * columns + lane_id() % columns);
      }
    }
    if (part != 0) return;
    const float mean = Plan::is_centered ? mean_of_sum(own_, totals[0], own_.seqlen) : 0.0f;
    if constexpr (Plan::is_centered) exchange_.write_result(unit, column, mean);
    if constexpr (Plan::has_extremes) {
      float magnitude = totals[0];
      if constexpr (Plan::is_centered) magnitude = centered_magnitude(mean, totals[1], totals[2]);
      exchange_.write_result(unit, (Plan::is_centered ? Plan::columns : 0) + column, magnitude);
    }
  }

 private:
  const QuantizeTensor& own_;
  ResidentExchange<Config, tensor> exchange_;
};

/// All that this block adds up.
template <class Config>
JIT_DEVICE void reduce_resident(const ResidentParams& params, unsigned number) {
  constexpr int keys = ResidentPlan<Config>::template has_columns<QkvTensor::k>
                           ? ResidentReducer<Config, QkvTensor::k>::jobs
                           : 0,
                values = ResidentPlan<Config>::template has_columns<QkvTensor::v>
                             ? ResidentReducer<Config, QkvTensor::v>::jobs
                             : 0;
  static_assert(!ResidentPlan<Config>::template has_columns<QkvTensor::q>);
  if constexpr (keys + values > 0) {
    const int all = params.all.units * (keys + values);
    for (int job = static_cast<int>(blockIdx.x); job < all; job += static_cast<int>(gridDim.x)) {
      const int unit = job / (keys + values), of_unit = job % (keys + values);
      if constexpr (keys > 0) {
        if (of_unit < keys) ResidentReducer<Config, QkvTensor::k>(params, number).run(unit, of_unit);
      }
      if constexpr (values > 0) {
        if (of_unit >= keys) ResidentReducer<Config, QkvTensor::v>(params, number).run(unit, of_unit - keys);
      }
    }
  }
}

}  // namespace jit
