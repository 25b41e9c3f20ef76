// From what warps and blocks have come to for a tile of rows to its rows of O and LSE.
//
// A result of some keys is, for each row, O not normalised, the maximum m of its exponents of 2 and the sum l of its
// exponentials relative to m. Results of different keys are merged as "Flash-Decoding" (Dao et al.) does:
// M = max m, O = Σ 2^(m − M) O, L = Σ 2^(m − M) l.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/split_params.cuh"
#include "forward_split_kv/traits.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "steps/softmax.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_kv {

/// Of one row: exponents of 2 are relative to `max`, which is −inf for a row without keys.
struct RowState {
  float max;
  float sum;
};

/// Four neighbouring values of a row of O, and the row's state.
struct RowPiece {
  float4 values;
  RowState state;
};
inline constexpr int piece_columns = 4;

/// The results of the warps that share the rows of a tile, in the shared memory of a stage.
template <class Config>
class WarpResults {
  using Traits = KernelTraits<Config>;
  static constexpr int row_floats = Traits::Output::column_blocks * 8 + result_padding;

 public:
  __device__ __forceinline__ explicit WarpResults(unsigned char* stage) : o_(reinterpret_cast<float*>(stage)) {}

  /// Leaves this warp's own. `scale_log2` makes exponents of 2 of its maxima.
  __device__ __forceinline__ void put(const typename Traits::Output& output,
                                      const SoftmaxState<Traits::Output::rows>& state, float scale_log2) const {
    using Layout = typename Traits::Output::Layout;
    const int lane = lane_id(), first_row = warp_id() * rows_per_warp;
    Traits::Output::for_each_row(first_row + Layout::lane_row(lane), [&](int r, int row) {
#pragma unroll
      for (int n = 0; n < Traits::Output::column_blocks; ++n) {
        *reinterpret_cast<float2*>(o_ + row * row_floats + Layout::column(Layout::lane_column(lane), n, 0)) =
            make_float2(output.at(r, n, 0), output.at(r, n, 1));
      }
      const float sum = Layout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
      if (Layout::speaks_for_rows(lane)) {
        states()[row] = {sum == 0 ? negative_infinity() : finite_or_zero(state.row_max[r]) * scale_log2, sum};
      }
    });
  }

  static constexpr int count = Config::key_warps;
  __device__ __forceinline__ RowState state(int i, int row) const { return states()[place(i, row)]; }
  __device__ __forceinline__ float4 values(int i, int row, int column) const {
    return *reinterpret_cast<const float4*>(o_ + place(i, row) * row_floats + column);
  }

 private:
  // Warps that share rows lie Config::row_warps apart.
  static __device__ __forceinline__ int place(int i, int row) {
    return i * Traits::tile_rows + row;
  }
  __device__ __forceinline__ RowState* states() const {
    return reinterpret_cast<RowState*>(o_ + Traits::warps * rows_per_warp * row_floats);
  }

  float* o_;
};

/// The partial results of the blocks that share a unit.
template <class Config>
class BlockResults {
  using Traits = KernelTraits<Config>;
  static constexpr int floats = partial_floats(Config::row_warps, Config::head_dim_v);

 public:
  __device__ __forceinline__ BlockResults(const SplitParams& split, const PartNote& note)
      : count(note.parts), partials_(split.partials), first_block_(note.first_block) {}

  const int count;
  __device__ __forceinline__ RowState state(int i, int row) const {
    const float2 state = reinterpret_cast<const float2*>(partial(i) + Traits::tile_rows * Config::head_dim_v)[row];
    return {state.x, state.y};
  }
  __device__ __forceinline__ float4 values(int i, int row, int column) const {
    return *reinterpret_cast<const float4*>(partial(i) + row * Config::head_dim_v + column);
  }

  /// Leaves a piece of part `i`; the one with the first column leaves the row's state, too.
  __device__ __forceinline__ void put(int i, int row, int column, const RowPiece& piece) const {
    float* const own = partial(i);
    *reinterpret_cast<float4*>(own + row * Config::head_dim_v + column) = piece.values;
    if (column == 0) {
      reinterpret_cast<float2*>(own + Traits::tile_rows * Config::head_dim_v)[row] =
          make_float2(piece.state.max, piece.state.sum);
    }
  }

