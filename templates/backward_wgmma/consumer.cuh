// A consumer of a one-pass kernel: a warpgroup that owns 64 keys of the block and, but beside a consumer of dQ
// (query_consumer.cuh), a half of dQ.
//
//     Sᵀ = K Qᵀ ─ P = exp(f(S) − LSE), W = P ∘ f′ ┐
//     dPᵀ = V dOᵀ − delta ────────────────────────┴─ dS = W ∘ dP ─ to the other consumer ─┐
//     dV += Pᵀ dO        dK += dSᵀ Q                                dQ = dS K ────────────┴─ to the adder
//
// Products of step n, and how they are queued; what stands in line with "wait" goes on meanwhile:
//
//     tensor cores   │ dQ(n−1) │ dP(n)  dV(n)          │ dK(n)   S(n+1)  dQ(n) …
//     consumer       │ P, W(n) │ wait dP ─ dS(n)       │ wait dV, wait S ─ …
//
// Keys are rows, so that accumulators of S and dP are, packed, the A operands of dV and dK as they lie. dS goes through
// shared memory for dQ alone, which is a sum over the keys of both consumers. Beside a consumer of dQ it goes to that
// one, and K may lie in registers (rows_in_registers.cuh).
#pragma once

#include "backward_wgmma/dq_place.cuh"
#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/gradient_writer.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/producer.cuh"
#include "backward_wgmma/rows_in_registers.cuh"
#include "backward_wgmma/score_parts.cuh"
#include "ptx/wgmma.cuh"
#include "steps/dropout.cuh"
#include "steps/precomputed_dropout.cuh"

namespace jit::backward_wgmma {

/// Everything that one consumer warpgroup holds.
template <class Config, class Maps>
class Consumer {
  using Traits = KernelTraits<Config>;
  using Writer = GradientWriter<Config, Maps>;
  using Element = typename Config::Element;
  using Score = typename Config::Score;
  using Scores = typename Traits::Scores;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using QTile = typename Traits::QTile;
  using DoTile = typename Traits::DoTile;
  using DsTile = typename Traits::DsTile;

 public:
  __device__ __forceinline__ Consumer(const AttentionParams& params, const GradientParams& gradients,
                                      const Maps& maps, const DropoutParams& dropout,
                                      const KeyTile<Config>& keys, unsigned smem)
      : params_(params),
        dropout_(dropout),
        keys_(keys),
        consumer_(uniform(threadIdx.x / warpgroup_size - 1)),
        exponent_(score_exponent<Score>(params.softmax_scale)),
        pipelines_(kept(smem)),
        writer_(params, gradients, maps, dropout, smem) {}

  /// Behind the last tile of keys.
  static __device__ __forceinline__ void end() { Writer::end(); }

  /// As a function of for_each_key_tile.
  __device__ __forceinline__ unsigned run(bool has_queries, unsigned step) {
    dk_.clear();
    dv_.clear();
    if (has_queries) {  // mutate: KeysAreLetGoTooEarly
      take_queries(step);
      if (Traits::has_query_consumer && step == 0 && consumer_ == 1)
        bar_arrive(Traits::turn_barriers, 2 * warpgroup_size);
      if constexpr (Traits::has_query_consumer) {
        step = sum_beside_queries(step);
      } else if constexpr (Traits::has_many_queries) {
        step = sum_many_queries(step);
      } else {
        step = sum_gradients(step);
      }
    } else {
      pipelines_.arrive_values_empty(keys_.round);
      pipelines_.keys.consumer_release(keys_.round);
    }
    if (!writes_dv_early || !has_queries) writer_.write_dv(keys_, dv_);
    writer_.write_dk(keys_, dk_);
    return step;
  }

 private:
  // In a register: else the address would be made anew in each step.
  static __device__ __forceinline__ unsigned kept(unsigned smem) {
    asm volatile("" : "+r"(smem));
    return smem;
  }

