// Rounds q, k and v to 8 bits, in one launch, with scales that it finds. A piece of work is some tokens of one head of one
// tensor, whose statistics a block collects for its whole sequence, or which it rounds. Blocks are persistent
// and compute one piece after another; the rows of the next one are copied meanwhile.
#pragma once

#include "pipeline/dependent_launch.cuh"
#include "quantize/rounding.cuh"
#include "quantize/statistics.cuh"

namespace jit {

template <class Config, QkvTensor tensor>
JIT_DEVICE void round_rows(const QuantizeParams& params, const QuantizeWork& work,
                           const QuantizeRows<Config, tensor>& rows, float* shared) {
  using Plan = QuantizePlan<Config, tensor>;
  constexpr bool shifts = tensor == QkvTensor::q && Config::center_keys;
  const QuantizeTensor& own = rows.own();
  if constexpr (Plan::statistics > 0) wait_for_results(params, tensor, work.unit, own.items);
  const bool is_shifted = shifts && params.lse_shift != nullptr;
  // mutate: ShiftsDoNotWaitForMeans
  if (is_shifted) wait_for_results(params, QkvTensor::k, work.unit, params.k.items);

  const long long first = static_cast<long long>(work.unit) * 2 * Plan::columns;
  const float* const results = own.results + first;
  ColumnFactors<Config, tensor> factors;
  factors.is_shifted = is_shifted;
  load_factors(factors, rows, results, results + Plan::columns, params.k.results + first,
               results + Plan::columns);

  float* const block_scales = shared + Plan::chunk;
  if constexpr (Plan::scales == QuantizedScales::block) {
    write_magnitudes(rows, factors.means, shared);
    __syncthreads();  // mutate: MagnitudesReadEarly
    find_block_scales(rows, shared, block_scales, warp_id(), Plan::threads / warp_size);
    __syncthreads();
  }
  round_steps(params, rows, factors, block_scales);
  if constexpr (Plan::statistics > 0) write_results(params, tensor, work.unit, own.items, own.waiting);
  if (is_shifted) write_results(params, QkvTensor::k, work.unit, params.k.items, params.k.waiting);
}

/// Calls `act` with the piece's rows, which are of the tensor that it is of.
template <class Config, class Act>
JIT_DEVICE void with_rows(const QuantizeParams& params, const QuantizeWork& work, char* buffer,
                          const Act& act) {
  with_tensor(work.tensor, [&](auto tag) {
    QuantizeRows<Config, decltype(tag)::tensor> rows(params, work, buffer);
    act(rows);
  });
}

template <class Config>
JIT_DEVICE void start_copies(const QuantizeParams& params, int piece, char* buffer) {
  if (piece < params.pieces) {
    const QuantizeWork work = work_of_ticket<Config>(params, piece);
    with_rows<Config>(params, work, buffer, [](auto& rows) { rows.start(); });
  }
  cp_async_commit_group();
}

template <class Config, QkvTensor tensor>
JIT_DEVICE void do_work(const QuantizeParams& params, const QuantizeWork& work,
                        QuantizeRows<Config, tensor>& rows, float* shared, bool& is_last) {
  rows.arrive();
  if constexpr (QuantizePlan<Config, tensor>::statistics > 0) {
    if (work.is_statistics) return collect_statistics(params, work, rows, shared, is_last);
  }
  round_rows(params, work, rows, shared);
}

template <class Config>
JIT_DEVICE void quantize_qkv(const QuantizeParams& params) {
  constexpr int warps = threads_of_quantizer<Config> / warp_size;
  constexpr bool has_phases = has_quantize_phases<Config>, has_two_buffers = buffers<Config> == 2;
  extern __shared__ __align__(16) char memory[];
  __shared__ float shared[maximum(warps, maximum(QuantizePlan<Config, QkvTensor::q>::block_numbers,
                                                 QuantizePlan<Config, QkvTensor::k>::block_numbers))];
  __shared__ int drawn[2];
  __shared__ bool is_last;
  const auto buffer_of = [&](int iteration) {
    return memory + iteration % buffers<Config> * buffer_bytes<Config>;
  };
  const bool draws = has_phases && threadIdx.x == 0;
  // The next piece: thread 0 draws it, or, where no block waits for another, it follows by a fixed stride.
  const auto draw_behind = [&](int piece) {
    if constexpr (!has_phases) return piece + static_cast<int>(gridDim.x);
    return draws && piece < params.pieces ? draw_ticket(params) : params.pieces;
  };
  const auto tell = [&](int iteration, int piece) {
    if constexpr (!has_phases) return piece;
    if (draws) drawn[iteration % 2] = piece;
    __syncthreads();  // mutate: TicketReadBeforeItIsDrawn
    return drawn[iteration % 2];
  };

  wait_on_dependent_grids();
  int piece = tell(0, has_phases ? draw_behind(0) : static_cast<int>(blockIdx.x));
  start_copies<Config>(params, piece, buffer_of(0));
  int next = tell(1, draw_behind(piece));
  for (int iteration = 0; piece < params.pieces; ++iteration) {
    if constexpr (has_two_buffers) start_copies<Config>(params, next, buffer_of(iteration + 1));
    const int later = draw_behind(next);  // a ticket is on its way for as long as a piece of work takes
    cp_async_wait_group<has_two_buffers ? 1 : 0>();
    const QuantizeWork work = work_of_ticket<Config>(params, piece);
    with_rows<Config>(params, work, buffer_of(iteration),
                      [&](auto& rows) { do_work(params, work, rows, shared, is_last); });
    if constexpr (!has_phases) __syncthreads();
    piece = next;
    next = tell(iteration, later);
    if constexpr (!has_two_buffers) start_copies<Config>(params, piece, buffer_of(0));
  }
  launch_dependent_grids();
}

}  // namespace jit
