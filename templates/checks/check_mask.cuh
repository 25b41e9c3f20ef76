// Checks the mask of a whole problem: a warp has some queries of a head, in tiles as large as those of kernels, and in
// small ones with other boundaries.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "checks/mask_agreement.cuh"
#include "checks/mask_fault.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/functor.cuh"
#include "problem/scores.cuh"

namespace jit {

template <class Config>
__device__ void check_mask(const AttentionParams& params, MaskFault* fault) {
  using Mask = typename Config::Mask;
  constexpr int tile_kv = 64, small_tile_kv = 16;
  const int tiles = rounded_up_quotient(DenseSequences<Config>::longest_q(params), mask_check_rows);
  const long long tile = blockIdx.x * static_cast<long long>(blockDim.x / warp_size) + warp_id();
  const int heads = depends_on_head<Mask> ? params.heads_q : 1;
  const int batch = static_cast<int>(tile / tiles / heads), head = static_cast<int>(tile / tiles % heads);
  if (batch >= params.batch) return;
  const AllSequences<Config> sequences(params);
  const auto queries = sequences.q(batch), keys = sequences.kv(batch);
  const BlockContext context{batch,       head,          params.heads_q, queries.length,
                             keys.length, queries.begin, params.tensors};
  const int q_begin = static_cast<int>(tile % tiles) * mask_check_rows;
  const int q_end = minimum(q_begin + mask_check_rows, context.seqlen_q);
  if (q_begin >= q_end) return;
  const MaskExaminer<Mask> examiner(context, fault);
  examiner.examine(q_begin, q_end, tile_kv);
#pragma unroll 1
  for (int q = q_begin; q < q_end; ++q) examiner.examine(q, q + 1, small_tile_kv);
}

}  // namespace jit