  // Scores come first in the queue wherever they can, because everything waits for them. Waits count the groups that
  // they leave running.
  __device__ __forceinline__ unsigned sum_gradients(unsigned step) {
    start_scores(step);
    wgmma_wait_group<0>();
    exponentiate(step);
    pack_probabilities(step);
    start_d_scores(step);
    while (true) {
      start_dv(step);
      wgmma_wait_group<1>();
      write_ds(step);
      if (has_flag(query_info_end)) {
        pipelines_.arrive_values_empty(keys_.round);
        break;
      }
      start_dk(step);
      wgmma_wait_group<1>();
      wgmma_hold(p_);
      take_queries(step + 1);
      start_scores(step + 1);
      start_dq(step);
      wgmma_wait_group<1>();  // dK  // mutate: ScoresAreNotWaitedFor
      exponentiate(step + 1);
      wgmma_hold(ds_);
      pipelines_.q.consumer_release(step);
      pack_probabilities(step + 1);
      wgmma_wait_group<0>();
      put_dq(step);
      start_d_scores(step + 1);
      pass_dq(step);
      step = uniform(step + 1);  // else every descriptor would be moved from registers of its own
    }
    start_dk(step);
    start_dq(step);
    return finish_last(step);
  }

  // Beside a consumer of dQ: products of the next step are started as soon as there are registers for them, and the fence
  // behind dS comes when they are. Exponentials of the two consumers take turns, so that each computes while the other
  // one's products run.
  __device__ __forceinline__ unsigned sum_beside_queries(unsigned step) {
    if constexpr (Traits::keys_in_registers)
      // mutate: RowsOfTheFirstConsumerAreHeld
      load_rows<KTile>(k_, pipelines_.k(keys_.round), consumer_ * rows_per_warpgroup);
    start_scores(step);
    start_d_scores(step);
    wgmma_wait_group<1>();  // S
    exponentiate_in_turn(step);
    pack_probabilities(step);
    while (true) {
      start_dv(step);
      wgmma_wait_group<1>();                 // dP  // mutate: DpIsNotWaitedFor
      pipelines_.ds.producer_acquire(step);  // mutate: NoWaitForThePlaceOfDs
      put_ds(step);
      if (has_flag(query_info_end)) {
        pipelines_.arrive_values_empty(keys_.round);
        break;
      }
      take_queries(step + 1);
      start_scores(step + 1);
      start_dk(step);
      start_d_scores(step + 1);
      pass_ds(step);
      wgmma_wait_group<2>();  // dV, S  // mutate: ScoresBesideQueriesAreNotWaitedFor
      wgmma_hold(p_);
      exponentiate_in_turn(step + 1);
      wgmma_wait_group<1>();  // dK  // mutate: DkIsNotWaitedFor
      wgmma_hold(ds_);
      pipelines_.q.consumer_release(step);
      pack_probabilities(step + 1);
      step = uniform(step + 1);
    }
    start_dk(step);
    pass_ds(step);
    finish_dv<1>();
    wgmma_wait_group<0>();
    wgmma_hold(ds_);
    wgmma_hold(dk_.registers[0]);
    pipelines_.keys.consumer_release(keys_.round);
    pipelines_.q.consumer_release(step);
    return uniform(step + 1);
  }
  __device__ __forceinline__ void exponentiate_in_turn(unsigned step) {
    bar_sync(Traits::turn_barriers + consumer_, 2 * warpgroup_size);
    exponentiate(step);
    bar_arrive(Traits::turn_barriers + 1 - consumer_, 2 * warpgroup_size);
  }

  // Steps of many queries: each product's accumulators lie where those of another one lay, so that S and dP of the next
  // step are what runs under the exponentials and the leaving of dQ.
  __device__ __forceinline__ unsigned sum_many_queries(unsigned step) {
    start_scores(step);
    start_d_scores(step);
    wgmma_wait_group<1>();  // S
    exponentiate(step);
    pack_probabilities(step);
    while (true) {
      start_dv(step);
      wgmma_wait_group<1>();  // dP  // mutate: DpOfManyQueriesIsNotWaitedFor
      write_ds(step);
      if (has_flag(query_info_end)) {
        pipelines_.arrive_values_empty(keys_.round);
        break;
      }
      start_dk(step);  // mutate: QueriesAreLetGoTooEarly
      start_dq(step);
      wgmma_wait_group<1>();  // dV and dK  // mutate: DsIsOverwritten
      wgmma_hold(p_);
      wgmma_hold(ds_);
      pipelines_.q.consumer_release(step);
      take_queries(step + 1);
      start_scores(step + 1);
      wgmma_wait_group<1>();  // dQ  // mutate: DqOfManyQueriesIsNotWaitedFor
      put_dq(step);
      start_d_scores(step + 1);
      pass_dq(step);
      wgmma_wait_group<1>();  // S  // mutate: TheNextScoresAreNotWaitedFor
      exponentiate(step + 1);
      pack_probabilities(step + 1);
      step = uniform(step + 1);
    }
    start_dk(step);
    start_dq(step);
    return finish_last(step);
  }

