// An item of work: a tile of queries of a head by a range of keys. Thread blocks are persistent and take one item after another;
// producers and consumers find the same ones by themselves.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/varlen_tiles.cuh"
#include "jit/options.h"
#include "pipeline/pipeline.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/masks.cuh"
#include "scheduling/query_block.cuh"
#include "score_blocks/params.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

template <class C>
struct ScoreBlocksTraits {
  using Config = C;
  using Element = typename Config::Element;
  using Q = PanelTile<Element, score_blocks_queries, Config::head_dim>;
  using K = PanelTile<Element, score_blocks_keys, Config::head_dim>;
  using Scores = Accumulator<MmaLayout, MmaLayout::block_rows, score_blocks_keys>;
  static constexpr ScoreBlocksSmem layout = score_blocks_smem(Config::head_dim);
  static constexpr int consumers = score_blocks_consumers, order_barrier = 1;
  static constexpr WarpgroupOrder order = WarpgroupOrder::ping_pong;
  static constexpr int blocks = score_blocks_keys / Config::block_size;  ///< of a tile of keys
  using QPipeline = Pipeline<layout.q.stages, Q::bytes>;
  using KPipeline = Pipeline<layout.k.stages, K::bytes>;
};

template <class Config>
struct ScoreBlocksItem {
  int batch = 0;
  int head;
  int q_begin;     ///< of the tile; outside of the sequence where the place is empty
  int tile_begin;  ///< tiles of keys, seen or not
  int tile_end;

  /// By whole warps.
  JIT_DEVICE ScoreBlocksItem(const ScoreBlocksParams& params, int item) {
    const AttentionParams& attention = params.attention;
    const int column = item % params.columns, chunk = item / params.columns;
    head = column % attention.heads_q;
    const int tile = column / attention.heads_q;
    if constexpr (Config::sequences_q == SequenceKind::varlen) {
      const VariableSequences<Config> sequences(attention);
      const VarlenPlace place = varlen_place<score_blocks_queries>(
          tile, attention.batch, [&](int entry) { return sequences.q_begin(entry); });
      batch = uniform(place.batch);
      q_begin = uniform(place.first_row);
    } else {
      batch = tile / params.query_tiles;
      q_begin = tile % params.query_tiles * score_blocks_queries;
    }
    tile_begin = chunk * params.chunk_tiles;
    const int tiles = rounded_up_quotient(params.blocks, score_blocks_keys / Config::block_size);
    tile_end = minimum(tile_begin + params.chunk_tiles, tiles);
  }
};

/// The sequences of an item, and which tiles of keys the mask leaves to look at.
template <class Config>
struct ScoreBlocksEntry {
  SequencesOf<Config> sequences;
  BlockContext context;
  int q_end;
  int seen_begin;
  int seen_end;

  /// By whole warps.
  JIT_DEVICE ScoreBlocksEntry(const AttentionParams& params, const ScoreBlocksItem<Config>& item)
      : sequences(params, item.batch), context(sequences.context(item.batch, item.head)) {
    q_end = minimum(item.q_begin + score_blocks_queries, context.seqlen_q);
    seen_begin = seen_end = 0;
    if (!is_there(item)) return;
    const KeyRange range = typename Config::Mask(context).key_range(item.q_begin, q_end);
    seen_begin = maximum(range.begin, 0) / score_blocks_keys;
    seen_end = rounded_up_quotient(minimum(range.end, context.seqlen_kv), score_blocks_keys);
  }
  JIT_DEVICE bool is_there(const ScoreBlocksItem<Config>& item) const {
    return item.q_begin >= 0 && item.q_begin < q_end;
  }
  JIT_DEVICE bool sees(int tile) const { return tile >= seen_begin && tile < seen_end; }
  /// Whether some tile of the item is looked at.
  JIT_DEVICE bool sees_some(const ScoreBlocksItem<Config>& item) const {
    return maximum(item.tile_begin, seen_begin) < minimum(item.tile_end, seen_end);
  }
};

/// Where rows lie for TMA: all varlen sequences are one.
template <bool is_varlen>
JIT_DEVICE RowPlace score_row_place(const Sequence& rows, int batch, int head, int row) {
  return {rows.begin + row, head, is_varlen ? 0 : batch};
}

}  // namespace jit
