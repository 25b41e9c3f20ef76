// The products of a tile of keys and a tile of queries that a consumer multiplies, with their operands in registers and in
// shared memory:
//
//     S   = K Qᵀ        start_scores      P = exp(f(S) − LSE), W = P ∘ f′     weigh_scores
//     dP  = V dOᵀ       start_d_scores    dS = W ∘ (dP − delta)               weigh_d_scores
//     dV += P dO        start_dv
//     dK += dS Q        start_dk
//     dQ  = dSᵀ K       start_dq          of all keys of the block: dS comes through shared memory
//
// Keys are rows of S, so that packed accumulators of S and dP are the A operands of dV and dK. Each product is a wgmma
// group. The order in which a consumer issues products, and its waits, are its schedule: row_schedules.cuh for
// consumers of rows, role_consumers.cuh for roles, each of which computes some of the products.
#pragma once

#include "backward/gradient_writer.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/score_parts.cuh"
#include "ptx/wgmma.cuh"
#include "steps/dropout.cuh"
#include "steps/precomputed_dropout.cuh"
#include "steps/tile_fragments.cuh"

namespace jit::backward_wgmma {

template <class Config>
class GradientProducts {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using QTile = typename Traits::QTile;
  using DoTile = typename Traits::DoTile;
  using DsTile = typename Traits::DsTile;

 public:
  using Part = ScorePart<Config>;

  /// `consumer` is the index among the consumers of rows; with roles it is 0, since all have the same rows.
  JIT_DEVICE GradientProducts(const AttentionParams& params, const DropoutParams& dropout,
                              const KeyTile<Config>& keys, int consumer, unsigned smem)
      : keys(keys),
        consumer(consumer),
        pipelines(kept(smem)),
        params_(params),
        dropout_(dropout),
        exponent_(score_exponent<Score>(params.softmax_scale)) {}

  /// Waits for a tile of queries. Also tests whether dO has arrived, before products are issued, behind which the test
  /// would queue.
  JIT_DEVICE void take_queries(unsigned step) {
    const int answers = !Traits::has_roles && pipelines.d_o.is_full(step) ? do_is_there : 0;
    pipelines.q.consumer_wait(step);  // mutate: NoWaitForQueries
    const unsigned info = pipelines.info(step);
    flags_ = Traits::has_roles ? load_query_info_flags(info) : load_own_query_info_flags(info) | answers;
  }
  JIT_DEVICE bool is_last() const { return has_flag(query_info_end); }

  /// Asks the mask which scores of a partial tile it keeps, if this is the moment at which it is asked.
  template <AsksMask moment>
  JIT_DEVICE void ask_mask(unsigned step) {
    if constexpr (Traits::asks_mask == moment) {
      if (!is_partial()) return;
      const ScorePlace first = place<true>(step);
      const int thread = reread_thread_index() % warpgroup_size;
      const int key = first.first_key + thread / warp_size * 16 + MmaLayout::lane_row(thread);
      const int query = first.first_query + MmaLayout::lane_column(thread);
      const BlockContext context = keys.sequences(params_).context(keys.batch, first.head);
      if constexpr (moment == AsksMask::before_products) {
        kept_scores_ = kept_by_positions<KeysByQueries, TileMask<Config>, Scores>(key, query, context);
      } else {
        kept_scores_ = kept_word<KeysByQueries, Scores, Score::is_identity>(
            key, query, TileMask<Config>(context), context);
      }
    }
  }

  /// Draws or loads the dropout mask of the step.
  JIT_DEVICE void draw(unsigned step) {
    kept_ = draw_kept_scores<Config>(
        pipelines, step, params_, dropout_, keys,
        consumer * rows_per_warpgroup + threadIdx.x % warpgroup_size / warp_size * 16);
  }

  // The products.