  // The last dV, in front of so many other products. It leaves while these run, if there are registers for it.
  static constexpr bool writes_dv_early = Writer::by_tma && !Traits::has_many_queries;
  template <int behind>
  __device__ __forceinline__ void finish_dv() {
    wgmma_wait_group<behind>();  // mutate: DvLeavesUnfinished
    wgmma_hold(p_);
    wgmma_hold(dv_.registers[0]);
    if constexpr (writes_dv_early) writer_.write_dv(keys_, dv_);
  }

  // The next tile of keys begins behind this step.
  __device__ __forceinline__ unsigned finish_last(unsigned step) {
    finish_dv<2>();
    wgmma_wait_group<0>();  // mutate: DqIsNotWaitedFor
    wgmma_hold(ds_);
    wgmma_hold(dk_.registers[0]);
    pipelines_.keys.consumer_release(keys_.round);
    pipelines_.q.consumer_release(step);  // mutate: TheLastQueriesAreKept
    finish_dq(step);
    return uniform(step + 1);
  }

  // Asks what is there before products are started, with which a question would stand in line.
  __device__ __forceinline__ void take_queries(unsigned step) {
    const int answers = pipelines_.d_o.is_full(step) ? do_is_there : 0;
    pipelines_.q.consumer_wait(step);  // mutate: NoWaitForQueries
    flags_ = load_own_query_info_flags(pipelines_.info(step)) | answers;
  }
  // Of the tile of queries that was taken last. A vote, because what gives a lane's number to others stands in line with
  // products that were started.
  __device__ __forceinline__ bool has_flag(int flag) const {
    return __any_sync(full_warp, (flags_ & flag) != 0) != 0;
  }
  // mutate: PartialTilesTakenForFull
  __device__ __forceinline__ bool is_partial() const { return has_flag(query_info_partial); }

  // Each product is a group of its own.
  __device__ __forceinline__ void start_scores(unsigned step) {
    if constexpr (!Traits::early_d_scores) draw_kept_scores(step);
    lse_log2_.load(pipelines_.lse_log2(step));
    wgmma_fence();
    const unsigned queries = columns_of<QTile>(pipelines_.q.tile(step));
    if constexpr (Traits::keys_in_registers) {
      Config::template wgmma_scores_rs<QTile>(scores_.registers[0], k_, queries);
    } else {
      Config::template wgmma_scores<KTile, QTile>(scores_.registers[0],
                                                  own_rows<KTile>(pipelines_.k(keys_.round)), queries);
    }
    wgmma_commit_group();
    if constexpr (Traits::early_d_scores) draw_kept_scores(step);
  }
  // Which of them dropout keeps, while they are multiplied, or dK, where all registers are wanted later.
  __device__ __forceinline__ void draw_kept_scores(unsigned step) {
    kept_ = backward_wgmma::draw_kept_scores<Config>(
        pipelines_, step, params_, dropout_, keys_,
        consumer_ * rows_per_warpgroup + threadIdx.x % warpgroup_size / warp_size * 16);
  }
  __device__ __forceinline__ void start_d_scores(unsigned step) {
    if ((flags_ & do_is_there) == 0) pipelines_.d_o.consumer_wait(step);  // mutate: NoWaitForDo
    wgmma_fence();
    Config::template wgmma_d_scores<VTile, DoTile>(d_scores_.registers[0],
                                                   // mutate: ValuesOfTheOtherTile
                                                   own_rows<VTile>(pipelines_.v(keys_.round)),
                                                   columns_of<DoTile>(pipelines_.d_o.tile(step)));
    wgmma_commit_group();
  }
  __device__ __forceinline__ void start_dv(unsigned step) {
    minus_delta_.load(pipelines_.delta(step));
    wgmma_fence();
    Config::template wgmma_dv<DoTile>(dv_.registers[0], p_, rows_of<DoTile>(pipelines_.d_o.tile(step)));
    wgmma_commit_group();
  }
  __device__ __forceinline__ void start_dk(unsigned step) {
    wgmma_fence();
    Config::template wgmma_dk<QTile>(dk_.registers[0], ds_, rows_of<QTile>(pipelines_.q.tile(step)));
    wgmma_commit_group();
  }
  // When the other consumer's dS is there, too.
  __device__ __forceinline__ void start_dq(unsigned step) {
    constexpr int columns = Traits::dq_columns;
    constexpr int own_columns = Traits::has_many_queries ? 0
                                : KTile::panels > 1      ? columns / KTile::columns * KTile::panel_bytes
                                                         : columns * static_cast<int>(sizeof(Element));
    // mutate: BothHavePartsOfTheSameQueries
    constexpr int own_queries = Traits::has_many_queries ? rows_per_warpgroup : 0;
    pipelines_.ds.consumer_wait(step);  // mutate: NoWaitForTheOthersDs
    wgmma_fence();
    Config::template wgmma_dq<DsTile, KTile>(
        dq_.registers[0],
        lower_word(DsTile::along_columns(pipelines_.ds.tile(step), consumer_ * own_queries, 0)),
        rows_of<KTile>(pipelines_.k(keys_.round) + consumer_ * own_columns));
    wgmma_commit_group();
  }

