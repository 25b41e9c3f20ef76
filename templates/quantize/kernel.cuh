// Rounds q, k and v to 8 bits, in one launch, with scales that it finds. A block has some tokens of one head of one
// tensor, and collects what must be known of a whole sequence, or rounds.
#pragma once

#include "base/dependent_launch.cuh"
#include "base/fp8_scale.cuh"
#include "quantize/rows.cuh"
#include "quantize/statistics.cuh"

namespace jit {

/// Sums over the lanes of a row, largest numbers over the same.
template <RowLanes share, class Combine>
__device__ __forceinline__ float over_row(float x, const Combine& combine) {
#pragma unroll
  for (int offset = share.lanes / 2; offset > 0; offset /= 2)
    x = combine(x, __shfl_xor_sync(full_warp, x, offset));
  return x;
}

template <class Config, QkvTensor tensor>
__device__ __forceinline__ void round_rows(const QuantizeParams& params, const QuantizeWork& work) {
  using Plan = QuantizePlan<Config, tensor>;
  using Rows = QuantizeRows<Config, tensor>;
  using Stored = typename Config::StoredElement;
  constexpr RowLanes share = Plan::share;
  constexpr bool shifts = tensor == QkvTensor::q && Config::center_keys;
  Rows rows(params, work);
  const QuantizeTensor& own = rows.own();
  rows.load();
  if constexpr (Plan::statistics > 0) wait_for_results(params, tensor, work.unit, own.items, own.waiting);
  const bool is_shifted = shifts && params.lse_shift != nullptr;
  if (is_shifted) wait_for_results(params, QkvTensor::k, work.unit, params.k.items, params.k.waiting);

  typename Rows::Row means = {}, factors = {}, key_means = {};
  const float* const results = own.results + static_cast<long long>(work.unit) * 2 * Plan::columns;
  float given = 1;
  if (Plan::scales == QuantizedScales::given && own.descale != nullptr) {
    given = __fdiv_rn(
        1.0f,
        own.descale[rows.batch() * own.descale_strides.batch + rows.kv_head() * own.descale_strides.head]);
  }
  rows.for_pieces([&](int turn, int column) {
    if constexpr (Plan::is_centred) load_piece<chunk_bytes>(results + column, means[turn]);
    if constexpr (Plan::has_extremes) {
      load_piece<chunk_bytes>(results + Plan::columns + column, factors[turn]);
    } else {
#pragma unroll
      for (int i = 0; i < share.piece; ++i) factors[turn][i] = given;
    }
    if (is_shifted)
      load_piece<chunk_bytes>(
          params.k.results + static_cast<long long>(work.unit) * 2 * Plan::columns + column, key_means[turn]);
  });

  Stored* const to = static_cast<Stored*>(own.to) + rows.offset(own.to_strides);
  constexpr int alignment = Config::alignment / static_cast<int>(sizeof(typename Config::Element));
#pragma unroll
  for (int step = 0; step < quantize_steps; ++step) {
    typename Rows::Row row;
    rows.take(step, row);
    float magnitude = 0, shift = 0;
    rows.for_pieces([&](int turn, int) {
#pragma unroll
      for (int i = 0; i < share.piece; ++i) {
        if constexpr (shifts) shift += row[turn][i] * key_means[turn][i];
        if constexpr (Plan::is_centred) row[turn][i] -= means[turn][i];
        magnitude = fmaxf(magnitude, fabsf(row[turn][i]));
      }
    });
    float of_token = 1;
    if constexpr (Plan::scales == QuantizedScales::token) {
      const float scale =
          scale_of<Stored>(over_row<share>(magnitude, [](float a, float b) { return fmaxf(a, b); }));
      of_token = __fdiv_rn(1.0f, scale);
      if (rows.lane() == 0 && rows.has_row(step))
        own.descale[rows.offset(own.descale_strides) + rows.token(step) * own.descale_strides.seq] = scale;
    }
    if constexpr (shifts) {
      const float sum = over_row<share>(shift, [](float a, float b) { return a + b; });
      if (is_shifted && rows.lane() == 0 && rows.has_row(step)) {
        params.lse_shift[rows.batch() * params.lse_shift_batch_stride +
                         rows.head() * params.lse_shift_head_stride + rows.token(step)] = sum;
      }
    }
    if (!rows.has_row(step)) continue;
    rows.for_pieces([&](int turn, int column) {
      unsigned words[(share.piece + 3) / 4] = {};
#pragma unroll
      for (int i = 0; i < share.piece; i += 2) {
        const auto element = [&](int at) {
          return at < share.piece
                     ? row[turn][at] * (Plan::scales == QuantizedScales::token ? of_token : factors[turn][at])
                     : 0.0f;
        };
        words[i / 4] |= pack_fp8<Stored>(element(i), element(i + 1)) << (i % 4 * 8);
      }
      store_words<share.piece, maximum(alignment, 1)>(to + rows.token(step) * own.to_strides.seq + column,
                                                      words);
    });
  }
}

template <class Config, QkvTensor tensor>
__device__ __forceinline__ void do_work(const QuantizeParams& params, const QuantizeWork& work, float* shared,
                                        bool& is_last) {
  if constexpr (QuantizePlan<Config, tensor>::statistics > 0) {
    if (work.is_statistics) return collect_statistics<Config, tensor>(params, work, shared, is_last);
  }
  round_rows<Config, tensor>(params, work);
}

template <class Config>
__device__ __forceinline__ void quantize_qkv(const QuantizeParams& params) {
  constexpr auto numbers = [](int statistics, int columns) { return statistics * columns; };
  using Q = QuantizePlan<Config, QkvTensor::q>;
  using K = QuantizePlan<Config, QkvTensor::k>;
  using V = QuantizePlan<Config, QkvTensor::v>;
  constexpr int most =
      maximum(maximum(numbers(Q::statistics, Q::columns), numbers(K::statistics, K::columns)),
              maximum(numbers(V::statistics, V::columns), 1));
  __shared__ float shared[quantize_threads / warp_size * most];
  __shared__ int ticket;
  __shared__ bool is_last;
  wait_for_grids_before();
  int place = static_cast<int>(blockIdx.x);
  if constexpr (has_quantize_phases<Config>) {
    if (threadIdx.x == 0) ticket = draw_ticket(params.counters);
    __syncthreads();
    place = ticket;
  }
  const QuantizeWork work = work_of_ticket<Config>(params, place);
  switch (work.tensor) {
    case QkvTensor::q:
      do_work<Config, QkvTensor::q>(params, work, shared, is_last);
      break;
    case QkvTensor::k:
      do_work<Config, QkvTensor::k>(params, work, shared, is_last);
      break;
    case QkvTensor::v:
      do_work<Config, QkvTensor::v>(params, work, shared, is_last);
      break;
  }
  let_next_grid_start();
}

}  // namespace jit
