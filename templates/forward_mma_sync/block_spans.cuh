// The spans of keys that a block sums one after another, where a spec has split_keys.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mma_sync/traits.cuh"
#include "split_keys/result_pieces.cuh"
#include "split_keys/rows_apart.cuh"
#include "split_keys/span_memory.cuh"
#include "split_keys/waiting_spans.cuh"
#include "steps/softmax.cuh"

namespace jit::forward_mma_sync {

/// Results of a warp's spans, merged and finished as in families whose keys are split over blocks
/// (split_keys/result_pieces.cuh).
template <class Config, bool has_spans = KernelTraits<Config>::has_spans>
class BlockSpans {
  using Traits = KernelTraits<Config>;
  using Output = typename Traits::Output;
  using State = typename Traits::State;
  using States = RowState[Output::rows];
  using RowFactors = float[Output::rows];

 public:
  JIT_DEVICE explicit BlockSpans(const SpanMemory& memory) : waiting_(memory) {}

  /// Between the tile that begins with `key` and the one that begins with `next_key`: where that is of another span, puts
  /// away the output, and clears it with the state of its rows.
  JIT_DEVICE void go_on(int key, int next_key, Output& output, State& state, float scale_log2) {
    const int level = meeting_level(key / Config::split_keys, next_key / Config::split_keys);
    if (level == 0) return;  // mutate: SpansOfABlockThatDoNotEnd
    States states;
    take_states(state, scale_log2, states);
    waiting_.put(output, states, level);
    output.clear();  // the next maximum would make 0 of it, but not of what is infinite
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      state.row_max[r] = negative_infinity();  // mutate: MaximaOfTheBlocksSpanBefore
      state.row_sum[r] = 0;                    // mutate: SumsOfTheBlocksSpanBefore
    }
  }

  /// Behind the last tile: normalizes the output of all spans. `inverse` becomes what its rows were multiplied by.
  JIT_DEVICE void finish(const AttentionParams& params, int head, Output& output, const State& state,
                         float scale_log2, RowFactors& inverse, RowFactors& lse) {
    States states;
    take_states(state, scale_log2, states);
    waiting_.merge(output, states);
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const RowEnd end = row_end<Config>(states[r], params, head);  // mutate: EndsOfOnesOwn
      inverse[r] = end.factor == 0 ? inverse_without_keys : end.factor;
      lse[r] = end.lse;
    }
    Output::for_each_place([&](int r, int n, int i) {
      output.at(r, n, i) = normalized<Config>(output.at(r, n, i), inverse[r]);
    });
  }

 private:
  static JIT_DEVICE void take_states(const State& state, float scale_log2, States& states) {
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const float sum = MmaLayout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
      states[r] = row_state(state.row_max[r], scale_log2, sum);
    }
  }

  WaitingSpans<Traits> waiting_;
};

/// Where keys are summed without a break there are none.
template <class Config>
class BlockSpans<Config, false> {
 public:
  JIT_DEVICE explicit BlockSpans(const SpanMemory& /*memory*/) {}
};

}  // namespace jit::forward_mma_sync
