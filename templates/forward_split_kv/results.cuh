// From what the warps of a block have come to for a tile of rows to a result of the block.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/kv_products.cuh"
#include "forward_split_kv/traits.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/merge_parts.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_params.cuh"
#include "steps/softmax.cuh"

namespace jit::forward_split_kv {

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
      KvProducts<Config>::for_each_pair(output, r, [&](int column, float2 pair) {
        *reinterpret_cast<float2*>(o_ + row * row_floats + column) = pair;
      });
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
/// share (split_keys/merge_parts.cuh). `stage` is free shared memory, behind a barrier. Leaves output and state as the
/// next part begins with them.
template <class Config>
__device__ __forceinline__ void finish_part(const AttentionParams& params, const DescaleParams& descale,
                                            const SplitParams& split, const Note<Config>& note,
                                            typename KernelTraits<Config>::Output& output,
                                            SoftmaxState<KernelTraits<Config>::Output::rows>& state,
                                            float scale_log2, unsigned char* stage) {
  using Traits = KernelTraits<Config>;
  const WarpResults<Config> own(stage);
  const BlockTeam<Config> team;
  bool may_merge = false;
  if constexpr (Config::split_keys == 0) may_merge = team.thread == 0 && have_begun(split, note);
  team.sync();  // the other warps are done with the tiles that lie here
  own.put(output, state, scale_log2);
  output.clear();
  state = {};
  team.sync();
  const int pieces = rows_of<Config, Traits::tile_rows>(note) * PiecePlace<Config>::of_row;
#pragma unroll 1
  for (int i = team.thread; i < pieces; i += Traits::threads) {
    const PiecePlace<Config> at(i);
    RowPiece piece = merge(own, at.row, at.column);
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
  if constexpr (Config::split_keys == 0) {
    end_part<Config, Traits::tile_rows>(params, descale, split, note, team, may_merge);
  } else if (note.parts > 1) {
    merge_parts<Config, Traits::tile_rows>(params, descale, split, note, team);
  }
}

}  // namespace jit::forward_split_kv
