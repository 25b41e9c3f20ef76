// The warps that make P of S, and dS of dP, and write dK and dV in the end: eight, of which two have the same 32 keys and a
// half of the queries each. A thread has a key, so that nothing is reduced across lanes: LSE and delta, which queries
// have, come from shared memory.
//
//     P = exp(f(S) − LSE)    W = P ∘ f′    dS = W ∘ (dP − delta)
#pragma once

#include "backward/key_tile.cuh"
#include "backward_tcgen05/pipelines.cuh"
#include "base/row_pieces.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/float_pair.cuh"
#include "ptx/math.cuh"
#include "ptx/tcgen05.cuh"
#include "steps/score_gradients.cuh"

namespace jit::backward_tcgen05 {

template <class Config>
class ScoreWarp {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using DsTile = typename Traits::DsTile;
  using Part = typename Traits::Part;
  static constexpr int part_queries = Traits::part_queries, parts = Traits::own_queries / part_queries;
  using Numbers = ColumnNumbersOf<RowLayout::block_columns>;

 public:
  JIT_DEVICE ScoreWarp(const AttentionParams& params, const GradientParams& gradients, unsigned smem,
                       unsigned tmem)
      : params_(params),
        gradients_(gradients),
        pipelines_(smem),
        tmem_(own_lanes(tmem)),
        half_(uniform(threadIdx.x / warpgroup_size)) {}

  JIT_DEVICE void run() const {
    unsigned summed = 0;  // tiles of keys that queries see
    for_each_key_tile<Config>(params_, pipelines_,
                              [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
                                pipelines_.keys.consumer_release(keys.round);
                                if (has_queries) {
                                  step = weigh_steps(keys, step);
                                  wait_for(pipelines_.sums, summed++);  // mutate: SumsAreReadTooEarly
                                }
                                write_sums(keys, has_queries);
                                return step;
                              });
  }

 private:
  // The keys' row of the thread.
  static JIT_DEVICE int own_row() { return reread_thread_index() % tile_kv; }

  JIT_DEVICE unsigned weigh_steps(const KeyTile<Config>& keys, unsigned step) const {
    for (bool is_last = false; !is_last; ++step) {
      pipelines_.q.consumer_wait(step);
      const unsigned info = pipelines_.info(step);
      const int flags = load_query_info_flags(info), head = load_query_info_head(info),
                query = load_query_info_query(info) + half_ * Traits::own_queries;
      is_last = (flags & query_info_end) != 0;
      Scores weights;
      wait_for(pipelines_.scores, step);  // mutate: SIsReadBeforeItIsThere
      if ((flags & query_info_partial) != 0) {
        exponentiate<true>(weights, keys, head, query, step);
      } else {
        exponentiate<false>(weights, keys, head, query, step);
      }
      pipelines_.q.consumer_release(step);
      tcgen05_wait_store();  // mutate: PIsToldBeforeItIsThere
      tell(pipelines_.p, step);
      differentiate(weights, step);
    }
    return step;
  }

  // Leaves P in tensor memory, over S, and W in registers. Where functors are asked, some queries at a time: what they read
  // of all of them is more than there are registers for.
  template <bool is_partial>
  JIT_DEVICE void exponentiate(Scores& weights, const KeyTile<Config>& keys, int head, int query,
                               unsigned step) const {
    constexpr bool asks = is_partial || !Score::is_identity;
    constexpr int queries = asks ? part_queries / 2 : part_queries;
    using Some = Accumulator<RowLayout, warp_size, queries>;
    const float exponent = score_exponent<Score>(params_.softmax_scale);
    if constexpr (!asks) load(weights, Traits::scores_column);
#pragma unroll
    for (int begin = 0; begin < Traits::own_queries; begin += queries) {
      Some& some = reinterpret_cast<Some&>(weights.registers[0][begin / RowLayout::block_columns]);
      Some derivatives;
      if constexpr (asks) {
        load(some, Traits::scores_column + begin);
        const int key = keys.k_begin + own_row();
        const BlockContext context = keys.sequences(params_).context(keys.batch, head);
        Some::for_each_place([&](int r, int n, int j) { derivatives.at(r, n, j) = 1; });
        differentiate_score<KeysByQueries, !is_partial>(some, derivatives, key, query + begin, Score(context),
                                                        params_.softmax_scale, context);
        if constexpr (is_partial)
          drop_masked_scores<KeysByQueries>(some, key, query + begin, TileMask<Config>(context), context);
      }
      exponentiate_by_pairs(some, exponent, numbers(pipelines_.lse_log2(step), begin));
      unsigned packed[queries / 2];
#pragma unroll
      for (int n = 0; n < Some::column_blocks; ++n) packed[n] = some.template pack_pair<Element>(0, n);
      tcgen05_store(tmem_ + packed_column(Traits::scores_column, begin), packed);
      if constexpr (!Score::is_identity) {
        multiply_by_probabilities<Score>(derivatives, some);
        some = derivatives;
      }
      if constexpr (asks) asm volatile("" ::: "memory");  // reads of later queries stay behind
    }
  }

