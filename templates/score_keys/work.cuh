// An item of work: some tokens, whose heads are the columns of its products, by a range of keys. Blocks are persistent and take one
// item after another; producers and consumers find the same ones by themselves.
#pragma once

#include "base/prelude.cuh"
#include "jit/options.h"
#include "pipeline/pipeline.cuh"
#include "ptx/math.cuh"
#include "score_keys/params.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

template <class C>
struct ScoreKeysTraits {
  using Config = C;
  using Element = typename Config::Element;
  using Q = PanelTile<Element, score_keys_columns, Config::head_dim>;
  using K = PanelTile<Element, score_keys_tile, Config::head_dim>;
  using Scores = Accumulator<MmaLayout, MmaLayout::block_rows, score_keys_columns>;
  static constexpr ScoreKeysSmem layout = score_keys_smem(Config::head_dim, sizeof(Element));
  static constexpr bool keys_are_rows = true, keys_stay = false, shares_columns = false;
  static constexpr int products = 1, consumers = score_keys_consumers, order_barrier = 1;
  static constexpr WarpgroupOrder order = WarpgroupOrder::ping_pong;
  static constexpr int q_arrivals = 1, k_arrivals = Config::has_scales ? 1 + warp_size : 1;
  static constexpr int producer_registers = 32, consumer_registers = 112;
  static constexpr int tokens = score_keys_columns / Config::heads;  ///< of a tile
  using QPipeline = Pipeline<layout.q.stages, Q::bytes>;
  using KPipeline = Pipeline<layout.k.stages, K::bytes>;
};

/// An item, of which each lane has the visible keys of the token that is as many behind the first.
template <class Traits>
struct ScoreKeysItem {
  int entry;
  int first_token;  ///< in its entry
  int start = 0;    ///< of the lane's token
  int end = 0;
  int tile_begin;  ///< tiles of keys
  int tile_end;

  /// By a whole warp.
  JIT_DEVICE ScoreKeysItem(const ScoreKeysParams& params, int item) {
    const int column = item % params.columns_of_tokens, chunk = item / params.columns_of_tokens;
    entry = column / params.token_tiles;
    first_token = column % params.token_tiles * Traits::tokens;
    const int own = first_token + lane_id();
    int first = params.columns, last = 0;
    if (lane_id() < Traits::tokens && own < params.tokens) {
      const long long token = static_cast<long long>(entry) * params.tokens + own;
      start = params.starts == nullptr ? 0 : maximum(params.starts[token], 0);
      end = params.ends == nullptr ? params.columns : minimum(params.ends[token], params.columns);
      if (start < end) {
        first = start;
        last = end;
      }
    }
    first = __reduce_min_sync(full_warp, first);
    last = __reduce_max_sync(full_warp, last);
    tile_begin = maximum(first / score_keys_tile, chunk * params.chunk_tiles);
    tile_end = minimum(rounded_up_quotient(last, score_keys_tile), (chunk + 1) * params.chunk_tiles);
  }
  JIT_DEVICE bool is_empty() const { return tile_begin >= tile_end; }
};

/// The scale of a key in a page that does not exist: its score is −inf. A NaN that no arithmetic makes.
inline constexpr unsigned scale_of_no_key = 0x7fffdeadu;

}  // namespace jit
