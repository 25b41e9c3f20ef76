// Sends P ∘ f′ of each tile of queries from the block that sums dV to the block that sums dK of the same keys, which multiplies
// it by dP − delta. As fp32, in the order of registers.
#pragma once

#include "backward_wide/traits.cuh"
#include "base/prelude.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_dkv_wide_wgmma {

using namespace backward_wide;

/// Ranks of the blocks of a pair.
inline constexpr int rank_of_dv = 0, rank_of_dk = 1;

/// One side's place. By the score warpgroups.
template <class Traits>
class Exchange {
  static constexpr PipelinePlace place = Traits::layout.exchange;
  static constexpr int bytes = tile_rows * tile_rows * static_cast<int>(sizeof(float));
  static constexpr int blocks = Traits::Scores::column_blocks;

 public:
  JIT_DEVICE explicit Exchange(unsigned smem) : smem_(smem) {}

  /// By the block of dV.
  JIT_DEVICE void send(const float (&values)[blocks][4]) {
    mbarrier_wait_parity(smem_ + place.empty + stage() * 8, parity() ^ 1);  // mutate: ExchangeIsOverwritten
    const unsigned tile = cluster_address(own_place(), rank_of_dk);
    const unsigned full = cluster_address(smem_ + place.full + stage() * 8, rank_of_dk);
#pragma unroll
    for (int n = 0; n < blocks; ++n)
      store_async(tile + n * warpgroup_size * 16,
                  make_float4(values[n][0], values[n][1], values[n][2], values[n][3]), full);
    ++round_;
  }
  /// By the block of dK.
  JIT_DEVICE void receive(float (&values)[blocks][4]) {
    const unsigned full = smem_ + place.full + stage() * 8;
    if (threadIdx.x % warpgroup_size == 0) mbarrier_arrive_expect_tx(full, bytes);
    mbarrier_wait_parity_cluster(full, parity());
    const unsigned tile = own_place();
#pragma unroll
    for (int n = 0; n < blocks; ++n) load_shared(values[n], tile + n * warpgroup_size * 16);
    __syncwarp();
    if (lane_id() == 0)
      mbarrier_arrive_cluster(cluster_address(smem_ + place.empty + stage() * 8, rank_of_dv));
    ++round_;
  }

 private:
  JIT_DEVICE unsigned stage() const { return round_ % stages_exchange; }
  JIT_DEVICE unsigned parity() const { return round_ / stages_exchange % 2; }
  JIT_DEVICE unsigned own_place() const {
    return smem_ + place.tiles + stage() * bytes + reread_thread_index() % warpgroup_size * 16;
  }

  const unsigned smem_;
  unsigned round_ = 0;
};

}  // namespace jit::backward_dkv_wide_wgmma
