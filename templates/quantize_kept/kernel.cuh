// Rounds q, k and v to 8 bits, in one launch and one look at memory, with scales and means of whole sequences: a piece
// of work stays in shared memory until other blocks have told what they found of its unit.
//
// All blocks run at the same time, and each has a ring of pieces. Pieces are drawn in the order of units when there is
// room for one, never before. So the first unit that is not known has all of its pieces in rings, or room for the next
// one comes: those in front of it wait for nothing that is to come, and it has fewer pieces than all rings have slots.
#pragma once

#include "base/dependent_launch.cuh"
#include "ptx/bulk_tensor.cuh"
#include "quantize_kept/poller.cuh"
#include "quantize_kept/reducer.cuh"
#include "quantize_kept/rounding.cuh"
#include "quantize_kept/statistics.cuh"

namespace jit {

/// The thread that draws pieces of work and has their rows come.
template <class Config>
__device__ __forceinline__ void load_kept(const KeptParams& params, KeptRing<Config> ring) {
  const QuantizeParams& all = params.all;
  const int pieces = all.units * kept_unit_pieces(all);
  for (const TensorMap& map : params.maps) prefetch_tensor_map(map);
  for (int piece = static_cast<int>(blockIdx.x);; piece = draw_kept_ticket(params)) {
    ring.piece() = piece < pieces ? piece : -1;
    if (piece >= pieces) return mbarrier_arrive(ring.full());
    const QuantizeWork work = kept_work(all, piece);
    with_tensor(work.tensor, [&](auto tag) {
      constexpr QkvTensor tensor = decltype(tag)::tensor;
      using Plan = QuantizePlan<Config, tensor>;
      const int heads = Plan::of(all).heads, batch = work.unit / all.heads_kv,
                head = work.unit % all.heads_kv * heads + work.item % heads;
      mbarrier_arrive_expect_tx(ring.full(), KeptPlan<Config>::template piece_bytes<tensor>);
      cp_async_bulk_tensor_load(smem_address(ring.rows()), params.maps[static_cast<int>(tensor)], ring.full(),
                                0, work.item / heads * Plan::chunk, head, batch);
    });
    ring.advance();
    ring.wait_empty();
  }
}

template <class Config>
__device__ __forceinline__ void quantize_kept(const KeptParams& params) {
  extern __shared__ __align__(1024) char memory[];
  KeptRing<Config> ring(memory);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  wait_for_grids_before();
  const unsigned number = kept_number(params);
  constexpr int first_rounding = kept_statistics_warps, others = first_rounding + kept_rounding_warps;
  const int warp = warp_id();
  if (warp < first_rounding) {
    KeptStatistics<Config>(params, memory, number).run(ring);
  } else if (warp < others) {
    KeptRounding<Config>(params, memory, warp - first_rounding).run(ring);
  } else if (warp == others) {
    if (lane_id() == 0) load_kept<Config>(params, ring);
  } else if (warp == others + 1) {
    KeptPoller<Config>(params, number).run(ring);
  } else {
    reduce_kept<Config>(params, number);
  }
  __syncwarp();
  // Nobody reads a piece's columns any more.
  end_kept_launch(params, number, *reinterpret_cast<int*>(memory + KeptPlan<Config>::layout.factors));
}

}  // namespace jit