  // dS of W and dP, rounded: in tensor memory, over dP, for dK, and in shared memory for dQ.
  JIT_DEVICE void differentiate(const Scores& weights, unsigned step) const {
    pipelines_.d_o.consumer_wait(
        step);  // delta, too, which the wait for dP does not order by the words of PTX
    // dS of the step before has been read by products that ended before this one.
    wait_for(pipelines_.d_scores, step);  // mutate: DpIsReadBeforeItIsThere
    const unsigned row = DsTile::chunk_address(pipelines_.ds.tile(step), own_row(),
                                               half_ * Traits::own_queries / chunk_elements);
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      Part d_scores;
      load(d_scores, Traits::d_scores_column + i * part_queries);
      weigh_by_pairs(d_scores, weights, i * Part::column_blocks,
                     numbers(pipelines_.delta(step), i * part_queries));
      unsigned packed[part_queries / 2];
#pragma unroll
      for (int n = 0; n < Part::column_blocks; ++n) packed[n] = d_scores.template pack_pair<Element>(0, n);
      tcgen05_store(tmem_ + packed_column(Traits::d_scores_column, i * part_queries), packed);
#pragma unroll
      for (int chunk = 0; chunk < part_queries / chunk_elements; ++chunk) {
        const unsigned(&words)[4] = reinterpret_cast<const unsigned(&)[4]>(packed[4 * chunk]);
        store_shared(DsTile::chunk_behind(row, i * part_queries / chunk_elements + chunk), words);
      }
    }
    pipelines_.d_o.consumer_release(step);
    fence_proxy_async_shared();  // mutate: NoFenceBehindDsOfKeys
    tcgen05_wait_store();        // mutate: DsIsToldBeforeItIsThere
    tell(pipelines_.ds, step);
  }

  // The first four warps write dV, the others dK. Behind it products of the next tile of keys may overwrite them: they wait
  // for P.
  JIT_DEVICE void write_sums(const KeyTile<Config>& keys, bool has_queries) const {
    const SequencesOf<Config> sequences = keys.sequences(params_);
    const Gradients<Config> gradients(params_, gradients_, sequences);
    const int row_end = sequences.kv(keys.batch).length;
    if (half_ == 0) {
      write<Config::head_dim_v>(Traits::dv_column, gradients.dv_rows(keys.batch, keys.kv_head),
                                keys.k_begin + own_row(), row_end, 1, has_queries);
    } else {
      write<Config::head_dim>(Traits::dk_column, gradients.dk_rows(keys.batch, keys.kv_head),
                              keys.k_begin + own_row(), row_end,
                              params_.softmax_scale,  // mutate: DkOfTcgen05Unscaled
                              has_queries);
    }
  }
  // Writes the thread's row of sums at `column` of tensor memory; zeros where no query sees the keys.
  template <int columns, class Rows>
  JIT_DEVICE void write(int column, const Rows& rows, int row, int row_end, float factor,
                        bool has_queries) const {
    constexpr int loaded = 16, piece_columns = 8;
    auto* const target = rows.at(row);
#pragma unroll 1
    for (int begin = 0; begin < columns; begin += loaded) {
      float sums[loaded] = {};
      if (has_queries) {
        tcgen05_load(sums, tmem_ + column + begin);
        tcgen05_wait_load();  // mutate: NoWaitForSums
        tcgen05_hold(sums);
      }
#pragma unroll
      for (int piece = 0; piece < loaded; piece += piece_columns) {
        float numbers[piece_columns];
#pragma unroll
        for (int i = 0; i < piece_columns; ++i) numbers[i] = sums[piece + i] * factor;
        if (row < row_end && begin + piece < columns) store_piece<16>(target + begin + piece, numbers);
      }
    }
  }

  // The warp's queries of a product in tensor memory.
  template <class Product>
  JIT_DEVICE void load(Product& product, int column) const {
    constexpr int columns = 16, loads = Product::column_blocks * RowLayout::block_columns / columns;
    float loaded[loads][columns];
#pragma unroll
    for (int i = 0; i < loads; ++i)
      tcgen05_load(loaded[i], tmem_ + column + half_ * Traits::own_queries + i * columns);
    tcgen05_wait_load();  // mutate: NoWaitForScores
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      tcgen05_hold(loaded[i]);
#pragma unroll
      for (int j = 0; j < columns; ++j) product.at(0, (i * columns + j) / 2, j % 2) = loaded[i][j];
    }
  }
  // Scores become probabilities, 2 to the power of score · factor − lse_log2, two of them by one instruction.
  template <class Product>
  static JIT_DEVICE void exponentiate_by_pairs(Product& scores, float factor, const Numbers& lse_log2) {
    const FloatPair minus_factor(-factor);
#pragma unroll
    for (int n = 0; n < Product::column_blocks; ++n) {
      const auto lse = lse_log2.at(n);
      float &x = scores.at(0, n, 0), &y = scores.at(0, n, 1);
      multiply_add({x, y}, minus_factor, {lse.of(0, 0), lse.of(0, 1)}).store(x, y);
      x = ex2(-x);
      y = ex2(-y);
    }
  }
  // dP becomes dS by the weights from block `first` on.
  static JIT_DEVICE void weigh_by_pairs(Part& d_scores, const Scores& weights, int first,
                                        const Numbers& minus_delta) {
#pragma unroll
    for (int n = 0; n < Part::column_blocks; ++n) {
      const auto delta = minus_delta.at(n);
      float &x = d_scores.at(0, n, 0), &y = d_scores.at(0, n, 1);
      const FloatPair weight(weights.at(0, first + n, 0), weights.at(0, first + n, 1));
      multiply(weight, add({x, y}, {delta.of(0, 0), delta.of(0, 1)})).store(x, y);
    }
  }
  // Columns for the thread's queries from `query` on, rounded, and their LSE or −delta.
  JIT_DEVICE int packed_column(int column, int query) const {
    return Traits::packed_column(column, half_ * Traits::own_queries + query);
  }
  JIT_DEVICE Numbers numbers(unsigned tile, int query) const {
    return {tile + (half_ * Traits::own_queries + query) * static_cast<unsigned>(sizeof(float))};
  }

  static constexpr int chunk_elements = chunk_bytes / static_cast<int>(sizeof(Element));

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const Pipelines<Config> pipelines_;
  const unsigned tmem_;
  const int half_;  // of the queries
};

}  // namespace jit::backward_tcgen05
