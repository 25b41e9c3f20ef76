// O of a consumer's work tile: accumulators, final row factors, LSE, and the epilogue to shared or global memory.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/direct_output.cuh"
#include "epilogue/lse.cuh"
#include "epilogue/mean_scores.cuh"
#include "epilogue/output_functor.cuh"
#include "epilogue/quantized_output.cuh"
#include "epilogue/row_maxima.cuh"
#include "epilogue/running_results.cuh"
#include "epilogue/staged_numbers.cuh"
#include "forward_wgmma/promoted_sums.cuh"
#include "forward_wgmma/traits.cuh"
#include "mainloop/consumer_queries.cuh"
#include "mainloop/pipelines.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "scheduling/tile_sequences.cuh"
#include "split_keys/waiting_spans.cuh"
#include "steps/dropout.cuh"
#include "steps/softmax.cuh"
#include "steps/value_columns.cuh"

namespace jit::forward_wgmma {

/// A consumer's O, and its state in the pipeline of O.
template <class Config>
class ConsumerOutput {
  using Traits = KernelTraits<Config>;
  using Output = typename Traits::Output;
  using RowFactors = float[Output::rows];
  using EpilogueWork = typename Traits::EpilogueWork;

 public:
  JIT_DEVICE ConsumerOutput(const AttentionParams& params, const DropoutParams& dropout,
                            const DescaleParams& descale, const SpanMemory& spans, unsigned smem,
                            int consumer)
      : params_(params),
        dropout_(dropout),
        descale_(descale),
        consumer_(consumer),
        spans_(spans),
        o_pipeline_(QoPipelines<Traits>(smem).o) {}

  JIT_DEVICE void clear() {
    output_.clear();
    clear_tile_sums();
    sums_.begin();
  }
  /// The accumulators of P V.
  JIT_DEVICE Output& tile() { return output_; }
  /// With sums_by_products: accumulators of a tile's row sums of P; each of a row's lanes has the sum twice.
  JIT_DEVICE float (&tile_sums())[1][4] { return tile_sums_; }
  /// Keeps the accumulators in their registers. Called after the wait for P V of a tile of keys.
  JIT_DEVICE void hold() {
    wgmma_hold(output_.registers[0]);
    if constexpr (Traits::sums_by_products) wgmma_hold(tile_sums_);
  }
  /// Adds `share` times a tile's row sums to `sums`: 0.25 in each of a row's four lanes. Called after hold().
  JIT_DEVICE void add_sums(RowFactors& sums, float share) {
#pragma unroll
    // mutate: SumsOfTwoLanes
    for (int r = 0; r < Output::rows; ++r) sums[r] = __fmaf_rn(tile_sums_[0][2 * r], share, sums[r]);
    clear_tile_sums();  // mutate: SumsOfTilesStay
    wgmma_hold(tile_sums_);
  }
  /// Adds the sums of the last tile of a work tile.
  JIT_DEVICE void add_last_sums(float share) { add_sums(inverse_, share); }
  /// Promotes the accumulators if due (PromotedSums). Called after P V of each tile of keys.
  JIT_DEVICE void promote() { sums_.take(output_); }
  JIT_DEVICE void scale_rows(const RowFactors& factors) {
    output_.scale_rows(factors);
    sums_.scale_rows(factors);
  }

  /// The work tile's spans, if keys are split into spans.
  JIT_DEVICE auto& spans() { return spans_; }
  /// Keeps the row states of a span all of whose scores have been computed.
  template <class State>
  JIT_DEVICE void end_scores_of_span(const State& state, float scale_log2) {
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const float sum = MmaLayout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
      ended_[r] = row_state(state.row_max[r], scale_log2, sum);
    }
  }
  /// Stores the span's partial result after its last P V, and begins the next span, which meets it at this tree level.
  JIT_DEVICE void begin_span(int level) {
    spans_.put(output_, ended_, level);
    output_.clear();  // mutate: OutputOfTheSpanBefore
  }

