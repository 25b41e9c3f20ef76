// Rounds q, k and v to 8 bits, in one launch, with scales that it finds. A piece of work is some tokens of one head of one
// tensor, of which a block collects what must be known of a whole sequence, or which it rounds. Blocks stay and do one
// piece after another; the rows of the next one are on their way meanwhile.
#pragma once

#include "base/dependent_launch.cuh"
#include "base/fp8_scale.cuh"
#include "quantize/rows.cuh"
#include "quantize/statistics.cuh"
#include "quantize/turned_columns.cuh"

namespace jit {

/// Sums over the lanes of a row, largest numbers over the same.
template <RowLanes share, class Combine>
__device__ __forceinline__ float over_row(float x, const Combine& combine) {
#pragma unroll
  for (int offset = share.lanes / 2; offset > 0; offset /= 2)
    x = combine(x, __shfl_xor_sync(full_warp, x, offset));
  return x;
}

/// Finds the scale of each block of rows, which a piece of work has whole, and leaves it at `scales`, behind the rows'
/// magnitudes. By all threads of a block.
template <class Config, QkvTensor tensor>
__device__ __forceinline__ void find_block_scales(const QuantizeRows<Config, tensor>& rows,
                                                  const typename QuantizeRows<Config, tensor>::Row& means,
                                                  float* magnitudes, float* scales) {
  using Plan = QuantizePlan<Config, tensor>;
  constexpr int blocks = Plan::chunk / scale_block_rows;
  static_assert(blocks * scale_block_rows == Plan::chunk);
#pragma unroll Plan::steps_at_once
  for (int step = 0; step < quantize_steps; ++step) {
    typename QuantizeRows<Config, tensor>::Row row;
    rows.take(step, row);
    float magnitude = 0;
    rows.for_pieces([&](int turn, int) {
#pragma unroll
      for (int i = 0; i < Plan::share.piece; ++i)
        magnitude = fmaxf(magnitude, fabsf(row[turn][i] - (Plan::is_centred ? means[turn][i] : 0.0f)));
    });
    magnitude = over_row<Plan::share>(magnitude, [](float a, float b) { return fmaxf(a, b); });
    if (rows.lane() == 0) magnitudes[rows.place(step)] = rows.has_row(step) ? magnitude : 0;
  }
  __syncthreads();
  const QuantizeTensor& own = rows.own();
  for (int block = warp_id(); block < blocks; block += Plan::threads / warp_size) {
    const float* const of_block = magnitudes + block * scale_block_rows;
    float magnitude = 0;
#pragma unroll
    for (int row = lane_id(); row < scale_block_rows; row += warp_size)
      magnitude = fmaxf(magnitude, of_block[row]);
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2)
      magnitude = fmaxf(magnitude, __shfl_xor_sync(full_warp, magnitude, offset));
    if (lane_id() != 0) continue;
    const float scale = scale_of<typename Config::StoredElement>(magnitude);
    scales[block] = scale;
    const int token = rows.chunk_begin() + block * scale_block_rows;
    if (token < own.seqlen)
      own.descale[rows.offset(own.descale_strides) + token / scale_block_rows * own.descale_strides.seq] =
          scale;
  }
  __syncthreads();
}

template <class Config, QkvTensor tensor>
__device__ __forceinline__ void round_rows(const QuantizeParams& params, const QuantizeWork& work,
                                           const QuantizeRows<Config, tensor>& rows, float* shared) {
  using Plan = QuantizePlan<Config, tensor>;
  using Rows = QuantizeRows<Config, tensor>;
  using Stored = typename Config::StoredElement;
  constexpr RowLanes share = Plan::share;
  constexpr bool shifts = tensor == QkvTensor::q && Config::center_keys;
  const QuantizeTensor& own = rows.own();
  if constexpr (Plan::statistics > 0) wait_for_results(params, tensor, work.unit, own.items);
  const bool is_shifted = shifts && params.lse_shift != nullptr;
  if (is_shifted) wait_for_results(params, QkvTensor::k, work.unit, params.k.items);

  typename Rows::Row means = {}, factors = {}, key_means = {};
  const float* const results = own.results + static_cast<long long>(work.unit) * 2 * Plan::columns;
  float given = 1;
  if (Plan::scales == QuantizedScales::given && own.descale != nullptr) {
    given = __fdiv_rn(
        1.0f,
        own.descale[rows.batch() * own.descale_strides.batch + rows.kv_head() * own.descale_strides.head]);
  }
  if constexpr (Plan::scales == QuantizedScales::head) given = results[Plan::columns];
  rows.for_pieces([&](int turn, int column) {
    if constexpr (Plan::is_centred) load_piece<chunk_bytes>(results + column, means[turn]);
    if constexpr (Plan::scales == QuantizedScales::channel) {
      load_piece<chunk_bytes>(results + Plan::columns + column, factors[turn]);
    } else {
#pragma unroll
      for (int i = 0; i < share.piece; ++i) factors[turn][i] = given;
    }
    if (is_shifted)
      load_piece<chunk_bytes>(
          params.k.results + static_cast<long long>(work.unit) * 2 * Plan::columns + column, key_means[turn]);
  });

  [[maybe_unused]] TurnedColumns<Config, tensor> turned;
  float* const block_scales = shared + Plan::chunk;
  if constexpr (Plan::scales == QuantizedScales::block) {
    find_block_scales<Config, tensor>(rows, means, shared, block_scales);
  }
  Stored* const to = static_cast<Stored*>(own.to) + rows.offset(own.to_strides);
  constexpr int alignment = Config::alignment / static_cast<int>(sizeof(typename Config::Element));
#pragma unroll Plan::steps_at_once
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
    if constexpr (Plan::scales == QuantizedScales::block)
      of_token = __fdiv_rn(1.0f, block_scales[rows.place(step) / scale_block_rows]);
    if constexpr (shifts) {
      const float sum = over_row<share>(shift, [](float a, float b) { return a + b; });
      if (is_shifted && rows.lane() == 0 && rows.has_row(step)) {
        params.lse_shift[rows.batch() * params.lse_shift_batch_stride +
                         rows.head() * params.lse_shift_head_stride + rows.token(step)] = sum;
      }
    }
    if (!rows.has_row(step)) continue;
    rows.for_pieces([&](int turn, int column) {
      [[maybe_unused]] unsigned words[(share.piece + 3) / 4] = {};
#pragma unroll
      for (int i = 0; i < share.piece; i += 2) {
        const auto element = [&](int at) {
          return at < share.piece ? row[turn][at] * (Plan::has_row_scales ? of_token : factors[turn][at])
                                  : 0.0f;
        };
        const unsigned pair = pack_fp8<Stored>(element(i), element(i + 1));
        if constexpr (Plan::is_along_sequence) {
          turned.take(turn, i, step, pair);
        } else {
          words[i / 4] |= pair << (i % 4 * 8);
        }
      }
      if constexpr (!Plan::is_along_sequence)
        store_words<share.piece, maximum(alignment, 1)>(to + rows.token(step) * own.to_strides.seq + column,
                                                        words);
    });
  }
  if constexpr (Plan::is_along_sequence) turned.store(rows);
  if constexpr (Plan::statistics > 0) leave_results(params, tensor, work.unit, own.items, own.waiting);
  if (is_shifted) leave_results(params, QkvTensor::k, work.unit, params.k.items, params.k.waiting);
}

