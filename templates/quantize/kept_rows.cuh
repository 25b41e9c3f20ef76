// Looks at rows twice and reads them once: what a block has looked at stays in shared memory until what must be known of
// its sequence is there.
//
// Blocks draw tickets, units one after another, so that all blocks together work on a few heads at a time, and what they
// keep is enough to hold these. A block has a ring of buffers. In each turn the rows of its next piece of work are on their
// way to one, those of its present one are looked at for the first time, and those of a piece some turns ago are rounded.
//
// Nobody waits for a ticket that may not be drawn yet: of a head that the block's next ticket does not lie behind, because
// the head has more pieces than all blocks keep, or because few blocks run, rows are dropped, and read again when all
// tickets are drawn. Who waits for a head has looked at all its tickets below and in it, so that the lowest piece of work
// that is not looked at yet waits for nothing.
#pragma once

#include "base/dependent_launch.cuh"
#include "quantize/round_rows.cuh"
#include "quantize/rows_of_work.cuh"
#include "quantize/statistics.cuh"

namespace jit {

/// Whether a piece of the tensor's waits for results.
template <class Config, QkvTensor tensor>
__device__ __forceinline__ bool waits(const QuantizeParams& params) {
  return QuantizePlan<Config, tensor>::statistics > 0 || asks_for_shifts<Config, tensor>(params);
}

/// The first ticket behind all whose results a piece of work of `ticket` waits for.
template <class Config, QkvTensor tensor>
__device__ __forceinline__ int first_ticket_behind(const QuantizeParams& params, const QuantizeWork& work) {
  const int keys = params.k.items, queries = params.q.items, all = keys + queries + params.v.items;
  const int begin = work.unit * all;
  if (tensor == QkvTensor::v) return begin + all;
  if (tensor == QkvTensor::q && QuantizePlan<Config, tensor>::statistics > 0) return begin + keys + queries;
  return begin + keys;
}

/// Looks at a piece of work whose rows have come; what need not wait is rounded.
template <class Config, QkvTensor tensor>
__device__ __forceinline__ void look_first(const QuantizeParams& params, const QuantizeWork& work,
                                           QuantizeRows<Config, tensor>& rows, float* own_memory,
                                           float* shared, bool& is_last) {
  rows.arrive();
  if constexpr (QuantizePlan<Config, tensor>::statistics > 0) {
    collect_statistics(params, work, rows, own_memory, shared, is_last);
  } else if (!waits<Config, tensor>(params)) {
    round_rows(params, work, rows, shared);
  }
}

/// Rounds a piece of work when its results are there.
template <class Config, QkvTensor tensor>
__device__ __forceinline__ void look_again(const QuantizeParams& params, const QuantizeWork& work,
                                           QuantizeRows<Config, tensor>& rows, float* shared) {
  rows.arrive();
  if constexpr (QuantizePlan<Config, tensor>::statistics > 0)
    wait_by_warp(params, tensor, work.unit, rows.own().items);
  if (asks_for_shifts<Config, tensor>(params)) wait_by_warp(params, QkvTensor::k, work.unit, params.k.items);
  round_rows(params, work, rows, shared);
}

/// Of a piece of work of which all threads have done so.
template <class Config>
__device__ __forceinline__ void leave(const QuantizeParams& params, int piece) {
  const QuantizeWork work = work_of_ticket<Config>(params, piece);
  with_rows<Config>(params, work, nullptr, [&]<QkvTensor tensor>(QuantizeRows<Config, tensor>& rows) {
    if constexpr (QuantizePlan<Config, tensor>::statistics > 0)
      leave_results(params, tensor, work.unit, rows.own().items, rows.own().waiting);
    if (asks_for_shifts<Config, tensor>(params))
      leave_results(params, QkvTensor::k, work.unit, params.k.items, params.k.waiting);
  });
}

template <class Config>
__device__ __forceinline__ void look_and_keep(const QuantizeParams& params) {
  constexpr int ring = buffers<Config>, lag = ring - 2, threads = threads_of_quantizer<Config>, none = -1;
  static_assert(lag > 0 && has_quantize_phases<Config>);
  extern __shared__ __align__(16) char memory[];
  __shared__ float
      shared[maximum(threads / warp_size, maximum(QuantizePlan<Config, QkvTensor::q>::block_numbers,
                                                  QuantizePlan<Config, QkvTensor::k>::block_numbers))];
  // Of turns from `lag` ago to the next one, and one more, which a slow thread may still read.
  __shared__ int tickets[ring + 1];
  __shared__ int again;
  __shared__ bool is_last;
  auto* const own_memory = reinterpret_cast<float*>(memory + ring * buffer_bytes<Config>);
  const auto buffer_of = [&](int turn) { return memory + turn % ring * buffer_bytes<Config>; };
  const auto ticket_of = [&](int turn) -> int& { return tickets[turn % (ring + 1)]; };
  const bool is_first = threadIdx.x == 0;

  wait_for_grids_before();
  int later = none, dropped = none, left = none;  // of the first thread
  if (is_first) {
    ticket_of(0) = draw_ticket(params);
    later = ticket_of(0) < params.pieces ? draw_ticket(params) : params.pieces;
  }
  __syncthreads();
  start_copies<Config>(params, ticket_of(0), buffer_of(0));
  for (int turn = 0;; ++turn) {
    if (is_first) ticket_of(turn + 1) = later;
    __syncthreads();
    if (is_first && left != none) leave<Config>(params, left);
    left = none;
    const int piece = ticket_of(turn), next = ticket_of(turn + 1), old = ticket_of(maximum(turn - lag, 0));
    if (old >= params.pieces) break;
    start_copies<Config>(params, next, buffer_of(turn + 1));
    if (is_first) later = later < params.pieces ? draw_ticket(params) : params.pieces;
    cp_async_wait_group<1>();
    if (piece < params.pieces) {
      const QuantizeWork work = work_of_ticket<Config>(params, piece);
      with_rows<Config>(params, work, buffer_of(turn),
                        [&](auto& rows) { look_first(params, work, rows, own_memory, shared, is_last); });
    }
    if (turn < lag) continue;
    const QuantizeWork work = work_of_ticket<Config>(params, old);
    with_rows<Config>(params, work, buffer_of(turn - lag),
                      [&]<QkvTensor tensor>(QuantizeRows<Config, tensor>& rows) {
                        if (!waits<Config, tensor>(params)) return;
                        if (next >= first_ticket_behind<Config, tensor>(params, work)) {
                          look_again(params, work, rows, shared);
                          left = old;
                        } else if (is_first) {
                          params.dropped[old] = dropped;
                          dropped = old;
                        }
                      });
  }
  // All tickets are drawn. What the block has dropped comes once more.
  for (;;) {
    if (is_first) {
      again = dropped;
      if (dropped != none) dropped = params.dropped[dropped];
    }
    __syncthreads();
    const int piece = again;
    if (piece == none) break;
    start_copies<Config>(params, piece, buffer_of(0));
    cp_async_wait_group<0>();
    const QuantizeWork work = work_of_ticket<Config>(params, piece);
    with_rows<Config>(params, work, buffer_of(0),
                      [&](auto& rows) { look_again(params, work, rows, shared); });
    __syncthreads();
    if (is_first) leave<Config>(params, piece);
  }
  let_next_grid_start();
}

}  // namespace jit
