// The P exchange: one consumer hands over to the other the probabilities of a tile of keys, for the other
// half of the columns of O, and the rows' maxima that they are relative to.
//
// Consumers have tiles of keys in turns, so that there is one P exchange after another, to and fro: what one has taken
// it is done with before it hands over something itself. One buffer is enough for P. Threads of two consumers with
// the same index have the same places of it, so P goes from registers to registers, word by word, and no fence
// between the proxies is needed, as it would be if wgmma read it where it lies.
#pragma once

#include "base/prelude.cuh"
#include "forward_mla_wgmma/traits.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "split_keys/block_results.cuh"
#include "steps/softmax.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_mla_wgmma {

/// Floats of rows in shared memory. Threads of two consumers with the same index have the same rows.
template <class Layout>
struct SharedRows {
  unsigned first;  ///< shared address of the float of row 0

  JIT_DEVICE unsigned address(int row) const { return first + row * 4; }
  JIT_DEVICE float load(int row) const { return __int_as_float(load_shared(address(row))); }
  /// By one of the lanes that share the row.
  JIT_DEVICE void store(int row, float value) const {
    if (Layout::speaks_for_rows(lane_id())) store_shared(address(row), __float_as_int(value));
  }
};

template <class Config>
class PExchange {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;
  using K = typename Traits::KTile;
  using Output = typename Traits::Output;
  using Scores = typename Traits::Scores;
  using Layout = typename Scores::Layout;
  using State = SoftmaxState<Scores::rows>;

 public:
  /// `smem` is the shared address of the block's memory.
  JIT_DEVICE PExchange(unsigned smem, int consumer) : smem_(smem), consumer_(consumer) {}

  /// Makes P of exponentials, and hands it over with the maxima. By the consumer whose tile it is.
  JIT_DEVICE void give(const Scores& scores, const State& state, int first_row) {
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step) {
      scores.template pack_step<Element>(p_[step], 0, step);
      store_shared(place(step), p_[step]);
    }
    for_each_row(first_row, [&](int r, int row) { maxima(consumer_).store(row, state.row_max[r]); });
    bar_arrive(Traits::p_exchange_barrier + 1 - consumer_, Traits::consumer_threads);
  }

  /// Waits for what the other one hands over, and takes P and its maxima. Returns whether some of the warp's
  /// moved, and then `correction` is what the output must be multiplied by.
  JIT_DEVICE bool take(State& state, float scale_log2, int first_row, float (&correction)[Scores::rows]) {
    // mutate: TakenBeforeItIsGiven
    bar_sync(Traits::p_exchange_barrier + consumer_, Traits::consumer_threads);
#pragma unroll
    for (int step = 0; step < Traits::key_steps; ++step) load_shared(p_[step], place(step));
    bool moves = false;
    for_each_row(first_row, [&](int r, int row) {
      const float max = maxima(1 - consumer_).load(row);
      moves |= max != state.row_max[r];
      correction[r] = ex2((state.row_max[r] - finite_or_zero(max)) * scale_log2);
      state.row_max[r] = max;  // mutate: MaximaThatAreNotTaken
      state.row_sum[r] *= correction[r];
    });
    return __any_sync(full_warp, moves);
  }

  /// O += P V, as one group, of the P that was taken or given last. `k_tile` is the tile of keys. What was done
  /// to O before is done before the fence.
  JIT_DEVICE void multiply(Output& output, unsigned k_tile) const {
    wgmma_hold(output.registers[0]);
    wgmma_fence();
    Config::template wgmma_pv<K>(output.registers[0], p_, values(k_tile));
    wgmma_commit_group();
  }
  /// After the wait for `multiply`: until then nobody else may have the registers.
  JIT_DEVICE void hold() { wgmma_hold(p_); }

  /// The sums of both consumers' tiles of a split, every second of which `is_odd`. By both.
  JIT_DEVICE void add_sums(const State& state, bool is_odd, int first_row,
                           float (&sums)[Scores::rows]) const {
    const auto of_consumer = [&](int consumer) {
      const int place = (is_odd ? Traits::consumers : 0) + consumer;  // mutate: SumsOfAllSplitsInOnePlace
      return SharedRows<Layout>{smem_ + Traits::layout.sums + place * row_bytes};
    };
    for_each_row(first_row, [&](int r, int row) {
      const float sum = Layout::reduce(state.row_sum[r], [](float x, float y) { return x + y; });
      of_consumer(consumer_).store(row, sum);
    });
    bar_sync(Traits::consumers_barrier, Traits::consumer_threads);
    for_each_row(first_row,
                 // mutate: SumsOfOneConsumer
                 [&](int r, int row) { sums[r] = of_consumer(0).load(row) + of_consumer(1).load(row); });
  }

 private:
  static constexpr int row_bytes = Traits::tile_rows * 4;

  JIT_DEVICE SharedRows<Layout> maxima(int consumer) const {
    return {smem_ + Traits::layout.maxima + consumer * row_bytes};
  }
  // Shared address of a thread's words of P of a step.
  JIT_DEVICE unsigned place(int step) const {
    const int thread = reread_thread_index() % warpgroup_size;
    // mutate: ProbabilitiesOfAllStepsInOnePlace
    return smem_ + Traits::layout.p + (step * warpgroup_size + thread) * static_cast<int>(sizeof(p_[0]));
  }
  // The columns of values that are this consumer's.
  JIT_DEVICE unsigned values(unsigned k_tile) const {
    constexpr int panels = Traits::consumer_columns / K::columns;
    return lower_word(K::along_rows(k_tile + consumer_ * (panels * K::panel_bytes), 0));
  }
  template <class F>
  static JIT_DEVICE void for_each_row(int first_row, F f) {
    Scores::for_each_row(first_row + Layout::lane_row(lane_id()), f);
  }

  const unsigned smem_;
  const int consumer_;
  unsigned p_[Traits::key_steps][4];
};

}  // namespace jit::forward_mla_wgmma
