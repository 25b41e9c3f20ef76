// Rounds rows, once the statistics of their sequence are complete.
#pragma once

#include "base/warp_sum.cuh"
#include "ptx/fp8.cuh"
#include "quantize/rows.cuh"

namespace jit {

/// Sums over the lanes of a row, largest numbers over the same.
template <RowLanes share, class Combine>
JIT_DEVICE float over_row(float x, const Combine& combine) {
#pragma unroll
  for (int offset = share.lanes / 2; offset > 0; offset /= 2)
    x = combine(x, __shfl_xor_sync(full_warp, x, offset));
  return x;
}

/// The means that a lane's columns lose, and the factors that they are multiplied by.
template <class Config, QkvTensor tensor>
struct ColumnFactors {
  using Row = typename QuantizeRows<Config, tensor>::Row;

  Row means = {};
  Row scales = {};     ///< 1 / scale; of heads and channels, and given ones
  Row key_means = {};  ///< of q, where `is_shifted`
  bool is_shifted = false;
};

/// 1 / the scale that is given, or 1.
template <class Config, QkvTensor tensor>
JIT_DEVICE float given_factor(const QuantizeRows<Config, tensor>& rows) {
  const QuantizeTensor& own = rows.own();
  if (own.descale == nullptr) return 1;
  return __fdiv_rn(
      1.0f,
      own.descale[rows.batch() * own.descale_strides.batch + rows.kv_head() * own.descale_strides.head]);
}

/// Loads the factors for all rows of a lane, which has the same columns of each; 1 / the scale of a head lies at `of_head`.
template <class Config, QkvTensor tensor>
JIT_DEVICE void load_factors(ColumnFactors<Config, tensor>& factors, const QuantizeRows<Config, tensor>& rows,
                             const float* means, const float* scales, const float* key_means,
                             const float* of_head) {
  using Plan = QuantizePlan<Config, tensor>;
  float given = 1;
  if constexpr (Plan::scales == QuantizedScales::given) given = given_factor(rows);
  if constexpr (Plan::scales == QuantizedScales::head) given = *of_head;
  rows.for_pieces([&](int iteration, int column) {
    if constexpr (Plan::is_centered) load_piece<chunk_bytes>(means + column, factors.means[iteration]);
    if constexpr (Plan::scales == QuantizedScales::channel) {
      load_piece<chunk_bytes>(scales + column, factors.scales[iteration]);
    } else {
#pragma unroll
      for (int i = 0; i < Plan::share.piece; ++i) factors.scales[iteration][i] = given;
    }
    if (factors.is_shifted) load_piece<chunk_bytes>(key_means + column, factors.key_means[iteration]);
  });
}

/// Scales of blocks of rows, which a piece of work has whole, in two halves between which all threads must meet: leaves
/// the rows' magnitudes,
template <class Config, QkvTensor tensor>
JIT_DEVICE void write_magnitudes(const QuantizeRows<Config, tensor>& rows,
                                 const typename QuantizeRows<Config, tensor>::Row& means, float* magnitudes) {
  using Plan = QuantizePlan<Config, tensor>;
#pragma unroll Plan::steps_at_once
  for (int step = 0; step < quantize_steps; ++step) {
    typename QuantizeRows<Config, tensor>::Row row;
    rows.take(step, row);
    float magnitude = 0;
    rows.for_pieces([&](int iteration, int) {
#pragma unroll
      for (int i = 0; i < Plan::share.piece; ++i)
        magnitude =
            fmaxf(magnitude, fabsf(row[iteration][i] - (Plan::is_centered ? means[iteration][i] : 0.0f)));
    });
    magnitude = over_row<Plan::share>(magnitude, [](float a, float b) { return fmaxf(a, b); });
    if (rows.lane() == 0) magnitudes[rows.place(step)] = rows.has_row(step) ? magnitude : 0;
  }
}

/// and finds the scale of each block, which it leaves at `scales`. By `warps` warps, of which this is `warp`.
template <class Config, QkvTensor tensor>
JIT_DEVICE void find_block_scales(const QuantizeRows<Config, tensor>& rows, const float* magnitudes,
                                  float* scales, int warp, int warps) {
  using Plan = QuantizePlan<Config, tensor>;
  constexpr int blocks = Plan::chunk / scale_block_rows;
  static_assert(blocks * scale_block_rows == Plan::chunk);
  const QuantizeTensor& own = rows.own();
  for (int block = warp; block < blocks; block += warps) {
    const float* const of_block = magnitudes + block * scale_block_rows;
    float magnitude = 0;
#pragma unroll
    for (int row = lane_id(); row < scale_block_rows; row += warp_size)
      magnitude = fmaxf(magnitude, of_block[row]);
    magnitude = warp_max(magnitude);
    if (lane_id() != 0) continue;
    const float scale = scale_of<typename Config::StoredElement>(magnitude);
    scales[block] = scale;
    const int token = rows.chunk_begin() + block * scale_block_rows;
    if (token < own.seqlen)
      own.descale[rows.offset(own.descale_strides) + token / scale_block_rows * own.descale_strides.seq] =
          scale;
  }
}

/// Rounds the rows of a lane and stores them.
template <class Config, QkvTensor tensor>
JIT_DEVICE void round_steps(const QuantizeParams& params, const QuantizeRows<Config, tensor>& rows,
                            const ColumnFactors<Config, tensor>& factors, const float* block_scales) {
  using Plan = QuantizePlan<Config, tensor>;
  using Rows = QuantizeRows<Config, tensor>;
  using Stored = typename Config::StoredElement;
  constexpr RowLanes share = Plan::share;
  constexpr bool shifts = tensor == QkvTensor::q && Config::center_keys;
  const QuantizeTensor& own = rows.own();
  const bool is_shifted = shifts && factors.is_shifted;
  Stored* const to = static_cast<Stored*>(own.to) + rows.offset(own.to_strides);
  constexpr int alignment = Config::alignment / static_cast<int>(sizeof(typename Config::Element));
#pragma unroll Plan::steps_at_once
  for (int step = 0; step < quantize_steps; ++step) {
    typename Rows::Row row;
    rows.take(step, row);
    float magnitude = 0, shift = 0;
    rows.for_pieces([&](int iteration, int) {
#pragma unroll
      for (int i = 0; i < share.piece; ++i) {
        if constexpr (shifts) shift += row[iteration][i] * factors.key_means[iteration][i];
        if constexpr (Plan::is_centered) row[iteration][i] -= factors.means[iteration][i];
        magnitude = fmaxf(magnitude, fabsf(row[iteration][i]));
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
    if constexpr (Plan::scales == QuantizedScales::block)
      // mutate: ScaleOfTheFirstBlock
      of_token = __fdiv_rn(1.0f, block_scales[rows.place(step) / scale_block_rows]);
    if constexpr (shifts) {
      const float sum = over_row<share>(shift, [](float a, float b) { return a + b; });
      if (is_shifted && rows.lane() == 0 && rows.has_row(step)) {
        params.lse_shift[rows.batch() * params.lse_shift_batch_stride +
                         rows.head() * params.lse_shift_head_stride + rows.token(step)] = sum;
      }
    }
    if (!rows.has_row(step)) continue;
    rows.for_pieces([&](int iteration, int column) {
      unsigned words[(share.piece + 3) / 4] = {};
#pragma unroll
      for (int i = 0; i < share.piece; i += 2) {
        const auto element = [&](int at) {
          return at < share.piece
                     ? row[iteration][at] * (Plan::has_row_scales ? of_token : factors.scales[iteration][at])
                     : 0.0f;
        };
        words[i / 4] |= pack_fp8<Stored>(element(i), element(i + 1)) << (i % 4 * 8);
      }
      store_words<share.piece, maximum(alignment, 1)>(to + rows.token(step) * own.to_strides.seq + column,
                                                      words);
    });
  }
}

}  // namespace jit
