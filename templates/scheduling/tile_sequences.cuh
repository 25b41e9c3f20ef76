// The sequences of a work tile: the functors' context, and the rows of outputs.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "problem/functor.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit {

/// The work tile that stands for the end of the list.
inline constexpr WorkTile no_work{-1, -1, -1};
JIT_DEVICE bool is_work(const WorkTile& tile) { return tile.q_begin >= 0; }

template <class Config>
JIT_DEVICE SeqlenInfo seqlens_of(const AttentionParams& params, const WorkTile& work) {
  const DenseSequences<Config> sequences(params);
  return {sequences.q(work.batch), sequences.kv(work.batch)};
}
template <class Config>
JIT_DEVICE SeqlenInfo seqlens_of(const AttentionParams&, const SequenceTile& work) {
  return work;
}

/// The functors' context of a work tile.
template <class Config, class Tile>
JIT_DEVICE BlockContext context_of(const AttentionParams& params, const Tile& work) {
  const SeqlenInfo seqlens = seqlens_of<Config>(params, work);
  return {work.batch,        work.head,       params.heads_q, seqlens.q.length,
          seqlens.kv.length, seqlens.q.begin, params.tensors};
}

/// Rows of a tensor with the shape of LSE, of the work tile's sequence and head; row r belongs to query r.
template <class Config, class Tile>
JIT_DEVICE DenseRows<float> rows_of_queries(float* data, const TensorStrides& strides,
                                            const AttentionParams& params, const Tile& work) {
  const long long first = VariableSequences<Config>::query_offset(strides, work.batch, work.head,
                                                                  seqlens_of<Config>(params, work).q.begin);
  return {data + first, strides.seq};
}
/// Rows of o, LSE, means and largest scores of the work tile's sequence and head.
template <class Config, class Tile>
JIT_DEVICE DenseRows<OutputElement<Config>> output_rows(const AttentionParams& params, const Tile& work) {
  const long long first = VariableSequences<Config>::query_offset(params.o_strides, work.batch, work.head,
                                                                  seqlens_of<Config>(params, work).q.begin);
  return {static_cast<OutputElement<Config>*>(params.o) + first, params.o_strides.seq};
}
template <class Config, class Tile>
JIT_DEVICE DenseRows<float> lse_rows(const AttentionParams& params, const Tile& work) {
  return rows_of_queries<Config>(params.lse, params.lse_strides, params, work);
}
template <class Config, class Tile>
JIT_DEVICE DenseRows<float> mean_rows(const AttentionParams& params, const Tile& work) {
  return rows_of_queries<Config>(params.outputs.mean_score, params.outputs.mean_score_strides, params, work);
}
template <class Config, class Tile>
JIT_DEVICE DenseRows<float> running_lse_rows(const AttentionParams& params, const Tile& work) {
  if (params.outputs.running_lse == nullptr) return {nullptr, 0};
  return rows_of_queries<Config>(params.outputs.running_lse, params.outputs.running_lse_strides, params,
                                 work);
}
template <class Config, class Tile>
JIT_DEVICE DenseRows<float> row_max_rows(const AttentionParams& params, const Tile& work) {
  return rows_of_queries<Config>(params.outputs.row_max, params.outputs.row_max_strides, params, work);
}

}  // namespace jit