/// Calls `act` with the piece's rows, which are of the tensor that it is of.
template <class Config, class Act>
__device__ __forceinline__ void with_rows(const QuantizeParams& params, const QuantizeWork& work,
                                          char* buffer, const Act& act) {
  switch (work.tensor) {
    case QkvTensor::q: {
      QuantizeRows<Config, QkvTensor::q> rows(params, work, buffer);
      return act(rows);
    }
    case QkvTensor::k: {
      QuantizeRows<Config, QkvTensor::k> rows(params, work, buffer);
      return act(rows);
    }
    case QkvTensor::v: {
      QuantizeRows<Config, QkvTensor::v> rows(params, work, buffer);
      return act(rows);
    }
  }
}

template <class Config>
__device__ __forceinline__ void start_copies(const QuantizeParams& params, int piece, char* buffer) {
  if (piece < params.pieces) {
    const QuantizeWork work = work_of_ticket<Config>(params, piece);
    with_rows<Config>(params, work, buffer, [](auto& rows) { rows.start(); });
  }
  cp_async_commit_group();
}

template <class Config, QkvTensor tensor>
__device__ __forceinline__ void do_work(const QuantizeParams& params, const QuantizeWork& work,
                                        QuantizeRows<Config, tensor>& rows, float* shared, bool& is_last) {
  rows.arrive();
  if constexpr (QuantizePlan<Config, tensor>::statistics > 0) {
    if (work.is_statistics) return collect_statistics(params, work, rows, shared, is_last);
  }
  round_rows(params, work, rows, shared);
}

template <class Config>
__device__ __forceinline__ void quantize_qkv(const QuantizeParams& params) {
  constexpr int warps = threads_of_quantizer<Config> / warp_size;
  constexpr bool has_phases = has_quantize_phases<Config>, has_two_buffers = buffers<Config> == 2;
  extern __shared__ __align__(16) char memory[];
  __shared__ float shared[maximum(warps, maximum(QuantizePlan<Config, QkvTensor::q>::block_numbers,
                                                 QuantizePlan<Config, QkvTensor::k>::block_numbers))];
  __shared__ int drawn[2];
  __shared__ bool is_last;
  const auto buffer_of = [&](int turn) { return memory + turn % buffers<Config> * buffer_bytes<Config>; };
  const bool draws = has_phases && threadIdx.x == 0;
  // What thread 0 draws, or where nobody waits for anybody, every so manieth piece.
  const auto draw_behind = [&](int piece) {
    if constexpr (!has_phases) return piece + static_cast<int>(gridDim.x);
    return draws && piece < params.pieces ? draw_ticket(params) : params.pieces;
  };
  const auto tell = [&](int turn, int piece) {
    if constexpr (!has_phases) return piece;
    if (draws) drawn[turn % 2] = piece;
    __syncthreads();
    return drawn[turn % 2];
  };

  wait_for_grids_before();
  int piece = tell(0, has_phases ? draw_behind(0) : static_cast<int>(blockIdx.x));
  start_copies<Config>(params, piece, buffer_of(0));
  int next = tell(1, draw_behind(piece));
  for (int turn = 0; piece < params.pieces; ++turn) {
    if constexpr (has_two_buffers) start_copies<Config>(params, next, buffer_of(turn + 1));
    const int later = draw_behind(next);  // a ticket is on its way for as long as a piece of work takes
    cp_async_wait_group<has_two_buffers ? 1 : 0>();
    const QuantizeWork work = work_of_ticket<Config>(params, piece);
    with_rows<Config>(params, work, buffer_of(turn),
                      [&](auto& rows) { do_work(params, work, rows, shared, is_last); });
    if constexpr (!has_phases) __syncthreads();
    piece = next;
    next = tell(turn, later);
    if constexpr (!has_two_buffers) start_copies<Config>(params, piece, buffer_of(0));
  }
  let_next_grid_start();
}

}  // namespace jit
