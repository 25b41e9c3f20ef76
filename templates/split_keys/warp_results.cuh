// The epilogue of consumer warpgroups: writes accumulators to rows of O and LSE, or to a partial result that is merged
// with those of other blocks. A kernel family provides Traits: its Config, the Output of a warp, the number of pairs of
// it that a lane reads at once when merging, tile_rows, and the threads and the barrier of all consumers.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/direct_output.cuh"
#include "epilogue/output_functor.cuh"
#include "epilogue/quantized_output.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/end_split.cuh"
#include "split_keys/merge_shares.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"
#include "steps/softmax.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// Σ P · score of each row, where means of scores are wanted.
template <class Config, int rows, bool are_wanted = has_mean_score<Config>>
struct ScoreSums {};
template <class Config, int rows>
struct ScoreSums<Config, rows, true> {
  float scores[rows];
};

/// The result of a consumer warp: 16 rows of the tile from row `first_row` on, and columns of O from `first_column` on.
/// `softmax` has each lane's own sums.
template <class Traits>
struct WarpResult : ScoreSums<typename Traits::Config, Traits::Output::rows> {
  using Output = typename Traits::Output;
  using Layout = typename Output::Layout;

  Output& output;
  RowState states[Output::rows];  ///< of the lane's rows
  int first_row;
  int first_column;

  template <class State>
  JIT_DEVICE WarpResult(Output& own, const State& softmax, float scale_log2, int row)
      : output(own), first_row(row), first_column(0) {
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const float sum = Layout::reduce(softmax.row_sum[r], [](float x, float y) { return x + y; });
      states[r] = row_state(softmax.row_max[r], scale_log2, sum);
      if constexpr (State::keeps_mean) {
        // mutate: PackedMeanOfOneLane
        const float weighted = Layout::reduce(softmax.weighted[r], [](float x, float y) { return x + y; });
        this->scores[r] = sum_of_scores(states[r], weighted);
      }
    }
  }
  /// The result, with states that another warp has computed.
  JIT_DEVICE WarpResult(Output& own, const RowState (&known)[Output::rows], int row, int column)
      : output(own), first_row(row), first_column(column) {
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) states[r] = known[r];
  }

  /// Calls f(r, row) for the lane's rows: `row` counts in the tile.
  template <class F>
  JIT_DEVICE void for_each_row(F f) const {
    Output::for_each_row(first_row + Layout::lane_row(lane_id()), f);
  }
  /// Column of O of the lane's first pair of a row.
  JIT_DEVICE int lane_column() const { return first_column + Layout::lane_column(lane_id()); }
  /// Calls f(n, offset) for the lane's pairs of a row. `offset` counts from the first pair's column and is a
  /// compile-time constant, so that one address serves all pairs.
  template <class F>
  JIT_DEVICE void for_each_pair(F f) const {
    for_pairs(0, Output::column_blocks, f);
  }
  /// Calls f for the pairs from `begin` to `end`.
  template <class F>
  JIT_DEVICE void for_pairs(int begin, int end, F f) const {
    constexpr int head_dim_v = Traits::Config::head_dim_v;
    constexpr bool all_exist = head_dim_v % (Output::column_blocks * Layout::block_columns) == 0;
#pragma unroll
    for (int n = begin; n < end && n < Output::column_blocks; ++n) {
      const int offset = Layout::column(0, n, 0);
      if (all_exist || offset + lane_column() < head_dim_v) f(n, offset);
    }
  }
  /// Whether the lane writes what exists once per row.
  JIT_DEVICE bool is_row_leader() const { return first_column == 0 && Layout::is_row_leader(lane_id()); }
};

/// Writes the rows of a work tile that the block does not share.
template <class Traits>
JIT_DEVICE void store_rows(const AttentionParams& params, const SplitInfo& info,
                           const WarpResult<Traits>& result) {
  using Config = typename Traits::Config;
  using Element = OutputElement<Config>;
  using Output = typename Traits::Output;
  using Sequences = VariableSequences<Config>;
  result.for_each_row([&](int r, int tile_row) {
    const int row = info.row_begin + tile_row;
    const bool exists = row < info.q.length * Config::gqa_ratio;
    const PackedRow<Config> place(info.kv_head, exists ? row : 0);
    const int query = info.q.begin + place.query;
    const RowEnd end = row_end<Config>(result.states[r], params, place.head);
    Element* const columns = static_cast<Element*>(params.o) +
                             Sequences::query_offset(params.o_strides, info.batch, place.head, query) +
                             result.first_column;
    if constexpr (finishes_output<Config>) {
#pragma unroll
      for (int n = 0; n < Output::column_blocks; ++n) {
#pragma unroll
        for (int i = 0; i < Output::pair; ++i) {
          float& x = result.output.at(r, n, i);
          x = end.factor == 0 ? 0
                              : normalized<Config>(x, end.factor);  // 0 · NaN is NaN, but the row must be 0
        }
      }
    }
    if constexpr (has_output_functor<Config>) {
      if (exists)
        finish_product_row<Config>(params, packed_context<Config>(params, info, place), result.output, r,
                                   place.query, result.first_column);
    }
    if constexpr (quantizes_output<Config>) {
      store_quantized_row<Config>(params, packed_context<Config>(params, info, place), result.output, r,
                                  place.query, exists, result.first_column);
    } else {
      store_by_quads<Output::column_blocks>(
          columns, Config::head_dim_v - result.first_column, exists, [&](int n) {
            if constexpr (has_output_functor<Config>)
              return pack<Element>(result.output.at(r, n, 0), result.output.at(r, n, 1));
            const unsigned pair = pack<Element>(normalized<Config>(result.output.at(r, n, 0), end.factor),
                                                normalized<Config>(result.output.at(r, n, 1), end.factor));
            return end.factor == 0 ? 0 : pair;  // 0 · NaN would be NaN
          });
    }
    if (exists && result.is_row_leader() && params.lse != nullptr)
      params.lse[Sequences::query_offset(params.lse_strides, info.batch, place.head, query)] = end.lse;
    if constexpr (has_mean_score<Config>) {
      if (exists && result.is_row_leader())
        write_packed_mean<Config>(params, info.batch, place.head, query, end, result.scores[r]);
    }
  });
}

