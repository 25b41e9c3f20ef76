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
#include "ptx/atomic.cuh"
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
  __device__ __forceinline__ explicit WarpResults(unsigned char* stage)
      : o_(reinterpret_cast<float*>(stage)) {}

  /// Leaves this warp's own. `scale_log2` makes exponents of 2 of its maxima.
  __device__ __forceinline__ void put(const typename Traits::Output& output,
                                      const SoftmaxState<Traits::Output::rows>& state,
                                      float scale_log2) const {
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
  static __device__ __forceinline__ int place(int i, int row) { return i * Traits::tile_rows + row; }
  __device__ __forceinline__ RowState* states() const {
    return reinterpret_cast<RowState*>(o_ + Traits::warps * rows_per_warp * row_floats);
  }

  float* o_;
};

/// The partial results of the blocks that share a unit, side by side in the order of keys. Two units that are shared
/// have no block in common but one: where the first unit ends and the second begins. So the places from
/// 2 · (first block) + 1 on are the unit's own.
template <class Config>
class BlockResults {
  using Traits = KernelTraits<Config>;
  static constexpr int floats = partial_floats(Config::row_warps, Config::head_dim_v);
  static constexpr int state_begin = Traits::tile_rows * Config::head_dim_v;

 public:
  __device__ __forceinline__ BlockResults(const SplitParams& split, const PartNote& note)
      : count(note.parts), first_(split.partials + (2ll * note.first_block + 1) * floats) {}

  const int count;

  /// Of part `part` + i.
  __device__ __forceinline__ RowState state(int part, int i, int row) const {
    const float2 state = __ldcg(reinterpret_cast<const float2*>(first_ + part * floats + state_begin) + row +
                                i * (floats / 2));
    return {state.x, state.y};
  }
  __device__ __forceinline__ float4 values(int part, int i, int row, int column) const {
    return __ldcg(
        reinterpret_cast<const float4*>(first_ + part * floats + row * Config::head_dim_v + column) +
        i * (floats / 4));
  }

  /// Leaves a piece of a part; the one with the first column leaves the row's state, too.
  __device__ __forceinline__ void put(int part, int row, int column, const RowPiece& piece) const {
    float* const own = first_ + part * floats;
    *reinterpret_cast<float4*>(own + row * Config::head_dim_v + column) = piece.values;
    if (column == 0)
      reinterpret_cast<float2*>(own + state_begin)[row] = make_float2(piece.state.max, piece.state.sum);
  }

 private:
  float* first_;
};

/// Adds `weight` times the values, unless it is 0: 0 · v is not 0 where v is not a number.
__device__ __forceinline__ void add_weighted(float4& sum, float weight, const float4& values) {
  const bool counts = weight != 0;
  sum.x = counts ? __fmaf_rn(weight, values.x, sum.x) : sum.x;
  sum.y = counts ? __fmaf_rn(weight, values.y, sum.y) : sum.y;
  sum.z = counts ? __fmaf_rn(weight, values.z, sum.z) : sum.z;
  sum.w = counts ? __fmaf_rn(weight, values.w, sum.w) : sum.w;
}

/// How much a result counts beside one whose maximum is `max`.
__device__ __forceinline__ float weight_of(const RowState& state, float max) {
  return ex2(state.max == negative_infinity() ? state.max : state.max - max);
}

/// One piece of what the warps have come to.
template <class Config>
__device__ __forceinline__ RowPiece merge(const WarpResults<Config>& results, int row, int column) {
  RowPiece merged{make_float4(0, 0, 0, 0), {negative_infinity(), 0}};
#pragma unroll
  for (int i = 0; i < results.count; ++i)
    merged.state.max = fmaxf(merged.state.max, results.state(i, row).max);
#pragma unroll
  for (int i = 0; i < results.count; ++i) {
    const RowState state = results.state(i, row);
    const float weight = weight_of(state, merged.state.max);
    merged.state.sum = __fmaf_rn(weight, state.sum, merged.state.sum);
    add_weighted(merged.values, weight, results.values(i, row, column));
  }
  return merged;
}

/// One piece of what the blocks have come to, in the order of keys. All that is read of some parts is on the way at
/// once.
template <class Config>
__device__ __forceinline__ RowPiece merge(const BlockResults<Config>& results, int row, int column) {
  constexpr int reads = 16;
  RowPiece merged{make_float4(0, 0, 0, 0), {negative_infinity(), 0}};
#pragma unroll 1
  for (int first = 0; first < results.count; first += reads) {
    RowState states[reads];
    float4 values[reads];
    float max = merged.state.max;
#pragma unroll
    for (int i = 0; i < reads; ++i) {
      const bool exists = first + i < results.count;
      states[i] = exists ? results.state(first, i, row) : RowState{negative_infinity(), 0};
      values[i] = exists ? results.values(first, i, row, column) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < reads; ++i) max = fmaxf(max, states[i].max);
    const float earlier = weight_of(merged.state, max);
    merged = {make_float4(earlier * merged.values.x, earlier * merged.values.y, earlier * merged.values.z,
                          earlier * merged.values.w),
              {max, earlier * merged.state.sum}};
#pragma unroll
    for (int i = 0; i < reads; ++i) {
      const float weight = weight_of(states[i], max);
      merged.state.sum = __fmaf_rn(weight, states[i].sum, merged.state.sum);
      add_weighted(merged.values, weight, values[i]);
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
  const float inverse = sum == 0 ? 0 : rcp(sum);
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
/// one merges all of theirs, always in the order of keys. `stage` is free shared memory, behind a barrier. Leaves output
/// and state as the next part begins with them.
template <class Config>
__device__ __forceinline__ void finish_part(const AttentionParams& params, const SplitParams& split,
                                            const PartNote& note,
                                            typename KernelTraits<Config>::Output& output,
                                            SoftmaxState<KernelTraits<Config>::Output::rows>& state,
                                            float scale_log2, unsigned char* stage, unsigned* ticket) {
  const WarpResults<Config> own(stage);
  const BlockResults<Config> all(split, note);
  __syncthreads();  // the other warps are done with the tiles that lie here
  own.put(output, state, scale_log2);
  output.clear();
  state = {};
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

  __syncthreads();
  // Wraps at the last part, which leaves 0 for the next kernel. Release and acquire are the block's: they take in what
  // lies behind its barriers.
  if (threadIdx.x == 0) *ticket = atomic_inc_acq_rel(split.counters + note.first_block, note.parts - 1);
  __syncthreads();
  if (*ticket != note.parts - 1) return;
  for_each_piece<Config>(note, [&](int row, int column) {
    store_piece<Config>(params, note, row, column, merge(all, row, column));
  });
}

}  // namespace jit::forward_split_kv
