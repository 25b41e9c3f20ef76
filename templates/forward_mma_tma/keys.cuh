// K and V as a consumer warp reads them: tile by tile, with the producer's tile info of each.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"

namespace jit::forward_mma_tma {

/// A warp's place in the pipelines of K and V, and the flags of the tile of keys that it is at.
template <class Traits>
class WarpKeys {
 public:
  /// `consumer` is the warp's group of four, whose queries see nearly the same keys.
  JIT_DEVICE WarpKeys(unsigned smem, int consumer)
      : smem_(smem), pipelines_(smem), last_(key_info_last << consumer) {}

  /// Waits for the next tile of keys.
  JIT_DEVICE void take() {
    pipelines_.k.consumer_wait();  // mutate: NoWaitForTmaKeys
    flags_ = load_key_info_flags(info());
  }
  JIT_DEVICE void release() {
    pipelines_.k.consumer_release();
    pipelines_.k.advance();
  }

  /// Whether there is a tile at all.
  JIT_DEVICE bool has_any() const { return (flags_ & key_info_none) == 0; }
  /// Whether it is the last one that anybody sees, and the last one that this group does.
  JIT_DEVICE bool is_end() const { return (flags_ & (key_info_end | key_info_none)) != 0; }
  JIT_DEVICE bool is_last() const { return (flags_ & last_) != 0; }
  /// Whether some score must be dropped.
  JIT_DEVICE bool is_partial() const { return (flags_ & key_info_partial) != 0; }
  /// Shared address of the bits of its scores; 0: they are not there.
  JIT_DEVICE unsigned mask_bits() const {
    return (flags_ & key_info_mask_bits) != 0 ? mask_bits_of<Traits>(smem_, pipelines_.k.stage()) : 0;
  }

  /// The tile's first key, the shared addresses of K, and of the words and scales of its keys.
  JIT_DEVICE int first_key() const { return load_key_info_begin(info()); }
  JIT_DEVICE unsigned k_tile() const { return pipelines_.k.tile(); }
  JIT_DEVICE unsigned words() const { return key_words_of<Traits>(smem_, pipelines_.k.stage()); }
  JIT_DEVICE unsigned scales() const { return key_scales_of<Traits>(smem_, pipelines_.k.stage()); }

  /// Leaves the tile that was taken, keys and values, to others.
  JIT_DEVICE void skip() {
    release();
    take_values();  // before, the stage is still of the round before
    release_values();
  }

  /// Waits for the values of the tile that was taken.
  JIT_DEVICE unsigned take_values() {
    pipelines_.v.consumer_wait();  // mutate: NoWaitForTmaValues
    return pipelines_.v.tile();
  }
  JIT_DEVICE void release_values() {
    pipelines_.v.consumer_release();
    pipelines_.v.advance();
  }

 private:
  JIT_DEVICE unsigned info() const { return key_tile_info<Traits>(smem_, pipelines_.k.stage()); }

  const unsigned smem_;
  KvPipelines<Traits> pipelines_;
  const int last_;  // the group's flag
  int flags_ = 0;
};

}  // namespace jit::forward_mma_tma
