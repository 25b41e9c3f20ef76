// Spans of a work tile that one block computes from the first key to the last: results of earlier spans wait in global
// memory for the result of their right sibling in the tree (split_keys/span_tree.cuh).
//
// Spans are computed in ascending order, and spans whose keys no row sees may be missing. Two consecutive spans meet in their
// lowest common node; results that wait there are merged when all spans below that node are done. So results are merged in the
// order of the tree, and each level has at most one that waits.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/cache_hints.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/span_memory.cuh"
#include "split_keys/span_tree.cuh"

namespace jit {

/// The level of the lowest common node of two spans; 0 if they are the same.
JIT_DEVICE int meeting_level(int span, int other) { return warp_size - __clz(span ^ other); }

/// Waiting results of a consumer warp. Each lane stores and reads its own registers only. Traits are a kernel family's:
/// Config, the Output of a warp, the number of consumer warps, the block's index in the grid, and how many pairs of a
/// result are read at once.
template <class Traits>
class WaitingSpans {
  using Config = typename Traits::Config;
  using Output = typename Traits::Output;
  static constexpr int threads = Traits::consumer_warps * warp_size;
  static constexpr int node_pairs = span_node_pairs(Config::head_dim_v, Output::rows);

 public:
  using States = RowState[Output::rows];

  JIT_DEVICE explicit WaitingSpans(const SpanMemory& memory) : memory_(memory) {}

  /// Before the first tile of keys of a work tile.
  JIT_DEVICE void begin() { levels_ = 0; }
  /// Asks L2 for results that will be merged, which have waited for as long as a span takes: `levels` has a bit for each. By
  /// a whole warp.
  JIT_DEVICE void ask_ahead(unsigned levels) const {
    constexpr int halves = 2;  // of a warp's pairs, 128 bytes each
#pragma unroll 1
    for (unsigned left = levels_ & levels; left != 0; left &= left - 1) {
      const float2* const place = place_of(__ffs(static_cast<int>(left)) - 1) - lane_id();
#pragma unroll 1
      for (int i = lane_id(); i < node_pairs * halves; i += warp_size)
        prefetch_l2(place + i / halves * threads + i % halves * (warp_size / halves));
    }
  }
  /// Stores the output of the current span and its row states. The next span meets it at this level.
  JIT_DEVICE void put(Output& output, States& states, int level) {
    merge_levels(output, states, (1u << level) - 1);  // mutate: SpansInTheOrderOfKeys
    float2* const place = place_of(level);
    for_each_pair(output, [&](int i, float& x, float& y) { place[i * threads] = make_float2(x, y); });
#pragma unroll
    for (int r = 0; r < Output::rows; ++r)
      place[(output_pairs + r) * threads] = make_float2(states[r].max, states[r].sum);
    levels_ |= 1u << level;
  }
  /// Merges all waiting results with the output of the last span.
  JIT_DEVICE void merge(Output& output, States& states) { merge_levels(output, states, ~0u); }
  /// Turns the states of the last span into the states of all spans; waiting results remain.
  JIT_DEVICE void merge_states(States& states) const {
#pragma unroll 1
    for (unsigned left = levels_; left != 0; left &= left - 1) {
      const float2* const place = place_of(__ffs(static_cast<int>(left)) - 1);
#pragma unroll
      for (int r = 0; r < Output::rows; ++r) join_states(state_at(place, r), states[r]);
    }
  }

 private:
  static constexpr int output_pairs = Output::rows * Output::column_blocks;
  static_assert(node_pairs == output_pairs + Output::rows, "host and device disagree on what waits");

  // Merges the results that wait at these levels, the lowest first, as it is nearest to the current keys.
  JIT_DEVICE void merge_levels(Output& output, States& states, unsigned levels) {
#pragma unroll 1
    for (unsigned left = levels_ & levels; left != 0; left &= left - 1) {
      const float2* const place = place_of(__ffs(static_cast<int>(left)) - 1);
      JoinWeights weights[Output::rows];
#pragma unroll
      for (int r = 0; r < Output::rows; ++r) weights[r] = join_states(state_at(place, r), states[r]);
      constexpr int reads = Traits::span_reads;
#pragma unroll
      for (int first = 0; first < output_pairs; first += reads) {
        float2 pairs[reads] = {};
#pragma unroll
        for (int i = 0; i < reads && first + i < output_pairs; ++i)
          pairs[i] = __ldcg(place + (first + i) * threads);
        for_each_pair(output, [&](int i, float& x, float& y) {
          if (i < first || i >= first + reads) return;
          const JoinWeights& weight = weights[i / Output::column_blocks];
          x = weight.sum(pairs[i - first].x, x);
          y = weight.sum(pairs[i - first].y, y);
        });
        asm volatile("" ::: "memory");  // keeps later loads after these
      }
    }
    levels_ &= ~levels;
  }

  // Calls f(i, x, y) for each pair, row by row.
  template <class F>
  static JIT_DEVICE void for_each_pair(Output& output, F f) {
#pragma unroll
    for (int i = 0; i < output_pairs; ++i) {
      const int r = i / Output::column_blocks, n = i % Output::column_blocks;
      f(i, output.at(r, n, 0), output.at(r, n, 1));
    }
  }
  static JIT_DEVICE RowState state_at(const float2* place, int r) {
    const float2 state = __ldcg(place + (output_pairs + r) * threads);
    return {state.x, state.y};
  }
  // Computed at each use, to save registers in the mainloop.
  JIT_DEVICE float2* place_of(int level) const {
    const int thread = reread_thread_index() - Traits::first_consumer_thread;
    const long long node = static_cast<long long>(Traits::block_of_grid()) * memory_.levels + level - 1;
    return reinterpret_cast<float2*>(memory_.pairs) + node * node_pairs * threads + thread;
  }

  const SpanMemory& memory_;
  unsigned levels_ = 0;  // one bit per level at which a result waits
};

/// Replaces WaitingSpans in kernels without spans.
struct NoSpans {
  JIT_DEVICE explicit NoSpans(const SpanMemory& /*memory*/) {}
};

}  // namespace jit
