// Attention forward for few queries over few keys: the blocks of a cluster share the keys of a tile of rows and merge their
// partial results through distributed shared memory. cp.async, ldmatrix, mma.sync and clusters: sm_90a.
//
// A tile of rows holds the queries of all heads that share a KV head. Each warp of a cluster has keys, a pipeline and a softmax
// of its own; the warps of a block meet once for the queries and once at the end:
//
//     each warp   load tile n + stages ─ wait for tile n ─ S = Q Kᵀ ─ mask, softmax ─ O += P V
//     each block  merge the results of its warps ─ send each piece to the block that ends it
//                 ─ wait for the pieces of the others ─ merge, normalize, store
//
// The shape of the call decides which block computes what: there is no scheduler, no counter and no state between calls.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/touch_lines.cuh"
#include "forward_split_cluster/loads.cuh"
#include "forward_split_cluster/receive_buffer.cuh"
#include "forward_split_cluster/share.cuh"
#include "forward_split_cluster/traits.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/kv_products.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/row_functors.cuh"
#include "split_keys/split_dequant.cuh"
#include "split_keys/warp_splits.cuh"
#include "steps/softmax.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_cluster {

/// Computes the results of the block's warps over their keys of a work tile, at the start of the block's memory.
template <class Config>
JIT_DEVICE WarpSplits<KernelTraits<Config>> multiply_keys(const AttentionParams& params,
                                                          const SplitWorkTile& work_tile,
                                                          const SplitInfo& split, unsigned char* bytes) {
  using Traits = KernelTraits<Config>;
  using Products = KvProducts<Traits>;
  constexpr int loads_ahead = Config::stages - 1, groups_ahead = 2 * loads_ahead;
  const unsigned queries = smem_address(bytes) + Traits::layout.queries;
  const WorkTileMask<Config> mask{params, work_tile};
  StridedTiles<Config> tiles(
      mask, queries_of<Config>(work_tile),
      tiles_of_warp<Config>(tiles_of<Config>(params, work_tile), split.split, params.sequences.num_splits),
      work_tile.kv.length);
  const WarpPipeline<Config> pipeline{bytes};
  PageWindow<Config> pages(params, work_tile, pipeline.row_starts());
  typename Products::Queries q;
  SplitDequant<Traits, typename Products::Queries> scales(params);
  typename Traits::Output output = {};
  SoftmaxState<Traits::Output::rows> state;
  const float scale_log2 = exponent_scale<typename Config::Score>(params.softmax_scale);

#pragma unroll 1
  for (int step = -loads_ahead;; ++step) {
    load_tile(params, work_tile, pipeline, step + loads_ahead, tiles, pages, [&] {
      if (step != -loads_ahead) return;
      copy_rows<typename Traits::QTile, Config::head_dim, Traits::threads, Config::alignment>(
          queries, QueryRows<Config>(params, split));
    });
    if (step < 0) continue;
    cp_async_wait_group<groups_ahead + 1>();  // keys  // mutate: NoWaitForKeysOfACluster
    if (step == 0) {
      __syncthreads();  // the queries of all threads are there  // mutate: QueriesWithoutBarrier
      q.load(queries, 0);
      scales.begin_split(split, q);
    }
    __syncwarp();
    const KeyTileInfo info = pipeline.info(step);
    if ((info.flags & key_info_none) != 0) break;
    const unsigned stage = pipeline.stage(step);
    typename Traits::Scores scores;
    Products::multiply_qk(scores, q, stage);
    scales.scale_scores(scores, stage, 0);
    apply_row_functors<Config>(scores, params, split, score_origin(split, info, 0));
    online_softmax<Rescale::lazy>(scores, output, state, scale_log2);
    scales.scale_weights(scores, stage, 0);
    cp_async_wait_group<groups_ahead>();  // values  // mutate: NoWaitForValues
    __syncwarp();                         // mutate: TilesOfOtherLanesWithoutBarrier
    Products::multiply_pv(output, scores, stage + Traits::layout.v);
    if ((info.flags & key_info_end) != 0) break;
    __syncwarp();  // all lanes are done with the tile
  }
  scales.scale_output(output);
  // mutate: ResultsOverTilesOfOtherWarps
  __syncthreads();  // the other warps are done with the tiles that lie where results will
  const WarpSplits<Traits> splits(bytes);
  splits.put(output, state, scale_log2);
  __syncthreads();  // mutate: ResultsOfOtherWarpsWithoutBarrier
  return splits;
}

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char bytes[];
  touch_lines(params);
  const int rank = cluster_rank();
  const ReceiveBuffer<Traits> receive_buffer(bytes, rank);
  if (threadIdx.x == 0) receive_buffer.init();
  cluster_arrive();
  wait_on_dependent_grids();
  const SplitWorkTile work_tile = work_tile_of_cluster<Config>(params);
  const SplitInfo split{.batch = work_tile.batch,
                        .kv_head = work_tile.kv_head,
                        .row_begin = work_tile.row_begin,
                        .q = work_tile.q,
                        .kv = work_tile.kv,
                        .split = rank,
                        .splits = Config::cluster,
                        .first_block = 0};
  const int pieces = (work_tile.row_end - work_tile.row_begin) * PiecePlace<Config>::of_row;
  if (pieces > 0) {
    if (threadIdx.x == 0) receive_buffer.expect(pieces);
    if constexpr (has_output_functor<Config>) {
      if (rank == 0 && warp_id() == Config::block_warps - 1) prefetch_numbers<Config>(params, split, 0);
    }
    const WarpSplits<Traits> splits = multiply_keys<Config>(params, work_tile, split, bytes);
    cluster_wait();  // all receive buffers are there  // mutate: SentBeforeTheClusterHasMet
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < pieces; i += Traits::threads) {
      const PiecePlace<Config> at(i);
      receive_buffer.send(i, merge_piece(splits, at.row, at.column));
    }
    receive_buffer.wait();  // mutate: NoWaitForTheOthers
#pragma unroll 1
    for (int place = static_cast<int>(threadIdx.x);; place += Traits::threads) {
      const int i = receive_buffer.index(place);
      if (i >= pieces) break;
      const PiecePlace<Config> at(i);
      store_piece<Config>(params, split, at.row, at.column, merge_piece(receive_buffer, place, 0));
    }
  } else {
    cluster_wait();
  }
  const int heads = static_cast<int>(gridDim.y * gridDim.z);
  const int block =
      static_cast<int>(blockIdx.x) * heads + static_cast<int>(blockIdx.y * gridDim.z + blockIdx.z);
  zero_padding<Config>(params, block * Traits::warps + warp_id(),
                       static_cast<int>(gridDim.x) * heads * Traits::warps);
  launch_dependent_grids();
}

}  // namespace jit::forward_split_cluster