  JIT_DEVICE void load_keys() {
    if constexpr (Traits::keys_in_registers)
      // mutate: RowsOfTheFirstConsumerAreHeld
      load_rows<KTile>(k_, pipelines.k(keys.round), consumer * rows_per_warpgroup);
  }
  JIT_DEVICE void start_scores(unsigned step) {
    lse_log2_.load(pipelines.lse_log2(step));
    wgmma_fence();
    const unsigned queries = columns_of<QTile>(pipelines.q.tile(step));
    if constexpr (Traits::keys_in_registers) {
      Config::template wgmma_scores_rs<QTile>(scores_.registers[0], k_, queries);
    } else {
      Config::template wgmma_scores<KTile, QTile>(scores_.registers[0],
                                                  own_rows<KTile>(pipelines.k(keys.round)), queries);
    }
    wgmma_commit_group();
  }
  JIT_DEVICE void start_d_scores(unsigned step) {
    wait_for_do(step);
    if constexpr (Traits::has_roles) minus_delta_.load(pipelines.delta(step));
    wgmma_fence();
    Config::template wgmma_d_scores<VTile, DoTile>(d_scores_.registers[0],
                                                   // mutate: ValuesOfTheOtherTile
                                                   own_rows<VTile>(pipelines.v(keys.round)),
                                                   columns_of<DoTile>(pipelines.d_o.tile(step)));
    wgmma_commit_group();
  }
  JIT_DEVICE void start_dv(unsigned step) {
    if constexpr (Traits::has_roles) {
      wait_for_do(step);
    } else {
      minus_delta_.load(pipelines.delta(step));
    }
    wgmma_fence();
    Config::template wgmma_dv<DoTile>(dv.registers[0], p, rows_of<DoTile>(pipelines.d_o.tile(step)));
    wgmma_commit_group();
  }
  JIT_DEVICE void start_dk(unsigned step) {
    wgmma_fence();
    Config::template wgmma_dk<QTile>(dk.registers[0], ds, rows_of<QTile>(pipelines.q.tile(step)));
    wgmma_commit_group();
  }
  /// Issues a consumer's part of dQ, once the other consumer's dS has arrived.
  JIT_DEVICE void start_dq(unsigned step) {
    constexpr int columns = Traits::dq_columns;
    constexpr int own_columns = KTile::panels > 1 ? columns / KTile::columns * KTile::panel_bytes
                                                  : columns * static_cast<int>(sizeof(Element));
    pipelines.ds.consumer_wait(step);  // mutate: NoWaitForTheOthersDs
    wgmma_fence();
    Config::template wgmma_dq<DsTile, KTile>(
        dq_.registers[0], columns_of<DsTile>(pipelines.ds.tile(step)),
        rows_of<KTile>(pipelines.k(keys.round) + consumer * own_columns));
    wgmma_commit_group();
  }
  /// Writes dQ for the adder, after the wait for dQ. Work issued before pass_dq() does not wait for its fence.
  JIT_DEVICE void put_dq(unsigned step) {
    wgmma_hold(dq_.registers[0]);
    jit::put_dq(pipelines.dq(consumer), step, dq_);
  }
  JIT_DEVICE void pass_dq(unsigned step) const { jit::pass_dq(pipelines.dq(consumer), step); }

  // P and W. For an identity both are P, which replaces S in its registers until it can be packed.

  JIT_DEVICE void exponentiate(unsigned step) {
    wgmma_hold(scores_.registers[0]);
    if constexpr (!packs_at_once) weigh_rows(step);
  }
  JIT_DEVICE void pack_probabilities(unsigned step) {
    if constexpr (packs_at_once) {
      weigh_rows(step);
    } else {
      pack_probabilities();
    }
  }
  /// Packs P, which is in the registers of S.
  JIT_DEVICE void pack_probabilities() {
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) pack_part(scores_, i, i);
  }
  /// With roles: replaces S by P, and sends W to the dK consumer.
  JIT_DEVICE void exponentiate_and_send(unsigned step) {
    wgmma_hold(scores_.registers[0]);
    pipelines.w.producer_acquire(step);  // mutate: NoWaitForThePlaceOfW
    weigh_scores(step, [&](int i, const Part& probabilities, Part& weights) {
      const unsigned w = own_w<Config>(pipelines);
      replace_scores(i, probabilities);
      multiply_by_probabilities<Score>(weights, probabilities);
#pragma unroll
      for (int n = 0; n < Part::column_blocks; ++n)
        // mutate: WWithoutItsPlaces
        store_shared(w + (i * Part::column_blocks + n) * w_block_bytes, weights.registers[0][n]);
    });
    pipelines.w.producer_commit(step);
  }

  // dS, rounded, goes to registers for dK and to shared memory for dQ, over dS of two steps before: the other consumer
  // of rows had multiplied that before it wrote dS of the previous step, for which this consumer has waited.