/// Writes the partial result of a split of a shared work tile. Lanes of a row write copies of its state in turns.
template <class Traits>
JIT_DEVICE void put_rows(const BlockResults<typename Traits::Config>& results, int split, int rows,
                         const WarpResult<Traits>& result) {
  using Output = typename Traits::Output;
  constexpr int columns = Output::column_blocks * Output::Layout::block_columns;
  const int columns_left = Traits::Config::head_dim_v - result.first_column;
  result.for_each_row([&](int r, int row) {
    if (row >= rows) return;
    float2* const pairs = reinterpret_cast<float2*>(results.values(split, row, result.lane_column()));
    result.for_each_pair([&](int n, int offset) {
      store_relaxed(pairs + offset / 2, make_float2(result.output.at(r, n, 0), result.output.at(r, n, 1)));
    });
    if (result.first_column % results.column_slice != 0) return;
#pragma unroll
    for (int first = 0; first < columns; first += 4 * results.column_slice) {
      const int column = first + lane_id() % 4 * results.column_slice;
      if (column < columns_left)
        results.put_state(split, row, result.first_column + column, result.states[r]);
    }
    if constexpr (has_mean_score<typename Traits::Config>) {
      constexpr int column = Traits::Config::head_dim_v;
      if (!result.is_row_leader()) return;
      store_relaxed(reinterpret_cast<float4*>(results.values(split, row, column)),
                    make_float4(result.scores[r], 0, 0, 0));
      if (column % results.column_slice == 0) results.put_state(split, row, column, result.states[r]);
    }
  });
}

/// Merges the rows of a span, of which the tile has `rows`, with waiting results of earlier spans of the split, or
/// stores them. Each lane has written the values that it reads; for states, it has done so itself or a barrier of
/// consumers lies in between. Returns whether the result is now the whole work tile's.
template <class Traits>
JIT_DEVICE bool settle_rows(const SpanNodes<typename Traits::Config>& nodes, const SpanInfo& info, int rows,
                            WarpResult<Traits>& result) {
  using Output = typename Traits::Output;
  using Layout = typename Output::Layout;
  const bool speaks = Layout::is_row_leader(lane_id());
  const auto merge = [&](const SpanNode& left) {
    result.for_each_row([&](int r, int row) {
      RowState state{negative_infinity(), 0};
      if (speaks && row < rows) state = nodes.state(left, row);
      state = {Layout::from_speaker(state.max), Layout::from_speaker(state.sum)};
      const JoinWeights weights = join_states(state, result.states[r]);
      constexpr int reads = Traits::pairs_read;
#pragma unroll
      for (int first = 0; first < Output::column_blocks; first += reads) {
        float2 pairs[reads] = {};
        result.for_pairs(first, first + reads, [&](int n, int offset) {
          if (row < rows) pairs[n - first] = nodes.pair(left, row, result.lane_column() + offset);
        });
        result.for_pairs(first, first + reads, [&](int n, int) {
          float& x = result.output.at(r, n, 0);
          float& y = result.output.at(r, n, 1);
          x = weights.sum(pairs[n - first].x, x);
          y = weights.sum(pairs[n - first].y, y);
        });
        asm volatile("" ::: "memory");  // keeps later loads after these
      }
    });
  };
  const auto keep = [&](const SpanNode& node) {
    result.for_each_row([&](int r, int row) {
      if (row >= rows) return;
      result.for_each_pair([&](int n, int offset) {
        nodes.put_pair(node, row, result.lane_column() + offset,
                       make_float2(result.output.at(r, n, 0), result.output.at(r, n, 1)));
      });
      if (result.is_row_leader()) nodes.put_state(node, row, result.states[r]);
    });
  };
  return settle_span(info, merge, keep);
}

/// The threads of all consumers.
template <class Traits>
struct ConsumerTeam {
  static constexpr int threads = Traits::consumer_threads;
  int thread;

  JIT_DEVICE void sync() const { bar_sync(Traits::consumers_barrier, threads); }
};

/// Ends a split of a work tile, or a span of one, by all consumers.
template <class Traits>
JIT_DEVICE void finish_split(const AttentionParams& params, const SplitParams& split_params,
                             const Info<typename Traits::Config>& info, WarpResult<Traits>&& result,
                             const ConsumerTeam<Traits>& team) {
  using Config = typename Traits::Config;
  const int rows = info.q.length * Config::gqa_ratio - info.row_begin;
  const bool asked = all_begun<Config>(split_params, info, team.thread);
  if constexpr (Config::split_keys != 0) {
    if (settle_rows(own_nodes<Config>(split_params, info), info, rows, result))
      store_rows(params, info, result);
  } else if (info.splits == 1) {
    store_rows(params, info, result);
  } else {
    put_rows(BlockResults<Config>(split_params, info), info.split, rows, result);
  }
  end_split<Config, Traits::tile_rows>(params, split_params, info, team, asked);
}

}  // namespace jit