 private:
  // The first part is what its block leaves in the middle, the others what theirs enter there.
  __device__ __forceinline__ float* partial(int i) const {
    return partials_ + (2ll * (first_block_ + i) + (i == 0 ? 1 : 0)) * floats;
  }

  float* partials_;
  int first_block_;
};

/// Adds `weight` times the values, unless it is 0: 0 · v is not 0 where v is not a number.
__device__ __forceinline__ void add_weighted(float4& sum, float weight, const float4& values) {
  if (weight == 0) return;
  sum.x = __fmaf_rn(weight, values.x, sum.x);
  sum.y = __fmaf_rn(weight, values.y, sum.y);
  sum.z = __fmaf_rn(weight, values.z, sum.z);
  sum.w = __fmaf_rn(weight, values.w, sum.w);
}

/// How much a result counts beside one whose maximum is `max`.
__device__ __forceinline__ float weight_of(const RowState& state, float max) {
  return state.max == negative_infinity() ? 0 : ex2(state.max - max);
}

/// One piece of what the warps have come to.
template <class Config>
__device__ __forceinline__ RowPiece merge(const WarpResults<Config>& results, int row, int column) {
  RowPiece merged{make_float4(0, 0, 0, 0), {negative_infinity(), 0}};
#pragma unroll
  for (int i = 0; i < results.count; ++i) merged.state.max = fmaxf(merged.state.max, results.state(i, row).max);
#pragma unroll
  for (int i = 0; i < results.count; ++i) {
    const RowState state = results.state(i, row);
    const float weight = weight_of(state, merged.state.max);
    merged.state.sum = __fmaf_rn(weight, state.sum, merged.state.sum);
    add_weighted(merged.values, weight, results.values(i, row, column));
  }
  return merged;
}

/// What the results of several blocks are merged with: the weight of each for each row, and the state of all.
template <class Config>
struct PartWeights {
  using Traits = KernelTraits<Config>;
  float* memory;  ///< of a stage
  int parts;

  __device__ __forceinline__ float& weight(int row, int part) const { return memory[row * parts + part]; }
  __device__ __forceinline__ RowState& state(int row) const {
    return reinterpret_cast<RowState*>(memory + Traits::layout.stage_bytes / sizeof(float))[row - Traits::tile_rows];
  }

  /// A warp takes a row, its lanes parts: all that they read is on the way at once.
  __device__ __forceinline__ void fill(const BlockResults<Config>& results, int rows) const {
    for (int row = warp_id(); row < rows; row += Traits::warps) {
      float max = negative_infinity(), sum = 0;
      for (int i = lane_id(); i < parts; i += warp_size) max = fmaxf(max, results.state(i, row).max);
#pragma unroll
      for (int step = warp_size / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(full_warp, max, step));
      for (int i = lane_id(); i < parts; i += warp_size) {
        const RowState own = results.state(i, row);
        weight(row, i) = weight_of(own, max);
        sum = __fmaf_rn(weight_of(own, max), own.sum, sum);
      }
#pragma unroll
      for (int step = warp_size / 2; step > 0; step /= 2) sum += __shfl_xor_sync(full_warp, sum, step);
      if (lane_id() == 0) state(row) = {max, sum};
    }
  }
};

/// One piece of what the blocks have come to. Reads of several parts are on the way at once.
template <class Config>
__device__ __forceinline__ RowPiece merge(const BlockResults<Config>& results, const PartWeights<Config>& weights,
                                          int row, int column) {
  constexpr int reads = 8;
  RowPiece merged{make_float4(0, 0, 0, 0), weights.state(row)};
#pragma unroll 1
  for (int first = 0; first < results.count; first += reads) {
    float4 values[reads];
#pragma unroll
    for (int i = 0; i < reads; ++i)
      values[i] = results.values(minimum(first + i, results.count - 1), row, column);
#pragma unroll
    for (int i = 0; i < reads; ++i) {
      if (first + i < results.count) add_weighted(merged.values, weights.weight(row, first + i), values[i]);
    }
  }
  return merged;
}

