// From what blocks have come to for a tile of rows to its rows of O and LSE.
//
// A result of some keys is, for each row, O not normalised, the maximum m of its exponents of 2 and the sum l of its
// exponentials relative to m. Results of different keys are merged as "Flash-Decoding" (Dao et al.) does:
// M = max m, O = Σ 2^(m − M) O, L = Σ 2^(m − M) l.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/split_params.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

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

/// The partial results of a unit that several blocks share, side by side in the order of keys. Two units that are shared
/// have no block in common but one: where the first unit ends and the second begins. So the places from
/// 2 · (first block) + 1 to 2 · (last block) are the unit's own: one for each part, and behind these enough for groups.
template <class Config, int tile_rows>
class BlockResults {
  static constexpr int floats = partial_floats(tile_rows, Config::head_dim_v);
  static constexpr int state_begin = tile_rows * Config::head_dim_v;

 public:
  __device__ __forceinline__ BlockResults(const SplitParams& split, const PartNote& note)
      : first_(split.partials + (2ll * note.first_block + 1) * floats) {}

  /// Of the result at place `place` + i.
  __device__ __forceinline__ RowState state(int place, int i, int row) const {
    const float2 state = __ldcg(reinterpret_cast<const float2*>(first_ + place * floats + state_begin) + row +
                                i * (floats / 2));
    return {state.x, state.y};
  }
  __device__ __forceinline__ float4 values(int place, int i, int row, int column) const {
    return __ldcg(
        reinterpret_cast<const float4*>(first_ + place * floats + row * Config::head_dim_v + column) +
        i * (floats / 4));
  }

  /// Leaves two neighbouring values of a row.
  __device__ __forceinline__ void put_pair(int place, int row, int column, const float2& values) const {
    *reinterpret_cast<float2*>(first_ + place * floats + row * Config::head_dim_v + column) = values;
  }
  __device__ __forceinline__ void put_state(int place, int row, const RowState& state) const {
    reinterpret_cast<float2*>(first_ + place * floats + state_begin)[row] = make_float2(state.max, state.sum);
  }
  /// Leaves a piece; the one with the first column leaves the row's state, too.
  __device__ __forceinline__ void put(int place, int row, int column, const RowPiece& piece) const {
    *reinterpret_cast<float4*>(first_ + place * floats + row * Config::head_dim_v + column) = piece.values;
    if (column == 0) put_state(place, row, piece.state);
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

/// One piece of `count` results from place `place` on, merged in their order. All that is read of some of them is on the
/// way at once.
template <class Config, int tile_rows>
__device__ __forceinline__ RowPiece merge(const BlockResults<Config, tile_rows>& results, int place,
                                          int count, int row, int column) {
  constexpr int reads = 16;
  RowPiece merged{make_float4(0, 0, 0, 0), {negative_infinity(), 0}};
#pragma unroll 1
  for (int first = 0; first < count; first += reads) {
    RowState states[reads];
    float4 values[reads];
    float max = merged.state.max;
#pragma unroll
    for (int i = 0; i < reads; ++i) {
      const bool exists = first + i < count;
      states[i] = exists ? results.state(place + first, i, row) : RowState{negative_infinity(), 0};
      values[i] = exists ? results.values(place + first, i, row, column) : make_float4(0, 0, 0, 0);
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

/// What a row comes to in the end.
struct RowEnd {
  float factor;  ///< of O that is not normalised; 0 for a row without keys
  float lse;     ///< natural log
};

/// The end of a row of a query head. A head's sink is one more key without a value.
template <class Config>
__device__ __forceinline__ RowEnd row_end(const RowState& state, const AttentionParams& params, int head) {
  float max = state.max, sum = state.sum, factor = 1;
  if constexpr (Config::sinks) {
    const float sink = params.sequences.sinks[head] * log2_e;
    max = fmaxf(state.max, sink);
    if (max != negative_infinity()) {
      factor = ex2(state.max - max);
      sum = __fmaf_rn(factor, state.sum, ex2(sink - max));
    }
  }
  if (sum == 0) return {0, negative_infinity()};
  return {factor * rcp(sum), (max + lg2(sum)) * ln_2};
}

/// Normalises a piece and writes it to O; the one with the first column writes LSE.
template <class Config>
__device__ __forceinline__ void store_piece(const AttentionParams& params, const PartNote& note, int row,
                                            int column, const RowPiece& piece) {
  using Element = OutputElement<Config>;
  using Sequences = VariableSequences<Config>;
  const PackedRow<Config> place(note.kv_head, note.row_begin + row);
  const RowEnd end = row_end<Config>(piece.state, params, place.head);
  const int query = note.q_begin + place.query;
  Element* const o = static_cast<Element*>(params.o) +
                     Sequences::query_offset(params.o_strides, note.batch, place.head, query) + column;
  store_pairs<Config::alignment>(o,
                                 {pack<Element>(piece.values.x * end.factor, piece.values.y * end.factor),
                                  pack<Element>(piece.values.z * end.factor, piece.values.w * end.factor)});
  if (column == 0 && params.lse != nullptr)
    params.lse[Sequences::query_offset(params.lse_strides, note.batch, place.head, query)] = end.lse;
}

/// Calls f(row, column) for the pieces of the rows of a part that exist, of `tile_rows` in a tile, by `threads` threads of
/// which this is `thread`.
template <class Config, int tile_rows, int threads, class F>
__device__ __forceinline__ void for_each_piece(const PartNote& note, int thread, F f) {
  constexpr int pieces = Config::head_dim_v / piece_columns;
  const int rows = minimum(tile_rows, note.seqlen_q * Config::gqa_ratio - note.row_begin);
#pragma unroll 1
  for (int i = thread; i < rows * pieces; i += threads) f(i / pieces, i % pieces * piece_columns);
}

}  // namespace jit
