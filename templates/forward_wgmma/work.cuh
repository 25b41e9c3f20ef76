// A work tile as the warps of a block tell one another: where its queries lie, and how long its sequence is.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "forward_wgmma/traits.cuh"
#include "problem/functor.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

template <class Config>
using Work = typename KernelTraits<Config>::Work;

__device__ __forceinline__ bool is_work(const WorkTile& tile) { return tile.q_begin >= 0; }

/// What the functors see of a work tile.
template <class Config>
__device__ __forceinline__ BlockContext context_of(const AttentionParams& params, const WorkTile& work) {
  return Sequences<Config>(params).context(work.batch, work.head);
}
template <class Config>
__device__ __forceinline__ BlockContext context_of(const AttentionParams& params, const SequenceTile& work) {
  return {work.batch,     work.head,      params.heads_q, work.seqlen_q,
          work.seqlen_kv, work.first_row, params.tensors};
}

/// Queries of its sequence.
template <class Config>
__device__ __forceinline__ int query_count(const AttentionParams& params, const WorkTile&) {
  return Sequences<Config>::longest_q(params);
}
template <class Config>
__device__ __forceinline__ int query_count(const AttentionParams&, const SequenceTile& work) {
  return work.seqlen_q;
}

/// Keys of its sequence.
template <class Config>
__device__ __forceinline__ Sequence keys_of(const AttentionParams& params, const WorkTile& work) {
  return Sequences<Config>(params).kv(work.batch);
}
template <class Config>
__device__ __forceinline__ Sequence keys_of(const AttentionParams&, const SequenceTile& work) {
  return {work.first_key, work.seqlen_kv};
}

/// Where the rows of q and o of a consumer lie, of which `query` is the first.
template <class Config>
__device__ __forceinline__ RowPlace query_box(const AttentionParams& params, const WorkTile& work,
                                              int query) {
  return Sequences<Config>(params).query_place(work.batch, work.head, query);
}
template <class Config>
__device__ __forceinline__ BoundedBox query_box(const AttentionParams&, const SequenceTile& work, int query) {
  const bool is_varlen = Config::sequences_q == SequenceKind::varlen;
  // mutate: BoxesOfQueriesDoNotEnd
  return bounded_box(rows_per_warpgroup, work.first_row + query, work.seqlen_q - query, work.head,
                     is_varlen ? 0 : work.batch);
}

/// Rows of o and LSE of the work tile's sequence and head: row r is that of query r.
template <class Config>
__device__ __forceinline__ auto output_rows(const AttentionParams& params, const WorkTile& work) {
  return Sequences<Config>(params).output_rows(work.batch, work.head);
}
template <class Config>
__device__ __forceinline__ auto output_rows(const AttentionParams& params, const SequenceTile& work) {
  const long long first =
      VariableSequences<Config>::query_offset(params.o_strides, work.batch, work.head, work.first_row);
  return DenseRows<OutputElement<Config>>{static_cast<OutputElement<Config>*>(params.o) + first,
                                          params.o_strides.seq};
}
template <class Config>
__device__ __forceinline__ auto lse_rows(const AttentionParams& params, const WorkTile& work) {
  return Sequences<Config>(params).lse_rows(work.batch, work.head);
}
template <class Config>
__device__ __forceinline__ auto lse_rows(const AttentionParams& params, const SequenceTile& work) {
  const long long first =
      VariableSequences<Config>::query_offset(params.lse_strides, work.batch, work.head, work.first_row);
  return DenseRows<float>{params.lse + first, params.lse_strides.seq};
}

/// Writes a work tile at a shared address. By one thread.
__device__ __forceinline__ void store_work(unsigned place, const WorkTile& work) {
  store_shared(place, work.batch);
  store_shared(place + 4, work.head);
  store_shared(place + 8, work.q_begin);
}
__device__ __forceinline__ void store_work(unsigned place, const SequenceTile& work) {
  store_work(place, static_cast<const WorkTile&>(work));
  store_shared(place + 12, work.first_row);
  store_shared(place + 16, work.first_key);
  store_shared(place + 20, work.seqlen_q);
  store_shared(place + 24, work.seqlen_kv);  // mutate: LengthsAreNotPassedOn
}

/// Reads what `store_work` left. By a whole warp.
__device__ __forceinline__ void load_work(unsigned place, WorkTile& work) {
  work.batch = load_shared_by_warp(place);
  work.head = load_shared_by_warp(place + 4);
  work.q_begin = load_shared_by_warp(place + 8);
}
__device__ __forceinline__ void load_work(unsigned place, SequenceTile& work) {
  load_work(place, static_cast<WorkTile&>(work));
  work.first_row = load_shared_by_warp(place + 12);
  work.first_key = load_shared_by_warp(place + 16);
  work.seqlen_q = load_shared_by_warp(place + 20);
  work.seqlen_kv = load_shared_by_warp(place + 24);
}

/// What the functors see of a work tile that has been read, whose lengths are read once more.
template <class Config>
__device__ __forceinline__ BlockContext context_at(unsigned place, const AttentionParams& params,
                                                   const WorkTile& work) {
  return {work.batch,
          work.head,
          params.heads_q,
          load_shared_by_warp(place + 20),
          load_shared_by_warp(place + 24),
          load_shared_by_warp(place + 12),
          params.tensors};
}

}  // namespace jit::forward_wgmma