/// Takes a head's sink into a row's sum, as one more key without a value.
template <class Config>
__device__ __forceinline__ void add_sink(RowPiece& piece, const AttentionParams& params, int head) {
  if constexpr (Config::sinks) {
    const float sink = params.sequences.sinks[head] * log2_e;
    const float max = fmaxf(piece.state.max, sink);
    if (max == negative_infinity()) return;
    const float weight = ex2(piece.state.max - max);
    piece.state = {max, __fmaf_rn(weight, piece.state.sum, ex2(sink - max))};
    piece.values = make_float4(weight * piece.values.x, weight * piece.values.y, weight * piece.values.z,
                               weight * piece.values.w);
  }
}

/// Normalises a piece and writes it to O; the one with the first column writes LSE.
template <class Config>
__device__ __forceinline__ void store_piece(const AttentionParams& params, const PartNote& note, int row,
                                            int column, RowPiece piece) {
  using Element = OutputElement<Config>;
  using Sequences = VariableSequences<Config>;
  const PackedRow<Config> place(note.kv_head, note.row_begin + row);
  add_sink<Config>(piece, params, place.head);
  const float sum = piece.state.sum;
  const float inverse = sum == 0 ? 0 : 1 / sum;
  const int query = note.q_begin + place.query;
  Element* const o = static_cast<Element*>(params.o) +
                     Sequences::query_offset(params.o_strides, note.batch, place.head, query) + column;
  store_pairs<Config::alignment>(o, {pack<Element>(piece.values.x * inverse, piece.values.y * inverse),
                                     pack<Element>(piece.values.z * inverse, piece.values.w * inverse)});
  if (column == 0 && params.lse != nullptr) {
    params.lse[Sequences::query_offset(params.lse_strides, note.batch, place.head, query)] =
        sum == 0 ? negative_infinity() : (piece.state.max + lg2(sum)) * ln_2;
  }
}

/// Rows of a part that exist.
template <class Config>
__device__ __forceinline__ int row_count(const PartNote& note) {
  return minimum(KernelTraits<Config>::tile_rows, note.seqlen_q * Config::gqa_ratio - note.row_begin);
}

/// Calls f(row, column) for the pieces of all rows that exist, by all threads of the block.
template <class Config, class F>
__device__ __forceinline__ void for_each_piece(const PartNote& note, F f) {
  constexpr int pieces = Config::head_dim_v / piece_columns;
  const int end = row_count<Config>(note) * pieces;
#pragma unroll 1
  for (int i = threadIdx.x; i < end; i += KernelTraits<Config>::threads)
    f(i / pieces, i % pieces * piece_columns);
}

/// Ends a part of a unit: the block merges what its warps have come to; of a unit that several blocks share, the last
/// one merges all of theirs, always in the order of keys. `stage` is free shared memory, behind a barrier.
template <class Config>
__device__ __forceinline__ void finish_part(const AttentionParams& params, const SplitParams& split,
                                            const PartNote& note,
                                            const typename KernelTraits<Config>::Output& output,
                                            const SoftmaxState<KernelTraits<Config>::Output::rows>& state,
                                            float scale_log2, unsigned char* stage, unsigned* ticket) {
  const WarpResults<Config> own(stage);
  const BlockResults<Config> all(split, note);
  __syncthreads();  // the other warps are done with the tiles that lie here
  own.put(output, state, scale_log2);
  __syncthreads();
  const int part = static_cast<int>(blockIdx.x) - note.first_block;
  for_each_piece<Config>(note, [&](int row, int column) {
    const RowPiece piece = merge(own, row, column);
    if (note.parts == 1) {
      store_piece<Config>(params, note, row, column, piece);
    } else {
      all.put(part, row, column, piece);
    }
  });
  if (note.parts == 1) return;

  __threadfence();
  __syncthreads();
  // Wraps at the last part, which leaves 0 for the next kernel.
  if (threadIdx.x == 0) *ticket = atomicInc(split.counters + note.first_block, note.parts - 1);
  __syncthreads();
  if (*ticket != note.parts - 1) return;
  __threadfence();
  const PartWeights<Config> weights{reinterpret_cast<float*>(stage), note.parts};
  weights.fill(all, row_count<Config>(note));
  __syncthreads();
  for_each_piece<Config>(note, [&](int row, int column) {
    store_piece<Config>(params, note, row, column, merge(all, weights, row, column));
  });
}

}  // namespace jit::forward_split_kv
