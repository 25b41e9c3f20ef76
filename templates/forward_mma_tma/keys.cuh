// Keys and values as a warp takes them: tile by tile, with what the key producer tells of each.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"

namespace jit::forward_mma_tma {

/// A warp's place in the pipelines of K and V, and the flags of the tile of keys that it is at.
template <class Traits>
class WarpKeys {
 public:
  JIT_DEVICE explicit WarpKeys(unsigned smem) : smem_(smem), pipelines_(smem) {}

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
  JIT_DEVICE bool is_last() const { return (flags_ & key_info_end) != 0; }
  /// Whether some score must be dropped.
  JIT_DEVICE bool is_partial() const { return (flags_ & key_info_partial) != 0; }
  /// Shared address of the bits of its scores; 0: they are not there.
  JIT_DEVICE unsigned mask_bits() const {
    return (flags_ & key_info_known) != 0 ? mask_bits_of<Traits>(smem_, pipelines_.k.stage()) : 0;
  }

  /// The tile's first key, the shared addresses of K, and of the words and scales of its keys.
  JIT_DEVICE int first_key() const { return load_key_info_begin(info()); }
  JIT_DEVICE unsigned k_tile() const { return pipelines_.k.tile(); }
  JIT_DEVICE unsigned words() const { return key_words_of<Traits>(smem_, pipelines_.k.stage()); }
  JIT_DEVICE unsigned scales() const { return key_scales_of<Traits>(smem_, pipelines_.k.stage()); }

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
  int flags_ = 0;
};

}  // namespace jit::forward_mma_tma
