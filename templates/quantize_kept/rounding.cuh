// The warps that round rows where they lie in shared memory, as soon as all is known of them.
#pragma once

#include "ptx/bulk_tensor.cuh"
#include "ptx/warpgroup.cuh"
#include "quantize/rounding.cuh"
#include "quantize_kept/statistics.cuh"

namespace jit {

template <class Config>
class KeptRounding {
  static constexpr int threads = kept_rounding_warps * warp_size;
  static constexpr int named_barrier = 2;
  static constexpr KeptLayout layout = KeptPlan<Config>::layout;

 public:
  /// `warp` is that of the role.
  __device__ __forceinline__ KeptRounding(const KeptParams& params, char* memory, int warp)
      : params_(params), blocks_(reinterpret_cast<float*>(memory + layout.blocks)), warp_(warp) {}

  __device__ __forceinline__ void run(KeptRing<Config> ring) const {
    while (true) {
      ring.wait_full();
      const int piece = ring.piece();
      if (piece < 0) return;
      const QuantizeWork work = kept_work(params_.all, piece);
      ring.wait_ready();
      with_tensor(work.tensor, [&](auto tag) { round<decltype(tag)::tensor>(ring, work); });
      ring.arrive_empty();
      ring.advance();
    }
  }

 private:
  static __device__ __forceinline__ void meet() { bar_sync(named_barrier, threads); }

  template <QkvTensor tensor, class Act>
  __device__ __forceinline__ void with_rows(const KeptRing<Config>& ring, const QuantizeWork& work,
                                            const Act& act) const {
    with_kept_rows<Config, tensor, kept_rounding_warps>(params_, work, ring.rows(), warp_, act);
  }

  /// The same for all rows of a lane, which has the same columns of each.
  template <QkvTensor tensor>
  __device__ __forceinline__ ColumnFactors<Config, tensor> factors_of(
      const KeptRing<Config>& ring, const QuantizeRows<Config, tensor>& rows) const {
    using Plan = QuantizePlan<Config, tensor>;
    ColumnFactors<Config, tensor> factors;
    factors.is_shifted = tensor == QkvTensor::q && Config::center_keys && params_.all.lse_shift != nullptr;
    const float* const results = ring.results();
    float of_head = 1;
    if constexpr (Plan::scales == QuantizedScales::given) of_head = given_factor(rows);
    if constexpr (Plan::scales == QuantizedScales::head) of_head = ring.factor();
    rows.for_pieces([&](int turn, int column) {
      if constexpr (Plan::is_centred) load_piece<chunk_bytes>(results + column, factors.means[turn]);
      if constexpr (Plan::scales == QuantizedScales::channel) {
        load_piece<chunk_bytes>(results + (Plan::is_centred ? Plan::columns : 0) + column,
                                factors.scales[turn]);
      } else {
#pragma unroll
        for (int i = 0; i < Plan::share.piece; ++i) factors.scales[turn][i] = of_head;
      }
      if (factors.is_shifted) load_piece<chunk_bytes>(results + column, factors.key_means[turn]);
    });
    return factors;
  }

  template <QkvTensor tensor>
  __device__ __forceinline__ void round(const KeptRing<Config>& ring, const QuantizeWork& work) const {
    using Plan = QuantizePlan<Config, tensor>;
    const QuantizeRows<Config, tensor> first(params_.all, work, ring.rows(), warp_ * warp_size + lane_id());
    const ColumnFactors<Config, tensor> factors = factors_of<tensor>(ring, first);
    float* const block_scales = blocks_ + Plan::chunk;
    if constexpr (Plan::scales == QuantizedScales::block) {
      meet();  // all have read the scales of the piece before
      with_rows<tensor>(ring, work,
                        [&](const auto& rows, int) { leave_magnitudes(rows, factors.means, blocks_); });
      meet();
      find_block_scales(first, blocks_, block_scales, warp_, kept_rounding_warps);
      meet();
    }
    with_rows<tensor>(ring, work,
                      [&](const auto& rows, int) { round_steps(params_.all, rows, factors, block_scales); });
  }

  const KeptParams& params_;
  float* blocks_;
  int warp_;
};

}  // namespace jit
