// From the accumulators of the consumers to rows of O and LSE, or to a result that other blocks' are merged with.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/block_results.cuh"
#include "split_keys/merge_parts.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/span_results.cuh"
#include "split_keys/split_params.cuh"
#include "steps/softmax.cuh"

namespace jit::forward_split_wgmma {

/// What a consumer warp has come to: its 16 rows from row `first_row` of the tile on.
template <class Config>
struct WarpResult {
  using Traits = KernelTraits<Config>;
  using Output = typename Traits::Output;
  using Layout = typename Output::Layout;

  Output& output;
  RowState states[Output::rows];  ///< of the lane's rows
  int first_row;

  __device__ __forceinline__ WarpResult(Output& own, const SoftmaxState<Output::rows>& softmax,
                                        float scale_log2, int row)
      : output(own), first_row(row) {
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const float sum = Layout::reduce(softmax.row_sum[r], [](float x, float y) { return x + y; });
      states[r] = {sum == 0 ? negative_infinity() : finite_or_zero(softmax.row_max[r]) * scale_log2, sum};
    }
  }

  /// Calls f(r, row) for the lane's rows: `row` counts in the tile.
  template <class F>
  __device__ __forceinline__ void for_each_row(F f) const {
    Output::for_each_row(first_row + Layout::lane_row(lane_id()), f);
  }
};

/// Writes the rows of a unit that is the block's alone: each quad of lanes has pieces of 8 columns of a row in 4 words;
/// transposed, every lane writes whole pieces.
template <class Config>
__device__ __forceinline__ void store_rows(const AttentionParams& params, const PartNote& note,
                                           const WarpResult<Config>& result) {
  using Element = OutputElement<Config>;
  using Output = typename KernelTraits<Config>::Output;
  using Sequences = VariableSequences<Config>;
  const int rows = note.seqlen_q * Config::gqa_ratio;
  const int piece = lane_id() % 4;
  result.for_each_row([&](int r, int tile_row) {
    const int row = note.row_begin + tile_row;
    const bool exists = row < rows;
    const PackedRow<Config> place(note.kv_head, exists ? row : 0);
    const int query = note.q_begin + place.query;
    const RowEnd end = row_end<Config>(result.states[r], params, place.head);
    Element* const columns = static_cast<Element*>(params.o) +
                             Sequences::query_offset(params.o_strides, note.batch, place.head, query) +
                             piece * 8;
#pragma unroll
    for (int d = 0; d < Output::column_blocks; d += 4) {
      unsigned words[4] = {};
#pragma unroll
      for (int i = 0; i < 4 && d + i < Output::column_blocks; ++i) {
        const unsigned pair = pack<Element>(result.output.at(r, d + i, 0) * end.factor,
                                            result.output.at(r, d + i, 1) * end.factor);
        words[i] = end.factor == 0 ? 0 : pair;  // 0 times what is not a number is not 0
      }
      transpose_quad(words);
      if (exists && (d + piece) * 8 < Config::head_dim_v)
        *reinterpret_cast<uint4*>(columns + d * 8) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    if (exists && piece == 0 && params.lse != nullptr)
      params.lse[Sequences::query_offset(params.lse_strides, note.batch, place.head, query)] = end.lse;
  });
}

/// Leaves the rows of a part of a unit that is shared.
template <class Config>
__device__ __forceinline__ void put_rows(const BlockResults<Config>& results, int part, int rows,
                                         const WarpResult<Config>& result) {
  using Output = typename KernelTraits<Config>::Output;
  using Layout = typename Output::Layout;
  const int lane_column = Layout::lane_column(lane_id());
  result.for_each_row([&](int r, int row) {
    if (row >= rows) return;
    float2* const pairs = reinterpret_cast<float2*>(results.values(part, row, lane_column));
#pragma unroll
    for (int n = 0; n < Output::column_blocks; ++n) {
      const int column = Layout::column(0, n, 0);
      if (column + lane_column < Config::head_dim_v)
        store_relaxed(pairs + column / 2, make_float2(result.output.at(r, n, 0), result.output.at(r, n, 1)));
    }
    if (Layout::speaks_for_rows(lane_id())) results.put_state(part, row, result.states[r]);
  });
}

/// Takes the rows of a span to those of earlier spans of its part, of which the tile has `rows`: each lane has left what it
/// reads. Returns whether they are now the unit's.
template <class Config>
__device__ __forceinline__ bool settle_rows(const SpanNodes<Config>& nodes, const SpanNote& note, int rows,
                                            WarpResult<Config>& result) {
  using Output = typename KernelTraits<Config>::Output;
  using Layout = typename Output::Layout;
  const bool speaks = Layout::speaks_for_rows(lane_id());
  const auto for_each_pair = [&](auto f) {  // f(n, column)
    const int lane_column = Layout::lane_column(lane_id());
#pragma unroll
    for (int n = 0; n < Output::column_blocks; ++n) {
      const int column = Layout::column(lane_column, n, 0);
      if (column < Config::head_dim_v) f(n, column);
    }
  };
  const auto merge = [&](const SpanNode& left) {
    result.for_each_row([&](int r, int row) {
      RowState state{negative_infinity(), 0};
      if (speaks && row < rows) state = nodes.state(left, row);
      state = {Layout::from_speaker(state.max), Layout::from_speaker(state.sum)};
      const JoinWeights weights = join_states(state, result.states[r]);
      if (row >= rows) return;
      for_each_pair([&](int n, int column) {
        const float2 pair = nodes.pair(left, row, column);
        result.output.at(r, n, 0) = weights.sum(pair.x, result.output.at(r, n, 0));
        result.output.at(r, n, 1) = weights.sum(pair.y, result.output.at(r, n, 1));
      });
    });
  };
  const auto keep = [&](const SpanNode& node) {
    result.for_each_row([&](int r, int row) {
      if (row >= rows) return;
      for_each_pair([&](int n, int column) {
        nodes.put_pair(node, row, column, make_float2(result.output.at(r, n, 0), result.output.at(r, n, 1)));
      });
      if (speaks) nodes.put_state(node, row, result.states[r]);
    });
  };
  return settle_span(note, merge, keep);
}

/// The threads of all consumers.
template <class Config>
struct ConsumerTeam {
  static constexpr int threads = KernelTraits<Config>::consumer_threads;
  int thread;

  __device__ __forceinline__ void sync() const { bar_sync(KernelTraits<Config>::consumers_barrier, threads); }
};

/// Ends a part of a unit, or a span of one, by all consumers.
template <class Config>
__device__ __forceinline__ void finish_part(const AttentionParams& params, const SplitParams& split,
                                            const Note<Config>& note, WarpResult<Config>&& result,
                                            const ConsumerTeam<Config>& team) {
  constexpr int tile_rows = KernelTraits<Config>::tile_rows;
  const int rows = note.seqlen_q * Config::gqa_ratio - note.row_begin;
  if constexpr (Config::split_keys != 0) {
    if (settle_rows(own_nodes<Config>(split, note), note, rows, result)) {
      store_rows(params, note, result);
    } else if (note.parts > 1) {
      merge_parts<Config, tile_rows>(params, split, note, team);
    }
  } else {
    if (note.parts == 1) return store_rows(params, note, result);
    put_rows<Config>(BlockResults<Config>(split, note), note.part, rows, result);
    merge_parts<Config, tile_rows>(params, split, note, team);
  }
}

}  // namespace jit::forward_split_wgmma
