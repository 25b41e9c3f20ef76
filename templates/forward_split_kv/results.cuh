// From what the warps of a block have come to for a tile of rows to a result of the block.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/end_part.cuh"
#include "split_keys/merge_shares.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/warp_parts.cuh"
#include "steps/softmax.cuh"

namespace jit::forward_split_kv {

/// All threads of the block that compute.
template <class Config>
struct BlockTeam {
  using Traits = KernelTraits<Config>;
  static constexpr int threads = Traits::threads;
  int thread = static_cast<int>(threadIdx.x);

  __device__ __forceinline__ void sync() const {
    if constexpr (Traits::uses_tma) return bar_sync(Traits::consumers_barrier, threads);
    __syncthreads();
  }
};

/// Ends a part of a unit: the block merges what its warps have come to, and what all blocks have of a unit that several
/// share (split_keys/end_part.cuh). `stage` is free shared memory, behind a barrier. Leaves output and state as the
/// next part begins with them.
template <class Config>
__device__ __forceinline__ void finish_part(const AttentionParams& params, const DescaleParams& descale,
                                            const SplitParams& split, const Note<Config>& note,
                                            typename KernelTraits<Config>::Output& output,
                                            SoftmaxState<KernelTraits<Config>::Output::rows>& state,
                                            float scale_log2, unsigned char* stage) {
  using Traits = KernelTraits<Config>;
  const WarpParts<Traits> own(stage);
  const BlockTeam<Config> team;
  const bool asked = may_merge<Config>(split, note, team.thread);
  team.sync();  // the other warps are done with the tiles that lie here  // mutate: NoBarrierBeforeResults
  own.put(output, state, scale_log2);
  output.clear();
  state = {};   // mutate: StateOfThePartBefore
  team.sync();  // mutate: NoBarrierBehindResults
  const int pieces = rows_of<Config, Traits::tile_rows>(note) * PiecePlace<Config>::of_row;
#pragma unroll 1
  for (int i = team.thread; i < pieces; i += Traits::threads) {
    const PiecePlace<Config> at(i);
    RowPiece piece = merge_piece(own, at.row, at.column);
    if constexpr (Config::split_keys != 0) {
      const SpanNodes<Config> nodes = own_nodes<Config>(split, note);
      const bool is_done = settle_span(
          note, [&](const SpanNode& left) { piece = join(nodes.piece(left, at.row, at.column), piece); },
          [&](const SpanNode& node) { nodes.put(node, at.row, at.column, piece); });
      if (is_done) store_piece<Config>(params, descale, note, at.row, at.column, piece);
    } else if (note.parts == 1) {
      store_piece<Config>(params, descale, note, at.row, at.column, piece);
    } else {
      BlockResults<Config>(split, note).put(note.part, at.row, at.column, piece);
    }
  }
  end_part<Config, Traits::tile_rows>(params, descale, split, note, team, asked);
}

}  // namespace jit::forward_split_kv
