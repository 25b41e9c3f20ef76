// An item of work: a tile of queries of a head by a range of keys. Thread blocks are persistent and take one item after another;
// producers and consumers find the same ones by themselves.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "base/varlen_tiles.cuh"
#include "jit/options.h"
#include "pipeline/pipeline.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "scheduling/query_block.cuh"
#include "score_blocks/params.cuh"
#include "steps/apply_functors.cuh"
#include "steps/score_gradients.cuh"
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
  static constexpr ScoreBlocksSmem layout = score_blocks_smem(Config::head_dim, Config::sums_heads);
  static constexpr bool keys_are_rows = false, keys_stay = Config::sums_heads, shares_columns = false;
  static constexpr int products = 1, consumers = score_blocks_consumers, order_barrier = 1;
  static constexpr WarpgroupOrder order = WarpgroupOrder::ping_pong;
  static constexpr int q_arrivals = 1, k_arrivals = 1, producer_registers = 40, consumer_registers = 232;
  static constexpr int blocks = score_blocks_keys / Config::block_size;  ///< of a tile of keys
  using QPipeline = Pipeline<layout.q.stages, Q::bytes>;
  using KPipeline = Pipeline<layout.k.stages, K::bytes>;
};

template <class Config>
struct ScoreBlocksItem {
  int batch = 0;
  int head;        ///< of keys, where those of queries are summed
  int q_begin;     ///< of the tile; outside of the sequence where the place is empty
  int tile_begin;  ///< tiles of keys, seen or not
  int tile_end;

  /// By whole warps.
  JIT_DEVICE ScoreBlocksItem(const ScoreBlocksParams& params, int item) {
    const AttentionParams& attention = params.attention;
    const int heads = attention.heads_q / (Config::sums_heads ? Config::gqa_ratio : 1);
    const int column = item % params.columns, chunk = item / params.columns;
    head = column % heads;
    const int tile = column / heads;
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
  /// The first row of the lane, whose warpgroup's rows of the tile begin with `first_row`.
  JIT_DEVICE int first_query(int first_row) const {
    return q_begin + first_row + warp_id() % 4 * MmaLayout::block_rows + MmaLayout::lane_row(lane_id());
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

  /// Where the rows of a tile lie for TMA: all varlen sequences are one.
  JIT_DEVICE RowPlace query_place(const ScoreBlocksItem<Config>& item, int head) const {
    return {sequences.q(item.batch).begin + item.q_begin, head, is_varlen_q ? 0 : item.batch};
  }
  JIT_DEVICE RowPlace key_place(const ScoreBlocksItem<Config>& item, int head, int tile) const {
    return {sequences.kv(item.batch).begin + tile * score_blocks_keys, head, is_varlen_kv ? 0 : item.batch};
  }
  /// The item's rows of results.
  JIT_DEVICE DenseRows<float> rows(const ScoreBlocksParams& params,
                                   const ScoreBlocksItem<Config>& item) const {
    const TensorStrides& strides = params.score_strides;
    const long long batch = is_varlen_q ? 0 : item.batch;
    float* const head = params.scores + batch * strides.batch + item.head * strides.head;
    return {head + sequences.q(item.batch).begin * strides.seq, strides.seq};
  }

 private:
  static constexpr bool is_varlen_q = Config::sequences_q == SequenceKind::varlen;
  static constexpr bool is_varlen_kv = Config::sequences_kv == SequenceKind::varlen;
};

/// A lane's scores of a tile of queries and one of keys.
template <class Traits>
class ScoreBlocksTile {
  using Config = typename Traits::Config;
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  static constexpr MaskQuery mask_query = has_row_range<Mask> ? MaskQuery::shortest : MaskQuery::each_score;

 public:
  /// `context` is the entry's with any head.
  JIT_DEVICE ScoreBlocksTile(const ScoreBlocksEntry<Config>& entry, const BlockContext& context, int q_begin,
                             int query, int tile)
      : context_(context),
        mask_(context),
        place_{query, tile * score_blocks_keys + MmaLayout::lane_column(lane_id())} {
    const int first_key = tile * score_blocks_keys, key_end = first_key + score_blocks_keys;
    const ScoreTile asked{q_begin, entry.q_end, first_key, minimum(key_end, context.seqlen_kv)};
    is_partial_ = mask_.classify(asked) != TileClass::full || key_end > context.seqlen_kv;
  }
  /// Applies the score functor and the mask to the products.
  JIT_DEVICE void apply(typename Traits::Scores& scores, float scale) const {
    apply_score<QueriesByKeys>(scores, place_.q, place_.k, Score(context_), scale, context_);
    // mutate: MaskedKeysHaveScores
    if (is_partial_) drop_masked<mask_query>(scores, place_, mask_, context_);
  }

 private:
  const BlockContext& context_;
  const Mask mask_;
  const ScorePlace place_;
  bool is_partial_;
};

}  // namespace jit