  JIT_DEVICE void put_ds(unsigned step) {
    hold_d_scores();
    weigh_d_scores(step, scores_, [&](int block, float(&weights)[MmaLayout::block_values]) {
#pragma unroll
      for (int j = 0; j < MmaLayout::block_values; ++j) weights[j] = scores_.registers[0][block][j];
    });
    store_ds<Config>(pipelines.ds.tile(step) + consumer * DsTile::panel_bytes, ds);
  }
  JIT_DEVICE void pass_ds(unsigned step) const {
    fence_proxy_async_shared();  // mutate: NoFenceBehindDs
    if constexpr (Config::pair) {
      send_ds(pipelines, step);
    } else {
      pipelines.ds.producer_commit(step);
    }
  }
  /// With roles: computes dS from the W that the dV consumer sent.
  JIT_DEVICE void receive_and_weigh(unsigned step) {
    hold_d_scores();
    pipelines.w.consumer_wait(step);  // mutate: NoWaitForW
    const unsigned w = own_w<Config>(pipelines);
    weigh_d_scores(step, d_scores_, [&](int block, float(&weights)[MmaLayout::block_values]) {
      load_shared(weights, w + block * w_block_bytes);
    });
    pipelines.w.consumer_release(step);
  }

  const KeyTile<Config> keys;
  const int consumer;
  const Pipelines<Config> pipelines;
  unsigned p[Traits::query_steps][4];  ///< A operands: P of dV, and dS of dK
  unsigned ds[Traits::query_steps][4];
  typename Traits::KeyGradient dk;
  typename Traits::ValueGradient dv;

 private:
  // Keeps the address in a register in consumers of rows; the compiler would compute it again in each step.
  static JIT_DEVICE unsigned kept(unsigned smem) {
    if constexpr (!Traits::has_roles) asm volatile("" : "+r"(smem));
    return smem;
  }

  // A bit of flags_ next to the tile info's flags: dO has arrived.
  static constexpr int do_is_there = 4;

  // Whether the current tile of queries has the flag. Consumers of rows vote, because a shuffle would queue behind the
  // issued products.
  JIT_DEVICE bool has_flag(int flag) const {
    const bool has = (flags_ & flag) != 0;
    return Traits::has_roles ? has : __any_sync(full_warp, has) != 0;
  }
  // mutate: PartialTilesTakenForFull
  JIT_DEVICE bool is_partial() const { return has_flag(query_info_partial); }
  JIT_DEVICE void wait_for_do(unsigned step) const {
    // mutate: NoWaitForDo
    if (Traits::has_roles || (flags_ & do_is_there) == 0) pipelines.d_o.consumer_wait(step);
  }

  // Lower words of descriptors: the consumer's rows of a tile, or all rows, with the sum along columns; a tile with the
  // sum along rows.
  template <class Tile>
  JIT_DEVICE unsigned own_rows(unsigned tile) const {
    return lower_word(Tile::along_columns(tile, consumer * rows_per_warpgroup, 0));
  }
  template <class Tile>
  JIT_DEVICE unsigned columns_of(unsigned tile) const {
    return lower_word(Tile::along_columns(tile, 0, 0));
  }
  template <class Tile>
  JIT_DEVICE unsigned rows_of(unsigned tile) const {
    return lower_word(Tile::along_rows(tile, 0));
  }

  static constexpr bool packs_at_once = !Score::is_identity;
  template <class Product>
  JIT_DEVICE void pack_part(const Product& probabilities, int part, int i) {
    probabilities.template pack_step<Element>(p[i], 0, part);
    drop_step(kept_, p[i], 0, i);
  }
  JIT_DEVICE void replace_scores(int i, const Part& part) {
    for_each_value<Part>([&](int n, int j) {
      scores_.registers[0][i * Part::column_blocks + n][j] = part.registers[0][n][j];
    });
  }
  // W in place of S.
  JIT_DEVICE void weigh_rows(unsigned step) {
    weigh_scores(step, [&](int i, const Part& probabilities, Part& weights) {
      if constexpr (packs_at_once) pack_part(probabilities, 0, i);
      multiply_by_probabilities<Score>(weights, probabilities);
      replace_scores(i, weights);
    });
  }

