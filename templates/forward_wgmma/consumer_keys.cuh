// K and V as a consumer reads them: tile by tile, with the producer's tile info of each.
#pragma once

#include "base/prelude.cuh"
#include "forward_wgmma/traits.cuh"
#include "mainloop/pipelines.cuh"
#include "pipeline/warpgroup_order_barrier.cuh"
#include "ptx/math.cuh"

namespace jit::forward_wgmma {

/// A consumer's place in the pipelines of K and V, and the tile info of the tile of keys that it is at.
template <class Config>
class ConsumerKeys {
  using Traits = KernelTraits<Config>;

 public:
  JIT_DEVICE ConsumerKeys(unsigned smem, int consumer)
      : smem_(smem), consumer_(consumer), k_(KvPipelines<Traits>(smem).k), v_(KvPipelines<Traits>(smem).v) {}

  /// Waits for the next tile of keys.
  JIT_DEVICE void take() {
    if (next_flags_ != key_flags_unknown) {
      if constexpr (Traits::keys_by_lanes) k_.consumer_wait();
      flags_ = next_flags_;  // mutate: NextKeysAreTheLastOnes
      next_flags_ = key_flags_unknown;
      return;
    }
    k_.consumer_wait();
    flags_ = load_key_info_flags(info());
  }

  /// A look ahead at the next tile of keys: asked for, read a little later and remembered later still, so that
  /// no thread waits in between.
  struct NextTile {
    bool is_full;
    unsigned info;
    int flags = key_flags_unknown;

    JIT_DEVICE void read() {
      flags = load_key_info_flags_if(is_full, info, key_flags_unknown);  // mutate: KeysTakenUnseen
    }
  };
  JIT_DEVICE NextTile ask_for_next() const {
    const bool is_full = k_.is_full();
    return {is_full, info()};
  }
  JIT_DEVICE void remember(const NextTile& next) {
    const int flags = uniform(next.flags);
    next_flags_ = __all_sync(full_warp, next.is_full) ? flags : key_flags_unknown;
  }

  /// Whether there is a tile at all.
  JIT_DEVICE bool has_any() const { return (flags_ & key_info_none) == 0; }
  /// Whether it is the last one of which this consumer sees some.
  JIT_DEVICE bool is_last() const { return (flags_ & key_info_last << consumer_) != 0; }
  /// The level of the node where its span, which it ends, meets that of the next one; 0: it ends none.
  JIT_DEVICE int level_of_end() const { return level_of_span_end(flags_); }
  /// Whether it sees the lower half alone.
  JIT_DEVICE bool is_lower() const { return (flags_ & key_info_lower << consumer_) != 0; }
  /// Whether some score must be dropped.
  JIT_DEVICE bool is_partial() const { return (flags_ & key_info_partial) != 0; }
  /// Shared address of the bits of its scores; 0: they are not there.
  JIT_DEVICE unsigned mask_bits() const {
    return (flags_ & key_info_known) != 0 ? mask_bits_of<Traits>(smem_, k_.stage()) : 0;
  }

  /// The tile's first key, the shared addresses of K, and of the words and scales of its keys.
  JIT_DEVICE int first_key() const { return load_key_info_begin(info()); }
  JIT_DEVICE unsigned k_tile() const { return k_.tile(); }
  JIT_DEVICE unsigned words() const { return key_words_of<Traits>(smem_, k_.stage()); }
  JIT_DEVICE unsigned scales() const { return key_scales_of<Traits>(smem_, k_.stage()); }

  JIT_DEVICE void release_k() {
    k_.consumer_release();
    k_.advance();
  }

  /// Releases K behind what `known`, alike in a warp, is made of.
  JIT_DEVICE void release_k_behind(bool known) {
    k_.consumer_release_after(known);
    k_.advance();
  }

  JIT_DEVICE bool has_v() const { return v_.is_full(); }
  JIT_DEVICE void wait_for_v() const { v_.consumer_wait(); }
  JIT_DEVICE unsigned v_tile() const { return v_.tile(); }
  JIT_DEVICE void release_v() {
    v_.consumer_release();
    v_.advance();
  }

  /// Before the first tile of keys that it sees, in descending order: the same as skip_k() behind the last one.
  JIT_DEVICE void skip_first_k(const WarpgroupOrderBarrier<Traits>& order_barrier) {
    if constexpr (!Config::descending || Traits::most_skipped == 0) return;
    while ((flags_ & key_info_unseen << consumer_) != 0) {
      skip(order_barrier);
      take();
    }
  }
  /// Behind the last tile of keys: what others see takes no more than the turns. Values are released later,
  /// behind those that are still to be multiplied with.
  JIT_DEVICE void skip_k(const WarpgroupOrderBarrier<Traits>& order_barrier) {
    if constexpr (Config::descending || Traits::most_skipped == 0) return;
    while ((flags_ & key_info_end) == 0) {
      take();
      skip(order_barrier);
    }
  }
  JIT_DEVICE void skip_v() {
    if constexpr (Traits::most_skipped == 0) return;
    for (; skipped_ > 0; --skipped_) {
      wait_for_v();  // before, the stage is still of the round before
      release_v();
    }
  }

 private:
  JIT_DEVICE void skip(const WarpgroupOrderBarrier<Traits>& order_barrier) {
    order_barrier.wait();  // mutate: SkipsWithoutTheOrder
    order_barrier.pass();
    release_k();
    ++skipped_;
  }
  JIT_DEVICE unsigned info() const { return key_tile_info<Traits>(smem_, k_.stage()); }

  const unsigned smem_;
  const int consumer_;
  decltype(KvPipelines<Traits>::k) k_;
  decltype(KvPipelines<Traits>::v) v_;
  int flags_ = 0;                       // of the last tile of keys that was taken
  int next_flags_ = key_flags_unknown;  // of the next one, where it was seen to be there
  int skipped_ = 0;                     // tiles of values that are to be released
};

}  // namespace jit::forward_wgmma
