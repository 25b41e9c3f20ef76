// The statistics warps, which read rows first: they send the statistics of a piece of work to the blocks that round other pieces
// of its unit. Each warp replaces two warps of quantize/statistics.cuh, and sums in the same order.
#pragma once

#include "base/warp_sum.cuh"
#include "ptx/warpgroup.cuh"
#include "quantize/statistics.cuh"
#include "quantize_resident/exchange.cuh"
#include "quantize_resident/pipeline.cuh"

namespace jit {

/// Calls `act` with the rows of each warp that warp `warp` of a role of `warps` stands for, and with that one's number.
template <class Config, QkvTensor tensor, int warps, class Act>
JIT_DEVICE void with_resident_rows(const ResidentParams& params, const QuantizeWork& work, char* slot,
                                   int warp, const Act& act) {
#pragma unroll
  for (int iteration = 0; iteration < ResidentPlan<Config>::warps / warps; ++iteration) {
    const int stands_for = iteration * warps + warp;
    const QuantizeRows<Config, tensor> rows(params.all, work, slot, stands_for * warp_size + lane_id());
    act(rows, stands_for);
  }
}

template <class Config>
class ResidentStatistics {
  static constexpr int threads = resident_statistics_warps * warp_size;
  static constexpr int named_barrier = 1;
  static constexpr ResidentLayout layout = ResidentPlan<Config>::layout;

 public:
  JIT_DEVICE ResidentStatistics(const ResidentParams& params, char* memory, unsigned number)
      : params_(params),
        shared_(reinterpret_cast<float*>(memory + layout.statistics)),
        magnitudes_(reinterpret_cast<float*>(memory + layout.magnitudes)),
        number_(number) {}

  /// By the warps of the role, which are the first ones of the block.
  JIT_DEVICE void run(ResidentPipeline<Config> pipeline) {
    pipeline.for_each_work(params_.all, [&](const QuantizeWork& work) {
      with_tensor(work.tensor, [&](auto tag) {
        constexpr QkvTensor tensor = decltype(tag)::tensor;
        if constexpr (ResidentPlan<Config>::template has_columns<tensor>) {
          columns<tensor>(pipeline, work);
        } else if constexpr (ResidentPlan<Config>::template has_magnitude<tensor>) {
          magnitude<tensor>(pipeline, work);
        } else {
          pipeline.arrive_ready();
        }
      });
    });
  }

 private:
  static JIT_DEVICE void meet() { bar_sync(named_barrier, threads); }

  template <QkvTensor tensor>
  JIT_DEVICE void magnitude(const ResidentPipeline<Config>& pipeline, const QuantizeWork& work) {
    float found = 0;
    with_resident_rows<Config, tensor, resident_statistics_warps>(
        params_, work, pipeline.rows(), warp_id(),
        [&](const auto& rows, int) { found = fmaxf(found, largest_magnitude(rows)); });
    pipeline.arrive_ready();
    found = warp_max(found);
    // Two places alternate: when a warp is at the next barrier, it has read what stands before this one.
    float* const of_warps = magnitudes_ + iteration_ * resident_statistics_warps;
    if (lane_id() == 0) of_warps[warp_id()] = found;
    meet();  // mutate: ResidentMagnitudesOfWarpsReadEarly
    if (threadIdx.x == 0) {
#pragma unroll
      for (int warp = 1; warp < resident_statistics_warps; ++warp) found = fmaxf(found, of_warps[warp]);
      ResidentExchange<Config, tensor>(params_, number_).write_magnitude(work.unit, work.item, found);
    }
    iteration_ ^= 1;  // mutate: MagnitudesInOnePlace
  }

  template <QkvTensor tensor>
  JIT_DEVICE void columns(const ResidentPipeline<Config>& pipeline, const QuantizeWork& work) {
    using Plan = QuantizePlan<Config, tensor>;
    meet();  // all have read what the piece before has left  // mutate: StatisticsWrittenEarly
    with_resident_rows<Config, tensor, resident_statistics_warps>(
        params_, work, pipeline.rows(), warp_id(),
        [&](const auto& rows, int warp) { write_statistics(rows, warp, [&] { return shared_; }); });
    pipeline.arrive_ready();
    meet();  // mutate: StatisticsOfWarpsReadEarly
    const ResidentExchange<Config, tensor> exchange(params_, number_);
    for (int column = static_cast<int>(threadIdx.x); column < Plan::columns; column += threads) {
      float found[ColumnStatistics<Plan>::count];
#pragma unroll
      for (int which = 0; which < ColumnStatistics<Plan>::count; ++which)
        found[which] = statistic_of_warps<Plan>(shared_, which * Plan::columns + column);
      exchange.write_statistics(work.unit, work.item, column, found);
    }
  }

  const ResidentParams& params_;
  float* shared_;
  float* magnitudes_;
  unsigned number_;
  int iteration_ = 0;
};

}  // namespace jit