  // Calls `use(i, P, f′)` for each k-step of 16 queries. The code exists once for full tiles and once for partial ones;
  // if ptxas lacks registers for a mask over several k-steps, it exists twice per k-step.
  static constexpr bool weighs_by_parts =
      Traits::asks_mask == AsksMask::per_part &&
      (Traits::has_roles ? !has_row_range<TileMask<Config>>
                         : key_words<TileMask<Config>> == 1 || is_positioned<TileMask<Config>>);
  template <class Use>
  JIT_DEVICE void weigh_scores(unsigned step, const Use& use) {
    if constexpr (Traits::asks_mask == AsksMask::before_products) {
      // Two copies: behind a branch that only drops scores, ptxas would let exponentials wait for dQ.
      if (is_partial()) {
        drop_all_but(scores_, kept_scores_);
        weigh_tile<false>(step, use);
      } else {
        weigh_tile<false>(step, use);
      }
    } else if constexpr (weighs_by_parts) {
#pragma unroll
      for (int i = 0; i < Traits::query_steps; ++i) {
        if (is_partial()) {
          weigh_part<true>(i, place<true>(step), use);
        } else {
          weigh_part<false>(i, place<false>(step), use);
        }
        lse_log2_.load_behind(i);
      }
    } else if (is_partial()) {
      weigh_tile<true>(step, use);
    } else {
      weigh_tile<false>(step, use);
    }
  }
  template <bool has_masked, class Use>
  JIT_DEVICE void weigh_tile(unsigned step, const Use& use) {
    const ScorePlace first = place<has_masked>(step);
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) {
      weigh_part<has_masked>(i, first, use);
      lse_log2_.load_behind(i);
    }
  }
  // The position of the consumer's scores, if it is used.
  template <bool has_masked>
  JIT_DEVICE ScorePlace place(unsigned step) const {
    constexpr bool has_places = has_masked || !Score::is_identity;
    const unsigned info = pipelines.info(step);
    ScorePlace place{.first_key = keys.k_begin + consumer * rows_per_warpgroup,
                     .first_query = has_places ? load_query_info_query(info) : 0,
                     .head = has_places ? load_query_info_head(info) : 0};
    if constexpr (has_listed_queries<Config>) place.rows = pipelines.query_rows(step);
    return place;
  }
  template <bool has_masked, class Use>
  JIT_DEVICE void weigh_part(int i, const ScorePlace& place, const Use& use) {
    Part scores, weights;
    for_each_value<Part>([&](int n, int j) {
      scores.registers[0][n][j] = scores_.registers[0][i * Part::column_blocks + n][j];
    });
    exponentiate_part<Config, has_masked>(scores, weights, i, place, params_, keys, exponent_,
                                          lse_log2_.step(i), kept_scores_);
    use(i, scores, weights);
  }

  JIT_DEVICE void hold_d_scores() {
    wgmma_hold(d_scores_.registers[0]);
    drop(d_scores_, kept_);
  }
  // Adds the gradient of a mean M = Σ P s, of which P ∘ (s − LSE) dM is left (prepare.cuh): of an identity's scores, W is P,
  // and s − LSE its logarithm. A score that is not seen has W = 0, whatever is times it.
  static constexpr float least_weight = 0x1p-126f;
  static JIT_DEVICE float with_mean(float d_score, float weight, float d_mean) {
    const float distance = lg2(::fmaxf(weight, least_weight));
    return __fmaf_rn(d_mean, distance, d_score);  // mutate: MeanWithoutItsScoresByWgmma
  }
  // Computes dS. `weights_of(block, weights)` returns W of a block of 8 queries; dS is written to `result`.
  template <class WeightsOf>
  JIT_DEVICE void weigh_d_scores(unsigned step, Scores& result, const WeightsOf& weights_of) {
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) {
      const StepNumbers minus_delta = minus_delta_.step(i);
      StepNumbers means;
      if constexpr (has_mean_score<Config>) means = StepNumbers(pipelines.means(step), i);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float weights[MmaLayout::block_values];
        weights_of(2 * i + n, weights);
#pragma unroll
        for (int j = 0; j < MmaLayout::block_values; ++j) {
          float d_score = d_scores_.registers[0][2 * i + n][j] + minus_delta.at(n).of(0, j % 2);
          if constexpr (has_mean_score<Config>)
            d_score = with_mean(d_score, weights[j], means.at(n).of(0, j % 2));
          result.registers[0][2 * i + n][j] = weights[j] * d_score;
        }
      }
      minus_delta_.load_behind(i);
      result.template pack_step<Element>(ds[i], 0, i);
    }
  }

  const AttentionParams& params_;
  const DropoutParams& dropout_;
  const float exponent_;
  int flags_ = 0;  // flags as each lane has read them; see has_flag
  TileNumbers<Config> lse_log2_;
  TileNumbers<Config> minus_delta_;
  unsigned k_[Traits::register_steps][4];  // A fragments of the tile's keys
  Scores scores_;                          // S, then P or W, then dS
  Scores d_scores_;                        // dP
  KeptOf<Config, KeysByQueries, Scores> kept_;
  unsigned kept_scores_;  // of a partial tile, unless the mask is asked per part
  typename Traits::QueryGradient dq_;
};

}  // namespace jit::backward_wgmma
