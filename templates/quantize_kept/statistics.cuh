// The warps that look at rows first: what each piece of work leaves of its rows for the blocks that round others of its
// unit. Each warp stands for two of those that a piece of work has elsewhere, and sums go in the same order.
#pragma once

#include "ptx/warpgroup.cuh"
#include "quantize/statistics.cuh"
#include "quantize_kept/exchange.cuh"
#include "quantize_kept/ring.cuh"

namespace jit {

/// Calls `act` with the rows of each warp that warp `warp` of a role of `warps` stands for, and with that one's number.
template <class Config, QkvTensor tensor, int warps, class Act>
__device__ __forceinline__ void with_kept_rows(const KeptParams& params, const QuantizeWork& work, char* slot,
                                               int warp, const Act& act) {
#pragma unroll
  for (int turn = 0; turn < KeptPlan<Config>::warps / warps; ++turn) {
    const int stands_for = turn * warps + warp;
    const QuantizeRows<Config, tensor> rows(params.all, work, slot, stands_for * warp_size + lane_id());
    act(rows, stands_for);
  }
}

template <class Config>
class KeptStatistics {
  static constexpr int threads = kept_statistics_warps * warp_size;
  static constexpr int named_barrier = 1;
  static constexpr KeptLayout layout = KeptPlan<Config>::layout;

 public:
  __device__ __forceinline__ KeptStatistics(const KeptParams& params, char* memory, unsigned number)
      : params_(params),
        shared_(reinterpret_cast<float*>(memory + layout.statistics)),
        magnitudes_(reinterpret_cast<float*>(memory + layout.magnitudes)),
        number_(number) {}

  /// By the warps of the role, which are the first ones of the block.
  __device__ __forceinline__ void run(KeptRing<Config> ring) {
    while (true) {
      ring.wait_full();
      const int piece = ring.piece();
      if (piece < 0) return;
      const QuantizeWork work = kept_work(params_.all, piece);
      with_tensor(work.tensor, [&](auto tag) {
        constexpr QkvTensor tensor = decltype(tag)::tensor;
        if constexpr (KeptPlan<Config>::template has_columns<tensor>) {
          columns<tensor>(ring, work);
        } else if constexpr (KeptPlan<Config>::template has_magnitude<tensor>) {
          magnitude<tensor>(ring, work);
        } else {
          ring.arrive_ready();
        }
      });
      ring.advance();
    }
  }

 private:
  static __device__ __forceinline__ void meet() { bar_sync(named_barrier, threads); }

  template <QkvTensor tensor>
  __device__ __forceinline__ void magnitude(const KeptRing<Config>& ring, const QuantizeWork& work) {
    float found = 0;
    with_kept_rows<Config, tensor, kept_statistics_warps>(
        params_, work, ring.rows(), warp_id(),
        [&](const auto& rows, int) { found = fmaxf(found, largest_magnitude(rows)); });
    ring.arrive_ready();
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2)
      found = fmaxf(found, __shfl_xor_sync(full_warp, found, offset));
    // Two places by turns: when a warp is at the next barrier, it has read what stands before this one.
    float* const of_warps = magnitudes_ + turn_ * kept_statistics_warps;
    if (lane_id() == 0) of_warps[warp_id()] = found;
    meet();
    if (threadIdx.x == 0) {
#pragma unroll
      for (int warp = 1; warp < kept_statistics_warps; ++warp) found = fmaxf(found, of_warps[warp]);
      KeptExchange<Config, tensor>(params_, number_).leave_magnitude(work.unit, work.item, found);
    }
    turn_ ^= 1;
  }

  template <QkvTensor tensor>
  __device__ __forceinline__ void columns(const KeptRing<Config>& ring, const QuantizeWork& work) {
    using Plan = QuantizePlan<Config, tensor>;
    meet();  // all have read what the piece before has left
    with_kept_rows<Config, tensor, kept_statistics_warps>(
        params_, work, ring.rows(), warp_id(),
        [&](const auto& rows, int warp) { leave_statistics(rows, warp, [&] { return shared_; }); });
    ring.arrive_ready();
    meet();
    const KeptExchange<Config, tensor> exchange(params_, number_);
    for (int column = static_cast<int>(threadIdx.x); column < Plan::columns; column += threads) {
      float found[ColumnStatistics<Plan>::count];
#pragma unroll
      for (int which = 0; which < ColumnStatistics<Plan>::count; ++which)
        found[which] = statistic_of_warps<Plan>(shared_, which * Plan::columns + column);
      exchange.leave_statistics(work.unit, work.item, column, found);
    }
  }

  const KeptParams& params_;
  float* shared_;
  float* magnitudes_;
  unsigned number_;
  int turn_ = 0;
};

}  // namespace jit
