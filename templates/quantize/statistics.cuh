// Statistics of a whole sequence: sums and extremes of columns. Each piece of work leaves those of its rows, and
// the one that comes last adds up all of them, always in the same order, and works out means and scales.
#pragma once

#include "base/warp_sum.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fp8.cuh"
#include "quantize/rows.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Statistics of a column: its sum, largest and least number where it is centered, else its largest magnitude.
template <class Plan>
struct ColumnStatistics {
  static constexpr int count = Plan::statistics / Plan::columns;

  static JIT_DEVICE float none(int which) {
    if constexpr (!Plan::is_centered) return 0;
    return which == 0 ? 0 : which == 1 ? negative_infinity() : -negative_infinity();
  }
  static JIT_DEVICE float of_number(int, float x) { return Plan::is_centered ? x : fabsf(x); }
  static JIT_DEVICE float both(int which, float a, float b) {
    if constexpr (!Plan::is_centered) return fmaxf(a, b);
    return which == 0 ? a + b : which == 1 ? fmaxf(a, b) : fminf(a, b);
  }
};

/// Writes the statistics of the rows of a warp, which is `warp` among those of the piece of work, in a line of
/// columns for each number of what `memory()` gives when the rows have been taken.
template <class Config, QkvTensor tensor, class Memory>
JIT_DEVICE void write_statistics(const QuantizeRows<Config, tensor>& rows, int warp, const Memory& memory) {
  using Plan = QuantizePlan<Config, tensor>;
  using Statistics = ColumnStatistics<Plan>;
  constexpr RowLanes share = Plan::share;
  float found[Statistics::count][share.iterations][share.piece];
  const auto for_all = [&](const auto& act) {
#pragma unroll
    for (int which = 0; which < Statistics::count; ++which) {
#pragma unroll
      for (int iteration = 0; iteration < share.iterations; ++iteration) {
#pragma unroll
        for (int i = 0; i < share.piece; ++i) act(which, iteration, i, found[which][iteration][i]);
      }
    }
  };
  for_all([](int which, int, int, float& x) { x = Statistics::none(which); });
#pragma unroll Plan::steps_at_once
  for (int step = 0; step < quantize_steps; ++step) {
    typename QuantizeRows<Config, tensor>::Row row;
    rows.take(step, row);
    if (!rows.has_row(step)) continue;
    for_all([&](int which, int iteration, int i, float& x) {
      x = Statistics::both(which, x, Statistics::of_number(which, row[iteration][i]));
    });
  }
  for_all([&](int which, int, int, float& x) {
#pragma unroll
    for (int offset = share.lanes; offset < warp_size; offset *= 2)
      x = Statistics::both(which, x, __shfl_xor_sync(full_warp, x, offset));
  });
  float* const shared = memory();
  if (lane_id() >= share.lanes) return;
  rows.for_pieces([&](int iteration, int column) {
#pragma unroll
    for (int which = 0; which < Statistics::count; ++which) {
#pragma unroll
      for (int i = 0; i < share.piece; ++i)
        shared[(warp * Statistics::count + which) * Plan::columns + column + i] = found[which][iteration][i];
    }
  });
}

/// The numbers `at` that all warps have left at `shared`, in the order of warps.
template <class Plan>
JIT_DEVICE float statistic_of_warps(const float* shared, int at) {
  using Statistics = ColumnStatistics<Plan>;
  constexpr int warps = Plan::threads / warp_size;
  float sum = shared[at];
#pragma unroll
  for (int warp = 1; warp < warps; ++warp)
    sum = Statistics::both(at / Plan::columns, sum, shared[warp * Plan::statistics + at]);
  return sum;
}

/// Adds up the statistics of a piece of work's rows in global memory, by way of shared memory: a line of columns for each
/// warp and number.
template <class Config, QkvTensor tensor>
JIT_DEVICE void collect(const QuantizeRows<Config, tensor>& rows, float* target) {
  using Plan = QuantizePlan<Config, tensor>;
  constexpr int warps = Plan::threads / warp_size;
  static_assert(warps * Plan::statistics * static_cast<int>(sizeof(float)) <= Plan::row_bytes);
  float* shared = nullptr;
  write_statistics(rows, warp_id(), [&] { return shared = static_cast<float*>(rows.scratch()); });
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < Plan::statistics; at += Plan::threads)
    target[at] = statistic_of_warps<Plan>(shared, at);
}