  // After the wait for dQ: it is left to the adder. What is started between the two parts of that does not wait for the
  // fence.
  __device__ __forceinline__ void put_dq(unsigned step) {
    wgmma_hold(dq_.registers[0]);
    backward_wgmma::put_dq(pipelines_, consumer_, step, dq_);
  }
  __device__ __forceinline__ void pass_dq(unsigned step) const {
    backward_wgmma::pass_dq(pipelines_, consumer_, step);
  }
  __device__ __forceinline__ void finish_dq(unsigned step) {
    put_dq(step);
    pass_dq(step);
  }

  // Of S: P ∘ f′ in its place, and P, rounded. An identity's P is both, and its S takes no other registers until P has
  // room, unless it has it anyway.
  static constexpr bool packs_at_once = !Score::is_identity || Traits::has_many_queries;
  __device__ __forceinline__ void exponentiate(unsigned step) {
    wgmma_hold(scores_.registers[0]);
    if constexpr (!packs_at_once) weigh_scores(step);
  }
  __device__ __forceinline__ void pack_probabilities(unsigned step) {
    if constexpr (!packs_at_once) {
#pragma unroll
      for (int i = 0; i < Traits::query_steps; ++i) {
        scores_.template pack_step<Element>(p_[i], 0, i);
        kept_.drop_step(p_[i], 0, i);
      }
    } else {
      weigh_scores(step);
    }
  }
  // One copy of the step for whole tiles and one for partial ones; of many queries, and where masks read terms, one of each
  // part, because ptxas has no registers for those.
  static constexpr bool weighs_by_parts = Traits::has_many_queries || key_words<TileMask<Config>> == 1;
  __device__ __forceinline__ void weigh_scores(unsigned step) {
    if constexpr (weighs_by_parts) {
#pragma unroll
      for (int i = 0; i < Traits::query_steps; ++i) {
        if (is_partial()) {
          weigh_part<true>(step, i, place<true>(step));
        } else {
          weigh_part<false>(step, i, place<false>(step));
        }
        lse_log2_.load_behind(i);
      }
    } else if (is_partial()) {
      weigh_tile<true>(step);
    } else {
      weigh_tile<false>(step);
    }
  }
  template <bool has_masked>
  __device__ __forceinline__ void weigh_tile(unsigned step) {
    const ScorePlace first = place<has_masked>(step);
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) weigh_part<has_masked>(step, i, first);
  }
  // Where the consumer's scores lie, if it matters.
  template <bool has_masked>
  __device__ __forceinline__ ScorePlace place(unsigned step) const {
    constexpr bool has_places = has_masked || !Score::is_identity;
    const unsigned info = pipelines_.info(step);
    return {.first_key = keys_.k_begin + consumer_ * rows_per_warpgroup,
            .first_query = has_places ? load_query_info_query(info) : 0,
            .head = has_places ? load_query_info_head(info) : 0};
  }
  template <bool has_masked>
  __device__ __forceinline__ void weigh_part(unsigned step, int i, const ScorePlace& place) {
    using Part = ScorePart<Config>;
    Part scores, weights;
    for_each_value<Part>([&](int n, int j) {
      scores.registers[0][n][j] = scores_.registers[0][i * Part::column_blocks + n][j];
    });
    exponentiate_part<Config, has_masked>(scores, weights, i, place, params_, keys_, exponent_,
                                          lse_log2_.step(i));
    if constexpr (packs_at_once) {
      scores.template pack_step<Element>(p_[i], 0, 0);
      kept_.drop_step(p_[i], 0, i);
    }
    multiply_by_probabilities<Score>(weights, scores);
    for_each_value<Part>([&](int n, int j) {
      scores_.registers[0][i * Part::column_blocks + n][j] = weights.registers[0][n][j];
    });
  }

