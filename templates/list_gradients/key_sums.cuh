// Gradients of keys and values: what lists add to them, summed in the order of lists, and of entries within one. Gradients of
// sinks: a sink is a key without a value (templates/backward_sinks).
#pragma once

#include "base/prelude.cuh"
#include "list_gradients/params.cuh"
#include "problem/gradients.cuh"
#include "problem/key_lists.cuh"
#include "ptx/math.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// The number of the block that has an entry: blocks of sequences that follow one another have ascending ones.
template <class Config>
JIT_DEVICE int block_number(const Sequence& kv, int sequence, int entry) {
  if constexpr (Config::Lists::has_slots) return entry;
  return kv.begin / Config::Lists::block + sequence + entry;
}

/// A row of k as lists know it.
struct ListedRow {
  int block;  ///< its number; −1: no list can have the row
  int key;    ///< of the block
};

template <class Config>
JIT_DEVICE ListedRow listed_row(const AttentionParams& params, int row) {
  using Lists = typename Config::Lists;
  if constexpr (Lists::has_slots) return {row / Lists::block, row % Lists::block};
  int sequence = 0;
#pragma unroll 1
  for (int end = params.tensors[Lists::slot].rows; end - sequence > 1;) {
    const int middle = (sequence + end) / 2;
    (params.sequences.cu_seqlens_k[middle] <= row ? sequence : end) = middle;
  }
  if (params.tensors[Lists::slot].rows == 0) return {-1, 0};
  const Sequence kv = VariableSequences<Config>(params).stored_kv(sequence);
  const int at = row - kv.begin;
  // Behind the sequence lists have no block.
  if (at < 0) return {-1, 0};  // mutate: KeysBeforeTheFirstSequence
  return {block_number<Config>(kv, sequence, at / Lists::block), at % Lists::block};
}

/// A thread sums four columns of a row of k, or of v.
template <class Config>
JIT_DEVICE void sum_keys(const ListGradientsParams& params) {
  using Lists = typename Config::Lists;
  using Element = typename Config::Element;
  constexpr int columns = list_part_columns(Config::head_dim, Config::head_dim_v, Config::shares_values);
  constexpr int pieces = columns / 4;
  const AttentionParams& attention = params.attention;
  const int heads = attention.heads_kv;
  const long long own = static_cast<long long>(blockIdx.x) * list_gradient_threads + threadIdx.x;
  if (own >= static_cast<long long>(attention.sequences.total_k) * heads * pieces) return;
  const int column = static_cast<int>(own % pieces) * 4, head = static_cast<int>(own / pieces % heads);
  const int row = static_cast<int>(own / pieces / heads), entries = attention.tensors[Lists::slot].last_size;

  const ListedRow key = listed_row<Config>(attention, row);
  float4* const before = reinterpret_cast<float4*>(
      params.sums + (static_cast<long long>(row) * heads + head) * columns + column);
  float4 sum = params.is_first ? make_float4(0, 0, 0, 0) : *before;  // mutate: SumsOfEarlierListsLeftOut
  if (key.block >= 0 && key.block < params.block_limit) {
    const int* const starts =
        params.starts + static_cast<long long>(head) * (params.block_limit + 1) + key.block;
    const int* const places = params.places + static_cast<long long>(head) * params.lists * entries;
    const int end = starts[1];
#pragma unroll 2
    for (int i = starts[0]; i < end; ++i) {
      const int list = places[i] / entries, entry = places[i] % entries;
      const long long part =
          ((static_cast<long long>(list) * heads + head) * entries + entry) * Lists::block + key.key;
      const float4 x = *reinterpret_cast<const float4*>(params.parts + part * columns + column);
      sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
    }
  }
  if (!params.is_last) {
    *before = sum;
    return;
  }
  const GradientParams& gradients = params.gradients;
  if (column < Config::head_dim) {
    const TensorStrides& to = gradients.dk_strides;
    store_four<Config::alignment>(
        static_cast<Element*>(gradients.dk) + row * to.seq + head * to.head + column, sum);
  } else {
    const TensorStrides& to = gradients.dv_strides;
    store_four<Config::alignment>(
        static_cast<Element*>(gradients.dv) + row * to.seq + head * to.head + column - Config::head_dim, sum);
  }
}

/// A block has a head: −Σ exp(sink − LSE) · delta over all rows of q, in a fixed order.
template <class Config>
JIT_DEVICE void sum_sinks(const ListGradientsParams& params, float* sums) {
  const AttentionParams& attention = params.attention;
  const int head = static_cast<int>(blockIdx.x), total = attention.sequences.total_q;
  const float sink = attention.sequences.sinks[head];
  float sum = 0;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x); row < total; row += list_gradient_threads) {
    const float delta = params.gradients.delta[static_cast<long long>(head) * total + row];
    if (delta == 0) continue;  // such as of rows that are no sequence's, whose LSE may be anything
    const float lse = attention.lse[head * attention.lse_strides.head + row * attention.lse_strides.seq];
    sum -= ex2(sink * log2_e - lse_exponent(lse)) * delta;
  }
  sums[threadIdx.x] = sum;
#pragma unroll
  for (int half = list_gradient_threads / 2; half > 0; half /= 2) {
    __syncthreads();  // mutate: SinksSummedTooEarly
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) params.gradients.d_sinks[head] = sums[0];
}

}  // namespace jit
