// The poller warp: it waits for other blocks' statistics of a unit, and publishes the means that its rows lose and their scales.
#pragma once

#include "base/warp_sum.cuh"
#include "ptx/fp8.cuh"
#include "quantize/rounding.cuh"
#include "quantize_resident/exchange.cuh"
#include "quantize_resident/pipeline.cuh"

namespace jit {

template <class Config>
class ResidentPoller {
  template <QkvTensor tensor>
  using Plan = QuantizePlan<Config, tensor>;
  using Stored = typename Config::StoredElement;

 public:
  JIT_DEVICE ResidentPoller(const ResidentParams& params, unsigned number)
      : params_(params), number_(number) {}

  /// By a whole warp.
  JIT_DEVICE void run(ResidentPipeline<Config> pipeline) {
    pipeline.for_each_work(params_.all, [&](const QuantizeWork& work) {
      wait_for_columns_before(work);
      // with_tensor's switch in place of the branches makes kernels of 256 columns with means spill.
      if (work.tensor == QkvTensor::q) {
        tell<QkvTensor::q>(pipeline, work);
      } else if (work.tensor == QkvTensor::k) {
        tell<QkvTensor::k>(pipeline, work);
      } else {
        tell<QkvTensor::v>(pipeline, work);
      }
      pipeline.arrive_ready();
    });
  }

 private:
  static constexpr bool keys_have_columns = ResidentPlan<Config>::template has_columns<QkvTensor::k>,
                        values_have_columns = ResidentPlan<Config>::template has_columns<QkvTensor::v>;

  /// Statistics of columns have room for some units: no piece of work is done before those of all units in front of it
  /// are added up. Then pieces of work that are drawn lie behind the first unit that is not by no more than all
  /// pipelines hold, and the window has a unit more.
  JIT_DEVICE void wait_for_columns_before(const QuantizeWork& work) {
    if constexpr (keys_have_columns || values_have_columns) {
      for (; known_ < work.unit; ++known_) {
        if constexpr (keys_have_columns) wait_for_columns<QkvTensor::k>(known_);
        if constexpr (values_have_columns) wait_for_columns<QkvTensor::v>(known_);
      }
      // Behind keys: they come first in a unit.
      if constexpr (keys_have_columns) {
        if (work.tensor != QkvTensor::k) wait_for_columns<QkvTensor::k>(work.unit);
      }
    }
  }
  template <QkvTensor tensor>
  JIT_DEVICE void wait_for_columns(int unit) const {
    using Exchange = ResidentExchange<Config, tensor>;
    constexpr int numbers = Exchange::result_numbers * Plan<tensor>::columns;
    find_results<tensor, numbers>(unit, 0, [](int, float) {});
  }

  /// Calls `act` with `count` results of the unit, from `first` on, and which ones they are.
  template <QkvTensor tensor, int count, class Act>
  JIT_DEVICE void find_results(int unit, int first, const Act& act) const {
    const ResidentExchange<Config, tensor> exchange(params_, number_);
    constexpr int of_lane = (count + warp_size - 1) / warp_size;
    float found[of_lane];
    while (true) {
      int missing = -1;
#pragma unroll
      for (int i = 0; i < of_lane; ++i) {
        const int at = i * warp_size + lane_id();
        if (at < count && !exchange.find_result(unit, first + at, found[i])) missing = first + at;
      }
      if (__all_sync(full_warp, missing < 0)) break;
      float unused;
      while (missing >= 0 && !exchange.find_result(unit, missing, unused)) {
      }
      __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < of_lane; ++i) {
      const int at = i * warp_size + lane_id();
      if (at < count) act(at, found[i]);
    }
  }

  template <QkvTensor tensor>
  JIT_DEVICE float find_magnitude(int unit) const {
    const ResidentExchange<Config, tensor> exchange(params_, number_);
    constexpr int at_once = 4;
    const int items = Plan<tensor>::of(params_.all).items;
    float largest = 0;
    for (int first = 0; first < items; first += at_once * warp_size) {
      float found[at_once] = {};
      while (true) {
        bool is_there = true;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int item = first + i * warp_size + lane_id();
          if (item < items) is_there &= exchange.find_magnitude(unit, item, found[i]);
        }
        if (__all_sync(full_warp, is_there)) break;
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) largest = fmaxf(largest, found[i]);
    }
    return warp_max(largest);
  }

  /// Leaves with the piece of work what it waits for, and writes it where it is the unit's first one.
  template <QkvTensor tensor>
  JIT_DEVICE void tell(const ResidentPipeline<Config>& pipeline, const QuantizeWork& work) const {
    using Own = Plan<tensor>;
    constexpr int columns = Own::columns;
    const QuantizeTensor& own = Own::of(params_.all);
    const bool writes = work.item == 0;
    const int unit = work.unit, batch = unit / params_.all.heads_kv, head = unit % params_.all.heads_kv;
    float* const descale = own.descale + batch * own.descale_strides.batch + head * own.descale_strides.head;
    float* const results = pipeline.results();
    const auto tell_scale = [&](float magnitude) {
      const float scale = scale_of<Stored>(magnitude);
      if (lane_id() != 0) return;
      pipeline.factor() = __fdiv_rn(1.0f, scale);
      if (writes) *descale = scale;
    };
    if constexpr (ResidentPlan<Config>::template has_magnitude<tensor>)
      tell_scale(find_magnitude<tensor>(unit));
    if constexpr (ResidentPlan<Config>::template has_columns<tensor>) {
      constexpr int of_means = Own::is_centered ? columns : 0;
      constexpr int numbers = ResidentExchange<Config, tensor>::result_numbers * columns;
      float largest = 0;
      find_results<tensor, numbers>(unit, 0, [&](int at, float x) {
        if (at < of_means) {
          results[at] = x;
          if (writes && own.mean != nullptr) own.mean[static_cast<long long>(unit) * columns + at] = x;
        } else if constexpr (Own::scales == QuantizedScales::channel) {
          const float scale = scale_of<Stored>(x);
          results[at] = __fdiv_rn(1.0f, scale);
          if (writes) descale[at - of_means] = scale;
        } else {
          largest = fmaxf(largest, x);
        }
      });
      if constexpr (Own::scales == QuantizedScales::head) tell_scale(warp_max(largest));
    }
    if constexpr (tensor == QkvTensor::q && Config::center_keys) {
      if (params_.all.lse_shift != nullptr)
        find_results<QkvTensor::k, columns>(unit, 0, [&](int at, float x) { results[at] = x; });
    }
  }

  const ResidentParams& params_;
  unsigned number_;
  int known_ = 0;  // units whose columns are known
};

}  // namespace jit
