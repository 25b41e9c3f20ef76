// The rounding warps: they round rows in place in shared memory, as soon as the poller has published means and scales.
#pragma once

#include "ptx/bulk_copy.cuh"
#include "ptx/warpgroup.cuh"
#include "quantize/rounding.cuh"
#include "quantize_resident/statistics.cuh"

namespace jit {

template <class Config>
class ResidentRounding {
  static constexpr int threads = resident_rounding_warps * warp_size;
  static constexpr int named_barrier = 2;
  static constexpr ResidentLayout layout = ResidentPlan<Config>::layout;

 public:
  /// `warp` is that of the role.
  JIT_DEVICE ResidentRounding(const ResidentParams& params, char* memory, int warp)
      : params_(params), blocks_(reinterpret_cast<float*>(memory + layout.blocks)), warp_(warp) {}

  JIT_DEVICE void run(ResidentPipeline<Config> pipeline) const {
    pipeline.for_each_work(params_.all, [&](const QuantizeWork& work) {
      pipeline.wait_ready();  // mutate: RoundsBeforeAllIsKnown
      with_tensor(work.tensor, [&](auto tag) { round<decltype(tag)::tensor>(pipeline, work); });
      pipeline.consumer_release();
    });
  }

 private:
  static JIT_DEVICE void meet() { bar_sync(named_barrier, threads); }

  template <QkvTensor tensor, class Act>
  JIT_DEVICE void with_rows(const ResidentPipeline<Config>& pipeline, const QuantizeWork& work,
                            const Act& act) const {
    with_resident_rows<Config, tensor, resident_rounding_warps>(params_, work, pipeline.rows(), warp_, act);
  }

  template <QkvTensor tensor>
  JIT_DEVICE void round(const ResidentPipeline<Config>& pipeline, const QuantizeWork& work) const {
    using Plan = QuantizePlan<Config, tensor>;
    const QuantizeRows<Config, tensor> first(params_.all, work, pipeline.rows(),
                                             warp_ * warp_size + lane_id());
    ColumnFactors<Config, tensor> factors;
    factors.is_shifted = tensor == QkvTensor::q && Config::center_keys && params_.all.lse_shift != nullptr;
    const float* const results = pipeline.results();
    load_factors(factors, first, results, results + (Plan::is_centered ? Plan::columns : 0), results,
                 &pipeline.factor());
    float* const block_scales = blocks_ + Plan::chunk;
    if constexpr (Plan::scales == QuantizedScales::block) {
      meet();  // all have read the scales of the piece before
      with_rows<tensor>(pipeline, work,
                        [&](const auto& rows, int) { write_magnitudes(rows, factors.means, blocks_); });
      meet();
      find_block_scales(first, blocks_, block_scales, warp_, resident_rounding_warps);
      meet();
    }
    with_rows<tensor>(pipeline, work,
                      [&](const auto& rows, int) { round_steps(params_.all, rows, factors, block_scales); });
  }

  const ResidentParams& params_;
  float* blocks_;
  int warp_;
};

}  // namespace jit
