// Merges the results of spans of keys: nodes of a tree (split_keys/span_tree.cuh) that wait in the workspace.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/atomic.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/merge_splits.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/span_tree.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// The nodes that a split of a work tile stores. A block has room for those of a split that begins within a work tile,
/// and for those of one that begins with its work tile, as do all work tiles that it has alone, one after another.
template <class Config>
class SpanNodes {
 public:
  JIT_DEVICE SpanNodes(const SplitParams& split_params, int block, bool begins_work_tile)
      : rows_(split_params.partial_rows), levels_(split_params.levels) {
    const long long node =
        static_cast<long long>(split_nodes(levels_)) * block + (begins_work_tile ? 2 * levels_ : 0);
    first_ = split_params.partials + node * floats();
  }

  JIT_DEVICE RowState state(const SpanNode& node, int row) const {
    const float2 state = __ldcg(reinterpret_cast<const float2*>(states(node)) + row);
    return {state.x, state.y};
  }
  JIT_DEVICE float2 pair(const SpanNode& node, int row, int column) const {
    return __ldcg(reinterpret_cast<const float2*>(values(node, row, column)));
  }
  JIT_DEVICE RowPiece piece(const SpanNode& node, int row, int column) const {
    return {__ldcg(reinterpret_cast<const float4*>(values(node, row, column))), state(node, row)};
  }

  JIT_DEVICE void put_state(const SpanNode& node, int row, const RowState& state) const {
    reinterpret_cast<float2*>(states(node))[row] = make_float2(state.max, state.sum);
  }
  JIT_DEVICE void put_pair(const SpanNode& node, int row, int column, const float2& pair) const {
    *reinterpret_cast<float2*>(values(node, row, column)) = pair;
  }
  /// The piece with the first column leaves the row's state, too.
  JIT_DEVICE void put(const SpanNode& node, int row, int column, const RowPiece& piece) const {
    *reinterpret_cast<float4*>(values(node, row, column)) = piece.values;
    if (column == 0) put_state(node, row, piece.state);
  }

 private:
  JIT_DEVICE int floats() const { return partial_floats(rows_, Config::head_dim_v, 1); }
  JIT_DEVICE float* place(const SpanNode& node) const {
    return first_ + static_cast<long long>(node.level + (node.is_right() ? levels_ : 0)) * floats();
  }
  JIT_DEVICE float* values(const SpanNode& node, int row, int column) const {
    return place(node) + row * Config::head_dim_v + column;
  }
  JIT_DEVICE float* states(const SpanNode& node) const { return place(node) + rows_ * Config::head_dim_v; }

  float* first_;
  int rows_;
  int levels_;
};

/// The nodes of the block's own split.
template <class Config>
JIT_DEVICE SpanNodes<Config> own_nodes(const SplitParams& split_params, const SpanInfo& info) {
  return {split_params, info.first_block + info.split, info.split == 0};
}

/// Merges the result of a span with those of earlier spans of the split, by merge(left) and keep(node) as in `settle`.
/// Returns whether it is now the whole work tile's.
template <class Merge, class Keep>
JIT_DEVICE bool settle_span(const SpanInfo& info, Merge merge, Keep keep) {
  const bool is_last = info.splits == 1 && info.span + 1 >= info.split_end;
  // mutate: TheTreeOfWhatTheRowsSee
  return settle({info.split_begin, info.split == 0}, {info.span, 0}, is_last, merge, keep);
}

/// One piece of the merged result of all splits of a work tile.
template <class Config>
JIT_DEVICE RowPiece merged_work_tile(const SplitParams& split_params, const SpanInfo& info, int row,
                                     int column) {
  constexpr int reads = requires { Config::score_registers; }
  ? 2 : 8;  // all that is read of some nodes is on the way at once
  WorkTileNodes walk(info, span_tiles<Config>);
  RowPiece waiting[most_span_levels];  // waiting results of left siblings, by level
  RowPiece merged;
#pragma unroll 1
  while (true) {
    SpanNode nodes[reads];
    RowPiece pieces[reads];
    int count = 0;
#pragma unroll
    for (int i = 0; i < reads; ++i) {
      if (!walk.has_node()) continue;
      nodes[i] = walk.node();
      const SpanNodes<Config> kept(split_params, info.first_block + walk.split(), walk.split() == 0);
      pieces[i] = kept.piece(nodes[i], row, column);
      count = i + 1;
      walk.advance();
    }
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      merged = pieces[i];
      const bool is_last = i + 1 == count && !walk.has_node();
      const bool is_done = settle(
          walk.spans(), nodes[i], is_last,
          [&](const SpanNode& left) { merged = join(waiting[left.level], merged); },
          [&](const SpanNode& node) { waiting[node.level] = merged; });
      if (is_done) return merged;
    }
  }
}

/// Counts a finished split of a work tile, whose nodes the team has stored. The last split merges the nodes of all and
/// stores the rows, in an order that does not depend on where splits begin. By a team whose threads share `info`.
template <class Config, int tile_rows, class Team>
JIT_DEVICE void merge_splits(const AttentionParams& params, const SplitParams& split_params,
                             const SpanInfo& info, const Team& team) {
  if (info.span + 1 < info.split_end) return;
  const unsigned last = static_cast<unsigned>(info.splits) - 1;
  team.sync();  // thread 0 releases and acquires for the team, by cumulativity of the barriers
  if (team.thread == 0) info.ticket = atomic_inc_acq_rel(split_params.counters + info.first_block, last);
  team.sync();
  if (info.ticket != last) return;  // mutate: MergedTooEarly
  const int rows = rows_of<Config, tile_rows>(info);
  if constexpr (finds_output_scales<Config>) {
    store_whole_rows<Config>(params, info, team, rows, [&](int row, int column) {
      return merged_work_tile<Config>(split_params, info, row, column);
    });
    return;
  }
  const int pieces = rows * PiecePlace<Config>::of_row;
#pragma unroll 1
  for (int i = team.thread; i < pieces; i += Team::threads) {
    const PiecePlace<Config> at(i);
    store_piece<Config>(params, info, at.row, at.column,
                        merged_work_tile<Config>(split_params, info, at.row, at.column));
  }
}

}  // namespace jit
