// The scheduler of pieces of work.
//
// A unit holds the rows of a batch entry and a KV head. Where scales depend on whole sequences, each unit has two phases: its
// statistics are collected, then its elements are rounded. One launch does both: blocks draw tickets, and the order of tickets
// puts the second phase of a unit some units behind its first, so that its second read hits L2. A block takes its tickets in
// ascending order, and waits only for tickets lower than its current one, which resident blocks have drawn: the lowest
// unfinished ticket waits for nothing, and no block waits for one that is not resident.
#pragma once

#include "ptx/atomic.cuh"
#include "quantize/plan.cuh"

namespace jit {

struct QuantizeWork {
  bool is_statistics;
  QkvTensor tensor;
  int unit;
  int item;  ///< of the unit's tensor
};

/// A count that starts from all bits 1.
JIT_DEVICE unsigned count_one(unsigned* counter) { return atomic_add_acq_rel(counter, 1) + 1; }

/// By one thread. Who draws learns nothing else: no order of memory comes with it. Each block draws until it has one ticket
/// for which there is no work; the very last one makes the counter what it was.
JIT_DEVICE int draw_ticket(const QuantizeParams& params) {
  const unsigned ticket = atomic_add_relaxed(params.counters, 1) + 1;
  if (ticket + 1 == static_cast<unsigned>(params.pieces) + gridDim.x)  // mutate: TicketsLeftBehind
    store_relaxed(reinterpret_cast<int*>(params.counters), -1);
  return static_cast<int>(ticket);
}

template <class Config>
JIT_DEVICE QuantizeWork work_of_ticket(const QuantizeParams& params, int ticket) {
  constexpr bool q = QuantizePlan<Config, QkvTensor::q>::statistics > 0,
                 k = QuantizePlan<Config, QkvTensor::k>::statistics > 0,
                 v = QuantizePlan<Config, QkvTensor::v>::statistics > 0;
  const int all = params.q.items + params.k.items + params.v.items;
  // Queries may wait for the means of keys. Where values alone have statistics, they wait the longer, being last.
  const auto place = [&](bool is_statistics, int unit, int item) -> QuantizeWork {
    const int keys = !is_statistics || k ? params.k.items : 0,
              queries = !is_statistics || q ? params.q.items : 0;
    if (item < keys) return {is_statistics, QkvTensor::k, unit, item};
    if (item < keys + queries) return {is_statistics, QkvTensor::q, unit, item - keys};
    return {is_statistics, QkvTensor::v, unit, item - keys - queries};
  };
  if constexpr (!has_quantize_phases<Config>) {
    return place(false, ticket % params.units, ticket / params.units);  // heads of a token are neighbors
  } else {
    const int first = (q ? params.q.items : 0) + (k ? params.k.items : 0) + (v ? params.v.items : 0);
    const int lag = params.lag, rounds = params.units - lag;
    if (ticket < lag * first) return place(true, ticket / first, ticket % first);
    ticket -= lag * first;
    const int unit = ticket / (first + all), item = ticket % (first + all);
    if (unit < rounds) return item < first ? place(true, unit + lag, item) : place(false, unit, item - first);
    ticket -= rounds * (first + all);
    return place(false, rounds + ticket / all, ticket % all);
  }
}

/// The counter of a unit's tensor: pieces of statistics that are done, then one for the results, then those that wait.
JIT_DEVICE unsigned* results_counter(const QuantizeParams& params, QkvTensor tensor, int unit) {
  return params.counters + 1 + 3 * unit + static_cast<int>(tensor);
}

/// The counter of a tensor of `items` pieces of work, plus 1, when its results are there.
// mutate: WaitsForAllButTheResults
JIT_DEVICE unsigned ready_count(int items) { return static_cast<unsigned>(items) + 1; }

/// Waits for the results of a unit's tensor, by all threads of a block.
JIT_DEVICE void wait_for_results(const QuantizeParams& params, QkvTensor tensor, int unit, int items) {
  if (threadIdx.x == 0) {
    const auto* const counter = reinterpret_cast<const int*>(results_counter(params, tensor, unit));
    while (static_cast<unsigned>(load_acquire(counter)) + 1 < ready_count(items)) {
    }
  }
  __syncthreads();  // mutate: OnlyOneThreadWaits
}

/// Writes the results of a block that has waited, once for each piece of work: the last one makes the counter
/// what it was. Nobody waits for that, so that it may come when all else is done.
JIT_DEVICE void write_results(const QuantizeParams& params, QkvTensor tensor, int unit, int items,
                              int waiting) {
  if (threadIdx.x != 0) return;
  unsigned* const counter = results_counter(params, tensor, unit);
  // mutate: CounterLeftBehind
  if (atomic_add_relaxed(counter, 1) + 2 == ready_count(items) + static_cast<unsigned>(waiting))
    store_relaxed(reinterpret_cast<int*>(counter), -1);
}

}  // namespace jit
