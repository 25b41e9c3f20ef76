// Rounds q, k and v to 8 bits, in one launch and one pass over memory, with scales and means of whole sequences: a piece of work
// stays in shared memory until other blocks have sent the statistics of its unit.
//
// All blocks are resident, and each has a pipeline of pieces. Pieces are drawn in the order of units, and only when a slot is
// free. So the first unit with incomplete statistics has all of its pieces in pipelines, or a slot will become free: the units
// before it wait for nothing, and it has fewer pieces than all pipelines have slots.
#pragma once

#include "pipeline/dependent_launch.cuh"
#include "ptx/bulk_copy.cuh"
#include "quantize_resident/poller.cuh"
#include "quantize_resident/reducer.cuh"
#include "quantize_resident/rounding.cuh"
#include "quantize_resident/statistics.cuh"

namespace jit {

/// The thread that draws pieces of work and has their rows come.
template <class Config>
JIT_DEVICE void load_resident(const ResidentParams& params, ResidentPipeline<Config> pipeline) {
  const QuantizeParams& all = params.all;
  const int pieces = all.units * resident_unit_pieces(all);
  for (const TensorMap& map : params.maps) prefetch_tensor_map(map);
  for (int piece = static_cast<int>(blockIdx.x);; piece = draw_resident_ticket(params)) {
    pipeline.piece() = piece < pieces ? piece : -1;
    if (piece >= pieces) return mbarrier_arrive(pipeline.full());
    const QuantizeWork work = resident_work(all, piece);
    with_tensor(work.tensor, [&](auto tag) {
      constexpr QkvTensor tensor = decltype(tag)::tensor;
      using Plan = QuantizePlan<Config, tensor>;
      const int heads = Plan::of(all).heads, batch = work.unit / all.heads_kv,
                head = work.unit % all.heads_kv * heads + work.item % heads;
      mbarrier_arrive_expect_tx(pipeline.full(), ResidentPlan<Config>::template piece_bytes<tensor>);
      cp_async_bulk_tensor_load(smem_address(pipeline.rows()), params.maps[static_cast<int>(tensor)],
                                pipeline.full(), 0, work.item / heads * Plan::chunk, head, batch);
    });
    pipeline.advance();
    pipeline.producer_acquire();  // mutate: LoadsBeforeRowsAreRounded
  }
}

template <class Config>
JIT_DEVICE void quantize_resident(const ResidentParams& params) {
  extern __shared__ __align__(1024) char memory[];
  ResidentPipeline<Config> pipeline(memory);
  if (threadIdx.x == 0) pipeline.init();
  __syncthreads();
  wait_on_dependent_grids();
  const unsigned number = resident_number(params);
  constexpr int first_rounding = resident_statistics_warps, others = first_rounding + resident_rounding_warps;
  const int warp = warp_id();
  if (warp < first_rounding) {
    ResidentStatistics<Config>(params, memory, number).run(pipeline);
  } else if (warp < others) {
    ResidentRounding<Config>(params, memory, warp - first_rounding).run(pipeline);
  } else if (warp == others) {
    if (lane_id() == 0) load_resident<Config>(params, pipeline);
  } else if (warp == others + 1) {
    ResidentPoller<Config>(params, number).run(pipeline);
  } else {
    reduce_resident<Config>(params, number);
  }
  __syncwarp();
  // Nobody reads a piece's columns any more.
  end_resident_launch(params, number, *reinterpret_cast<int*>(memory + ResidentPlan<Config>::layout.factors));
}

}  // namespace jit