/// The mean of a column whose tensor has so many rows of a head.
JIT_DEVICE float mean_of_sum(const QuantizeTensor& own, float sum, int rows) {
  const long long count = static_cast<long long>(rows) * own.heads;
  return count > 0 ? __fdiv_rn(sum, static_cast<float>(count)) : 0.0f;
}

/// The largest magnitude of a column without its mean, from its largest and its least number.
JIT_DEVICE float centered_magnitude(float mean, float most, float least) {
  return fmaxf(fmaxf(most - mean, mean - least), 0.0f);
}

/// Works out means and scales of a unit's tensor, of which `items` pieces of work have left their statistics at `source`.
/// By a block.
template <class Config, QkvTensor tensor>
JIT_DEVICE void finish_statistics(const QuantizeRows<Config, tensor>& rows, int unit, const float* source) {
  using Plan = QuantizePlan<Config, tensor>;
  using Statistics = ColumnStatistics<Plan>;
  using Stored = typename Config::StoredElement;
  constexpr int columns = Plan::columns, numbers = Plan::statistics;
  const QuantizeTensor& own = rows.own();
  const int thread = static_cast<int>(threadIdx.x);
  // Totals, then as many pieces' statistics as there is room for: all of these are on their way at once. Sums go in the
  // order of the pieces.
  constexpr int room = Plan::row_bytes / static_cast<int>(sizeof(float)) / numbers - 1,
                at_once = chunk_bytes / 4;
  static_assert(room > 0 && numbers % at_once == 0);
  auto* const shared = static_cast<float*>(rows.scratch());
  float* const staged = shared + numbers;
  for (int first = 0; first < own.items; first += room) {
    const int count = minimum(room, own.items - first);
    for (int at = thread * at_once; at < count * numbers; at += Plan::threads * at_once)
      cp_async<chunk_bytes>(smem_address(staged + at), source + static_cast<long long>(first) * numbers + at);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    __syncthreads();
    for (int at = thread; at < numbers; at += Plan::threads) {
      float sum = first == 0 ? staged[at] : shared[at];
#pragma unroll 8
      for (int item = first == 0 ? 1 : 0; item < count; ++item)
        sum = Statistics::both(at / columns, sum, staged[item * numbers + at]);
      shared[at] = sum;
    }
    __syncthreads();
  }
  float* const means = own.results + static_cast<long long>(unit) * 2 * columns;
  float* const factors = means + columns;
  const int rows_there = Plan::is_centered ? rows.sequences().count() : 0;  // mutate: MeansOverAllRows
  const auto mean_of = [&](int column) {
    return Plan::is_centered ? mean_of_sum(own, shared[column], rows_there) : 0.0f;
  };
  const auto magnitude_of = [&](int column) {
    if constexpr (!Plan::is_centered) return shared[column];
    return centered_magnitude(mean_of(column), shared[columns + column], shared[2 * columns + column]);
  };
  if constexpr (Plan::is_centered) {
    for (int column = thread; column < columns; column += Plan::threads) {
      means[column] = mean_of(column);
      if (own.mean != nullptr) own.mean[static_cast<long long>(unit) * columns + column] = mean_of(column);
    }
  }
  if constexpr (Plan::has_extremes) {
    float* const descale =
        own.descale + rows.batch() * own.descale_strides.batch + rows.kv_head() * own.descale_strides.head;
    float of_head = 0;
    if constexpr (Plan::scales == QuantizedScales::head) {
      for (int column = lane_id(); column < columns; column += warp_size)
        of_head = fmaxf(of_head, magnitude_of(column));
      of_head = scale_of<Stored>(warp_max(of_head));
      if (thread == 0) *descale = of_head;
    }
    for (int column = thread; column < columns; column += Plan::threads) {
      const float scale =
          Plan::scales == QuantizedScales::head ? of_head : scale_of<Stored>(magnitude_of(column));
      if (Plan::scales == QuantizedScales::channel) descale[column] = scale;
      factors[column] = __fdiv_rn(1.0f, scale);
    }
  }
}

