// Merges the partial results that the warps of a block have for a tile of rows into one result of the block.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/end_split.cuh"
#include "split_keys/merge_shares.cuh"
#include "split_keys/packed_maxima.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/warp_splits.cuh"
#include "steps/softmax.cuh"

namespace jit::forward_split_kv {

/// All consumer threads of the block.
template <class Config>
struct BlockTeam {
  using Traits = KernelTraits<Config>;
  static constexpr int threads = Traits::threads;
  int thread = static_cast<int>(threadIdx.x);

  JIT_DEVICE void sync() const {
    if constexpr (Traits::uses_tma) return bar_sync(Traits::consumers_barrier, threads);
    __syncthreads();
  }
};

/// Whether the block's result is the result of the whole work tile.
template <class Config>
JIT_DEVICE bool is_alone(const Info<Config>& info) {
  if constexpr (Config::split_keys != 0) return info.splits == 1 && info.span + 1 >= info.split_end;
  return info.splits == 1;
}

/// Ends a split of a work tile: the block merges the results of its warps and, if several blocks share the work tile,
/// those of all blocks (split_keys/end_split.cuh). `stage` is free shared memory after a barrier. Resets output and
/// state for the next split.
template <class Config>
JIT_DEVICE void finish_split(const AttentionParams& params, const SplitParams& split_params,
                             const Info<Config>& info, typename KernelTraits<Config>::Output& output,
                             typename KernelTraits<Config>::State& state, float scale_log2,
                             unsigned char* stage) {
  using Traits = KernelTraits<Config>;
  const WarpSplits<Traits> own(stage);
  const BlockTeam<Config> team;
  const bool asked = all_begun<Config>(split_params, info, team.thread);
  team.sync();  // the other warps are done with the tiles that lie here  // mutate: NoBarrierBeforeResults
  own.put(output, state, scale_log2);
  if (Traits::first_column() == 0) {
    const int first_row = warp_id() % Config::row_warps * Traits::warp_rows;
    raise_packed_maxima<Config, typename Traits::Output>(params, info, first_row, state);
  }
  output.clear();
  state = {};   // mutate: StateOfTheSplitBefore
  team.sync();  // mutate: NoBarrierBehindResults
  const int rows = rows_of<Config, Traits::tile_rows>(info);
  if constexpr (finds_output_scales<Config>) {
    if (is_alone<Config>(info)) {
      store_whole_rows<Config>(params, info, team, rows, [&](int row, int column) {
        RowPiece piece = merge_piece(own, row, column);
        if constexpr (Config::split_keys != 0) {
          const SpanNodes<Config> nodes = own_nodes<Config>(split_params, info);
          settle_span(
              info, [&](const SpanNode& left) { piece = join(nodes.piece(left, row, column), piece); },
              [&](const SpanNode&) {});
        }
        return piece;
      });
      end_split<Config, Traits::tile_rows>(params, split_params, info, team, asked);
      return;
    }
  }
  const int pieces = rows * PiecePlace<Config>::of_row;
#pragma unroll 1
  for (int i = team.thread; i < pieces; i += Traits::threads) {
    const PiecePlace<Config> at(i);
    RowPiece piece = merge_piece(own, at.row, at.column);
    if constexpr (Config::split_keys != 0) {
      const SpanNodes<Config> nodes = own_nodes<Config>(split_params, info);
      [[maybe_unused]] const bool is_done = settle_span(
          info, [&](const SpanNode& left) { piece = join(nodes.piece(left, at.row, at.column), piece); },
          [&](const SpanNode& node) { nodes.put(node, at.row, at.column, piece); });
      if constexpr (!finds_output_scales<Config>) {
        if (is_done) store_piece<Config>(params, info, at.row, at.column, piece);
      }
    } else if (!finds_output_scales<Config> && info.splits == 1) {
      store_piece<Config>(params, info, at.row, at.column, piece);
    } else {
      BlockResults<Config>(split_params, info).put(info.split, at.row, at.column, piece);
    }
  }
  end_split<Config, Traits::tile_rows>(params, split_params, info, team, asked);
}

}  // namespace jit::forward_split_kv