  // dS, rounded, in registers for dK and in shared memory for dQ: where that of two steps before was, which the other
  // consumer had multiplied before it wrote that of one step before, for which this one has waited.
  __device__ __forceinline__ void write_ds(unsigned step) {
    put_ds(step);
    pass_ds(step);
  }
  __device__ __forceinline__ void put_ds(unsigned step) {
    wgmma_hold(d_scores_.registers[0]);
    drop(d_scores_, kept_);
#pragma unroll
    for (int i = 0; i < Traits::query_steps; ++i) {
      const StepNumbers minus_delta = minus_delta_.step(i);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < MmaLayout::block_values; ++j)
          scores_.registers[0][2 * i + n][j] *=
              d_scores_.registers[0][2 * i + n][j] + minus_delta.at(n).of(0, j % 2);
      }
      scores_.template pack_step<Element>(ds_[i], 0, i);
    }
    store_ds<Config>(pipelines_.ds.tile(step) + consumer_ * DsTile::panel_bytes, ds_);
  }
  __device__ __forceinline__ void pass_ds(unsigned step) const {
    fence_proxy_async_shared();  // mutate: NoFenceBehindDs
    pipelines_.ds.producer_commit(step);
  }

  // Answers, beside a tile info's flags.
  static constexpr int do_is_there = 4;

  // Lower words of descriptors: the consumer's rows of a tile, with the sum along its columns; all rows of
  // a tile; a tile with the sum along its rows.
  template <class Tile>
  __device__ __forceinline__ unsigned own_rows(unsigned tile) const {
    return lower_word(Tile::along_columns(tile, consumer_ * rows_per_warpgroup, 0));
  }
  template <class Tile>
  __device__ __forceinline__ unsigned columns_of(unsigned tile) const {
    return lower_word(Tile::along_columns(tile, 0, 0));
  }
  template <class Tile>
  __device__ __forceinline__ unsigned rows_of(unsigned tile) const {
    return lower_word(Tile::along_rows(tile, 0));
  }

  // Steps of which LSE and delta are loaded ahead, where a warp has registers for it: scores leave none, and dropout some
  // where it is precomputed and another consumer has dQ.
  static constexpr bool loads_ahead =
      Score::is_identity &&
      (!has_dropout<Config> || (has_dropout_mask_ahead<Config> && Traits::has_query_consumer));
  static constexpr int lse_steps_ahead = !loads_ahead               ? 0
                                         : Traits::has_many_queries ? 2
                                                                    : Traits::query_steps;
  static constexpr int delta_steps_ahead = Traits::has_many_queries ? 0 : lse_steps_ahead;

  const AttentionParams& params_;
  const DropoutParams& dropout_;
  const KeyTile<Config> keys_;
  const int consumer_;
  const float exponent_;
  const Pipelines<Config> pipelines_;
  const Writer writer_;
  int flags_ = 0;                                       // what each lane read, and answers; see has_flag
  TileNumbers<Config, lse_steps_ahead> lse_log2_;       // of the same
  TileNumbers<Config, delta_steps_ahead> minus_delta_;  // of the queries of dP
  unsigned k_[Traits::register_steps][4];               // of the tile's keys
  Scores scores_;                                       // S, then W, then dS
  Scores d_scores_;                                     // dP
  KeptOf<Config, KeysByQueries, Scores> kept_;
  unsigned p_[Traits::query_steps][4];
  unsigned ds_[Traits::query_steps][4];
  typename Traits::QueryGradient dq_;
  typename Traits::KeyGradient dk_;
  typename Traits::ValueGradient dv_;
};

}  // namespace jit::backward_wgmma
