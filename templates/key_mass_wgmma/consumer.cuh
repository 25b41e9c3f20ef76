// The epilogue of key masses: queries of a step by the consumer's own keys. Queries are the rows of the products, so that a lane sums its columns
// up in registers from step to step, and LSE is one number for each row. The next product runs while exponentials of this one
// are computed, in other registers.
#pragma once

#include "key_mass/masses.cuh"
#include "key_mass_wgmma/traits.cuh"
#include "problem/functor.cuh"
#include "problem/gradients.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "score_mainloop/mainloop.cuh"
#include "steps/apply_functors.cuh"
#include "steps/score_gradients.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

template <class Traits>
class KeyMassConsumer {
  using Config = typename Traits::Config;
  using Scores = typename Traits::Scores;
  using Score = typename Config::Score;
  using Mask = typename Config::Mask;
  static constexpr MaskQuery mask_query = has_row_range<Mask> ? MaskQuery::shortest : MaskQuery::each_score;
  static constexpr int columns = Scores::column_blocks * Scores::pair;  ///< of a lane

 public:
  JIT_DEVICE KeyMassConsumer(const KeyMassParams& params, const KeyTile<Config>& keys, unsigned smem,
                             int consumer)
      : params_(params),
        keys_(keys),
        sequences_(keys.sequences(params.attention)),
        smem_(smem),
        consumer_(consumer),
        mainloop_(smem, consumer),
        exponent_(score_exponent<Score>(params.attention.softmax_scale)) {}

  JIT_DEVICE void run() {
    mainloop_.wait_for_resident();
#pragma unroll
    for (int i = 0; i < columns; ++i) sums_[i] = 0;
    sum_steps();
    write();
  }

 private:
  // A step as a lane has it.
  struct Own : MassStep {
    float lse[Scores::rows];
  };

  // Two products take turns in registers. No path joins another one while one of them runs: the assembler would wait for each
  // instruction.
  JIT_DEVICE void sum_steps() {
    Own first, second;
    Scores even, odd;
    if (!take(first)) return;
    mainloop_.start(even);
    while (true) {
      if (!take(second)) return sum<0>(even, first);
      mainloop_.start(odd);
      sum<1>(even, first);
      if (!take(first)) return sum<0>(odd, second);
      mainloop_.start(even);
      sum<1>(odd, second);
    }
  }

  // Waits for the queries of a step; false when there are no more.
  JIT_DEVICE bool take(Own& step) {
    mainloop_.wait_for_streamed();
    const unsigned place = Traits::step(smem_, mainloop_.q.stage());
    step.head = load_shared_by_warp(place);
    if (step.head < 0) return false;
    step.q_begin = load_shared_by_warp(place + 4);
    step.partial = load_shared_by_warp(place + 8);
    const unsigned lse = Traits::lse(smem_, mainloop_.q.stage()) + static_cast<unsigned>(own_row() * 4);
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r)
      step.lse[r] = lse_exponent(__int_as_float(load_shared(lse + static_cast<unsigned>(r * 32))));
    return true;
  }

  // Adds the probabilities of a step, behind whose product so many others are under way.
  template <int pending>
  JIT_DEVICE void sum(Scores& scores, const Own& step) {
    mainloop_.template finish<pending>(scores);
    apply(scores, step);
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      scores.for_each_of_row(
          r, [&](float& score, int) { score = ex2(__fmaf_rn(score, exponent_, -step.lse[r])); });
    }
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; ++n) {
#pragma unroll
      for (int i = 0; i < Scores::pair; ++i)
        sums_[n * Scores::pair + i] += scores.at(0, n, i) + scores.at(1, n, i);
    }
  }

  // The lane's first row of a step's queries.
  static JIT_DEVICE int own_row() {
    return warp_id() % 4 * MmaLayout::block_rows + MmaLayout::lane_row(lane_id());
  }
  JIT_DEVICE int first_key() const { return keys_.k_begin + consumer_ * mass_consumer_keys; }

  JIT_DEVICE void apply(Scores& scores, const MassStep& step) const {
    if (Score::is_identity && step.partial == 0) return;
    const BlockContext context = sequences_.context(keys_.batch, step.head);
    const int query = step.q_begin + own_row(), key = first_key() + MmaLayout::lane_column(lane_id());
    apply_score<QueriesByKeys>(scores, query, key, Score(context), params_.attention.softmax_scale, context);
    if (step.partial == 0) return;
    const Mask mask(context);
    drop_masked<mask_query>(scores, {query, key}, mask, context);  // mutate: MassOfKeysThatAreMasked
#pragma unroll
    for (int r = 0; r < Scores::rows; ++r) {
      if (query + 8 * r < context.seqlen_q) continue;
      scores.for_each_of_row(r, [](float& score, int) { score = negative_infinity(); });
    }
  }

  // Adds up what lanes of other rows have, in a fixed order, and writes a key's mass by a thread.
  JIT_DEVICE void write() {
    const int lane = lane_id(), warp = warp_id() % 4, thread = warp * warp_size + lane;
    const unsigned own =
        smem_ + Traits::layout.sums + static_cast<unsigned>(consumer_ * 4 * mass_consumer_keys * 4);
#pragma unroll
    for (int i = 0; i < columns; ++i) {
#pragma unroll
      for (int distance = 4; distance < warp_size; distance *= 2)
        sums_[i] += __shfl_xor_sync(full_warp, sums_[i], distance);  // mutate: MassOfOneRow
      if (lane < 4) {
        const int column = i / 2 * MmaLayout::block_columns + MmaLayout::lane_column(lane) + i % 2;
        store_shared(own + static_cast<unsigned>((warp * mass_consumer_keys + column) * 4),
                     __float_as_int(sums_[i]));
      }
    }
    bar_sync(Traits::sums_barrier + consumer_, warpgroup_size);  // mutate: SumsOfOtherWarpsReadEarly
    float sum = 0;
#pragma unroll
    for (int other = 0; other < 4; ++other)
      sum +=
          __int_as_float(load_shared(own + static_cast<unsigned>((other * mass_consumer_keys + thread) * 4)));
    const int key = first_key() + thread;
    const Sequence rows = sequences_.kv(keys_.batch);
    write_mass<Config>(params_, key, rows.length, sum, [&] {
      const TensorStrides& strides = params_.mass_strides;
      const long long batch = Config::sequences_kv == SequenceKind::varlen ? 0 : keys_.batch;
      return params_.mass + (batch * strides.batch + keys_.kv_head * strides.head +
                             (rows.begin + static_cast<long long>(key)) * strides.seq);
    });
  }

  const KeyMassParams& params_;
  const KeyTile<Config>& keys_;
  const SequencesOf<Config> sequences_;
  const unsigned smem_;
  const int consumer_;
  ScoreMainloop<Traits> mainloop_;
  const float exponent_;
  float sums_[columns];
};

}  // namespace jit