/// The largest magnitude of the lane's rows.
template <class Config, QkvTensor tensor>
JIT_DEVICE float largest_magnitude(const QuantizeRows<Config, tensor>& rows) {
  using Plan = QuantizePlan<Config, tensor>;
  float found = 0;
#pragma unroll Plan::steps_at_once
  for (int step = 0; step < quantize_steps; ++step) {
    typename QuantizeRows<Config, tensor>::Row row;
    rows.take(step, row);
    if (!rows.has_row(step)) continue;
    rows.for_pieces([&](int iteration, int) {
#pragma unroll
      for (int i = 0; i < Plan::share.piece; ++i) found = fmaxf(found, fabsf(row[iteration][i]));
    });
  }
  return found;
}

/// Collects the largest magnitude that a piece of work leaves of its rows: the first warp alone goes on from there,
/// and where it is the last one of a unit's makes a scale of them.
template <class Config, QkvTensor tensor>
JIT_DEVICE void collect_magnitude(const QuantizeRows<Config, tensor>& rows, int unit, int item,
                                  unsigned* counter, float* shared, float* of_unit) {
  using Plan = QuantizePlan<Config, tensor>;
  const QuantizeTensor& own = rows.own();
  float found = warp_max(largest_magnitude(rows));
  if (lane_id() == 0) shared[warp_id()] = found;
  __syncthreads();  // mutate: MagnitudesOfWarpsReadEarly
  if (warp_id() != 0) return;
  found = warp_max(lane_id() < Plan::threads / warp_size ? shared[lane_id()] : 0.0f);
  int is_last = 0;
  if (lane_id() == 0) {
    of_unit[item] = found;
    // mutate: MagnitudesOfAllButTheLast
    is_last = count_one(counter) + 1 == static_cast<unsigned>(own.items);
  }
  // It also makes what the counter's lane has acquired the warp's.
  __syncwarp();
  if (__shfl_sync(full_warp, is_last, 0) == 0) return;
  found = 0;
#pragma unroll 8
  for (int at = lane_id(); at < own.items; at += warp_size) found = fmaxf(found, of_unit[at]);
  const float scale = scale_of<typename Config::StoredElement>(warp_max(found));
  if (lane_id() != 0) return;
  own.descale[rows.batch() * own.descale_strides.batch + rows.kv_head() * own.descale_strides.head] = scale;
  own.results[static_cast<long long>(unit) * 2 * Plan::columns + Plan::columns] = __fdiv_rn(1.0f, scale);
  count_one(counter);
}

/// `shared` has a float for each warp.
template <class Config, QkvTensor tensor>
JIT_DEVICE void collect_statistics(const QuantizeParams& params, const QuantizeWork& work,
                                   const QuantizeRows<Config, tensor>& rows, float* shared, bool& is_last) {
  using Plan = QuantizePlan<Config, tensor>;
  constexpr int numbers = Plan::statistics;
  float* const of_unit =
      rows.own().statistics + static_cast<long long>(work.unit) * rows.own().items * numbers;
  unsigned* const counter = results_counter(params, tensor, work.unit);
  if constexpr (Plan::has_one_statistic) {
    collect_magnitude(rows, work.unit, work.item, counter, shared, of_unit);
  } else {
    collect(rows, of_unit + static_cast<long long>(work.item) * numbers);
    __syncthreads();  // mutate: CountedBeforeAllHaveStored
    // mutate: StatisticsOfTheLastButOne
    if (threadIdx.x == 0) is_last = count_one(counter) + 1 == static_cast<unsigned>(rows.own().items);
    __syncthreads();
    if (!is_last) return;
    finish_statistics(rows, work.unit, of_unit);
    __syncthreads();  // mutate: ResultsBeforeTheyAreThere
    if (threadIdx.x == 0) count_one(counter);
  }
}

}  // namespace jit