  /// Writes LSE and sets the row factors of O once all scores of the work tile have been computed. With
  /// sums_by_products the factors are `sums` for now, which lack the last tile.
  template <class State>
  JIT_DEVICE void finish_rows(const State& state, const RowFactors& sums,
                              ConsumerQueries<KernelTraits<Config>>& queries) {
    RowFactors lse;
    if constexpr (Traits::has_spans) {
      end_scores_of_span(state, queries.scale_log2());
      finish_rows_of_spans(lse, queries.work().head);
    } else {
      jit::finish_rows<MmaLayout>(state, queries.scale_log2(), inverse_, lse,
                                  probability_raise<typename Traits::Weight>);
    }
    if constexpr (Traits::sums_by_products) {
#pragma unroll
      for (int r = 0; r < Output::rows; ++r) inverse_[r] = sums[r];
    }
    queries.scales().take_values(queries.work());
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) inverse_[r] = over_keep_probability<Config>(inverse_[r], dropout_);
    if constexpr (has_lse_shifts<Config>) {
      add_lse_shift<Config, Output>(descale_, params_.softmax_scale, queries.context(),
                                    queries.work().q_begin + queries.warp_row(), lse);
    }
    [[maybe_unused]] RowFactors keys_lse;
    if constexpr (has_mean_score<Config>) {
#pragma unroll
      for (int r = 0; r < Output::rows; ++r) keys_lse[r] = lse[r];
    }
    if constexpr (Config::sinks && !Traits::has_spans)
      key_shares_.add_sink(params_.sequences.sinks[queries.work().head], inverse_, lse);
    // Reads the work tile again: batch and head would take registers through the mainloop.
    if (params_.lse != nullptr) {
      const typename Traits::Work work = queries.whole_work();
      const auto find_rows = [&]() -> LseRows {
        return {lse_rows<Config>(params_, work), seqlens_of<Config>(params_, work).q.length};
      };
      write_lse<Output>(find_rows, work.q_begin + queries.warp_row(), lse);
    }
    if constexpr (has_mean_score<Config>) {
      const typename Traits::Work work = queries.whole_work();
      const auto find_rows = [&]() -> LseRows {
        return {mean_rows<Config>(params_, work), seqlens_of<Config>(params_, work).q.length};
      };
      write_means<Config, Output>(find_rows, work.q_begin + queries.warp_row(), state, queries.scale_log2(),
                                  keys_lse, lse);
    }
    if constexpr (has_running_lse<Config>) {
      const typename Traits::Work work = queries.whole_work();
      const auto find_rows = [&]() -> LseRows {
        return {running_lse_rows<Config>(params_, work), seqlens_of<Config>(params_, work).q.length};
      };
      shares_ = merge_running_lse<Output>(find_rows, work.q_begin + queries.warp_row(), lse);
    }
    if constexpr (State::keeps_largest) {
      const typename Traits::Work work = queries.whole_work();
      const auto find_rows = [&]() -> RowMaxima {
        return {row_max_rows<Config>(params_, work), seqlens_of<Config>(params_, work).q.length};
      };
      raise_maxima<Config, Output>(params_, work.head, find_rows, work.q_begin + queries.warp_row(), state);
    }
  }

  /// Starts copies of the output functor's operands to the buffer of O, once all scores are done and Q is unused.
  JIT_DEVICE void stage_numbers(const EpilogueWork& work) const {
    if constexpr (stages_numbers()) {
      const int row = warp_row();
      StagedNumbers<Config, typename Traits::OTile>::start(
          context_of<Config>(params_, work), pipeline().tile(), row,
          work.q_begin + consumer_ * rows_per_warpgroup + row);
    }
  }

  /// Finishes O of `work` and writes it to global memory, or to shared memory for the storer.
  JIT_DEVICE void finish(const EpilogueWork& work,
                         const typename ConsumerQueries<KernelTraits<Config>>::Scales& scales) {
    if constexpr (Config::output == OutputPlace::separate) pipeline().producer_acquire();
    sums_.finish(output_);
    if constexpr (Traits::has_spans) spans_.merge(output_, ended_);
    if constexpr (Traits::sums_by_products) {
#pragma unroll
      for (int r = 0; r < Output::rows; ++r)
        inverse_[r] = inverse_of_sum(MmaLayout::reduce(inverse_[r], [](float x, float y) { return x + y; }));
    }
    RowFactors factors;
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      factors[r] = scales.output_factor(inverse_[r]);
      if constexpr (has_running_lse<Config>) factors[r] *= shares_.own[r];  // mutate: AllOfTheCallsKeys
    }
    if constexpr (Traits::has_spans) {
      Output::for_each_place([&](int r, int n, int i) {
        output_.at(r, n, i) = normalized<Config>(output_.at(r, n, i), factors[r]);
      });
    } else {
      output_.scale_rows(factors);
    }
    if constexpr (has_running_lse<Config>) {
      add_running_output<Config>(
          output_rows<Config>(params_, work), seqlens_of<Config>(params_, work).q.length,
          work.q_begin + consumer_ * rows_per_warpgroup + warp_row(), shares_, output_, inverse_);
    }
    if constexpr (stages_numbers()) {
      const int row = warp_row();
      StagedNumbers<Config, typename Traits::OTile>::finish(
          params_, context_of<Config>(params_, work), pipeline().tile(), row,
          work.q_begin + consumer_ * rows_per_warpgroup + row, output_, inverse_);
    } else if constexpr (finishes_output<Config>) {
      finish_output<Config>(params_, context_of<Config>(params_, work), output_,
                            work.q_begin + consumer_ * rows_per_warpgroup + warp_row(), inverse_);
    }
    if constexpr (quantizes_output<Config>) {
      write_quantized(work, context_of<Config>(params_, work));
    } else {
      write(work, {descale_, scales.value_slice(), params_.heads_kv, key_shares_});
    }
  }

 private:
  JIT_DEVICE void write(const EpilogueWork& work, const typename Traits::Columns& columns) {
    if constexpr (Config::output == OutputPlace::direct) {
      store_output_rows<Traits>(output_rows<Config>(params_, work),
                                work.q_begin + consumer_ * rows_per_warpgroup + warp_row(),
                                seqlens_of<Config>(params_, work).q.length, output_, columns, inverse_);
    } else {
      write_rows(columns, pipeline().tile());
      fence_proxy_async_shared();  // mutate: ProxyFenceBehindO
      pipeline().producer_commit();
      o_pipeline_.advance();
    }
  }
  JIT_DEVICE void write_quantized(const EpilogueWork& work, const BlockContext& context) {
    const int first_row = work.q_begin + consumer_ * rows_per_warpgroup + warp_row();
    if constexpr (Config::output == OutputPlace::direct) {
      store_quantized_rows<Config>(params_, context, output_, first_row);
    } else {
      put_quantized_rows<Config, typename Traits::OTile>(params_, context, output_, first_row,
                                                         pipeline().tile(), warp_row());
      fence_proxy_async_shared();  // mutate: ProxyFenceBehindBytes
      pipeline().producer_commit();
      o_pipeline_.advance();
    }
  }

  // Whether the output functor's operands are copied into the buffer of O.
  static JIT_DEVICE constexpr bool stages_numbers() {
    if constexpr (has_output_functor<Config> && !quantizes_output<Config> && Traits::o_aliases_q) {
      return StagedNumbers<Config, typename Traits::OTile>::exist;
    } else {
      return false;
    }
  }

  // Merges row states bitwise as blocks that share a work tile's spans do (split_keys/result_pieces.cuh).
  JIT_DEVICE void finish_rows_of_spans(RowFactors& lse, int head) {
    RowState states[Output::rows];
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) states[r] = ended_[r];
    spans_.merge_states(states);
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const RowEnd end = row_end<Config>(states[r], params_, head);
      inverse_[r] = end.factor == 0 ? inverse_without_keys : end.factor;
      lse[r] = end.lse;
    }
  }

  JIT_DEVICE void clear_tile_sums() {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile_sums_[0][i] = 0;
  }

  // Writes rows to shared memory, possibly over Q: no other warp multiplies with this warp's rows.
  JIT_DEVICE void write_rows(const typename Traits::Columns& columns, unsigned tile) {
    if constexpr (is_same<typename Output::Layout, EvenOddLayout>) return write_fours(columns, tile);
    const int lane = lane_id();
    const int lane_chunk = threadIdx.x / 16 % 2;  // not by lane_id(): saves registers in the mainloop
    const int row = warp_row() + lane % 16;
#pragma unroll
    for (int step = 0; step < Output::column_blocks / 2; ++step) {
      const unsigned address = Traits::OTile::chunk_address(tile, row, 2 * step + lane_chunk);
#pragma unroll
      for (int i = 0; i < 4; ++i) columns.finish(output_, i % 2, 2 * step + i / 2);
      if (finishes_columns<Config> && step % 2 != 0) __syncwarp();  // keeps the loads of later steps after it
      unsigned o[4];
      output_.template pack_step<OutputElement<Config>>(o, 0, step);
      if constexpr (Traits::may_lack_keys) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[i] = keep_if_has_keys(o[i], inverse_[i % 2]);
      }
      stmatrix_x4(address, o);
    }
  }

  // Writes rows whose lanes have four adjacent 16-bit columns each: half a chunk.
  JIT_DEVICE void write_fours(const typename Traits::Columns& columns, unsigned tile) {
    using Layout = typename Output::Layout;
    const int lane = lane_id(), column = Layout::lane_column(lane);
    constexpr int of_chunk = ElementTraits<OutputElement<Config>>::per_chunk;
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
      const int row = Layout::row(warp_row() + Layout::lane_row(lane), 0, r);
      const unsigned own = Traits::OTile::chunk_address(tile, row, column / of_chunk) + column % of_chunk * 2;
      for_each_four<Traits>(output_, r, columns, inverse_[r], [&](int place, const float4& values) {
        store_shared(Traits::OTile::chunk_behind(own, place / of_chunk),
                     pack<OutputElement<Config>>(values.x, values.y),
                     pack<OutputElement<Config>>(values.z, values.w));
      });
    }
  }

  // The warp's first row within the warpgroup.
  static JIT_DEVICE int warp_row() { return reread_thread_index() % warpgroup_size / warp_size * 16; }
  // Computed at each use: a stored address would take a register through the mainloop.
  JIT_DEVICE auto pipeline() const { return o_pipeline_of<Traits>(o_pipeline_, consumer_); }

  const AttentionParams& params_;
  const DropoutParams& dropout_;
  const DescaleParams& descale_;
  const int consumer_;
  decltype(QoPipelines<Traits>::o) o_pipeline_;
  Output output_;
  float tile_sums_[1][4];  // row sums of P by P V
  PromotedSums<Config, Output> sums_;
  RowFactors inverse_;
  typename ChosenType<Traits::has_spans, WaitingSpans<Traits>, NoSpans>::type spans_;
  RowState ended_[Traits::has_spans ? Output::rows : 1];  // row states of the span whose P V is next
  SeenShares<Config, Output::rows> key_shares_;           // of the rows of inverse_
  RunningShares<has_running_lse<Config> ? Output::rows : 1> shares_;
};

}  // namespace jit::forward_wgmma
