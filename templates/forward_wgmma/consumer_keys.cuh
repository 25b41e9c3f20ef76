// The consumer's side of the pipelines of K and V, with the producer's tile info of each tile.
#pragma once

#include "base/prelude.cuh"
#include "forward_wgmma/traits.cuh"
#include "mainloop/pipelines.cuh"
#include "pipeline/warpgroup_order_barrier.cuh"
#include "ptx/math.cuh"

namespace jit::forward_wgmma {

/// A consumer's state in the pipelines of K and V, and the tile info of its current tile of keys.
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

  /// A non-blocking look at the next tile of keys, in three steps, so that no thread waits: test its barrier
  /// (try_next), read its flags, remember them.
  struct NextTile {
    bool is_full;
    unsigned info;
    int flags = key_flags_unknown;

    JIT_DEVICE void read() {
      flags = load_key_info_flags_if(is_full, info, key_flags_unknown);  // mutate: KeysTakenUnseen
    }
  };
  JIT_DEVICE NextTile try_next() const {
    const bool is_full = k_.is_full();
    return {is_full, info()};
  }
  JIT_DEVICE void remember(const NextTile& next) {
    const int flags = uniform(next.flags);
    next_flags_ = __all_sync(full_warp, next.is_full) ? flags : key_flags_unknown;
  }

  /// Whether the work tile has any keys.
  JIT_DEVICE bool has_any() const { return (flags_ & key_info_none) == 0; }
  /// Whether this is the last tile of which this consumer's queries see some keys.
  JIT_DEVICE bool is_last() const { return (flags_ & key_info_last << consumer_) != 0; }
  /// Whether it is the last one, or ends a span: one question, as it is asked in front of each product.
  JIT_DEVICE bool ends_span_or_all() const {
    return (flags_ & (key_info_last << consumer_ | (Traits::has_spans ? 31 * key_info_span_end : 0))) != 0;
  }
  /// The tree level at which this tile's span meets the next one; 0: the tile does not end its span.
  JIT_DEVICE int level_of_end() const { return level_of_span_end(flags_); }
  /// Whether this consumer sees only the lower half of the tile.
  JIT_DEVICE bool is_lower() const { return (flags_ & key_info_lower << consumer_) != 0; }
  /// Whether the tile must be masked.
  JIT_DEVICE bool is_partial() const { return (flags_ & key_info_partial) != 0; }
  /// Shared address of the tile's mask bits; 0: it has none.
  JIT_DEVICE unsigned mask_bits() const {
    return (flags_ & key_info_mask_bits) != 0 ? mask_bits_of<Traits>(smem_, k_.stage()) : 0;
  }

  /// The tile's first key; shared addresses of K, and of the words and scales of its keys.
  JIT_DEVICE int first_key() const { return load_key_info_begin(info()); }
  JIT_DEVICE unsigned k_tile() const { return k_.tile(); }
  JIT_DEVICE unsigned words() const { return key_words_of<Traits>(smem_, k_.stage()); }
  JIT_DEVICE unsigned scales() const { return key_scales_of<Traits>(smem_, k_.stage()); }

  JIT_DEVICE void release_k() {
    k_.consumer_release();
    k_.advance();
  }

  /// Releases K once `known`, which is uniform in the warp, has been computed.
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

  /// In descending order, skips the tiles before the first one that this consumer sees.
  JIT_DEVICE void skip_first_k(const WarpgroupOrderBarrier<Traits>& order_barrier) {
    if constexpr (!Config::descending || Traits::max_skipped_tiles == 0) return;
    while ((flags_ & key_info_skipped << consumer_) != 0) {
      skip(order_barrier);
      take();
    }
  }
  /// In ascending order, skips the tiles after the last one that this consumer sees; each still takes a turn. skip_v()
  /// releases their values later, after those that P V still needs.
  JIT_DEVICE void skip_k(const WarpgroupOrderBarrier<Traits>& order_barrier) {
    if constexpr (Config::descending || Traits::max_skipped_tiles == 0) return;
    while ((flags_ & key_info_end) == 0) {
      take();
      skip(order_barrier);
    }
  }
  JIT_DEVICE void skip_v() {
    if constexpr (Traits::max_skipped_tiles == 0) return;
    for (; skipped_ > 0; --skipped_) {
      wait_for_v();  // until then the stage belongs to the previous phase
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
  int flags_ = 0;                       // of the current tile of keys
  int next_flags_ = key_flags_unknown;  // of the next tile, if it was already full
  int skipped_ = 0;                     // skipped tiles whose values are not released yet
};

}  // namespace jit::forward_wgmma
