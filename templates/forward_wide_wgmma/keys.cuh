// Tiles of keys as the score warpgroup reads them: the producer's tile info of each, and its panels.
#pragma once

#include "base/prelude.cuh"
#include "forward_wide_wgmma/traits.cuh"
#include "mainloop/pipelines.cuh"

namespace jit::forward_wide_wgmma {

/// The place in the tile infos, and the flags of the tile that was taken last.
template <class Traits>
class ScoreKeys {
 public:
  JIT_DEVICE explicit ScoreKeys(unsigned smem) : smem_(smem), infos_(KeyInfoPipeline<Traits>(smem).k) {}

  /// Waits for the next tile of keys.
  JIT_DEVICE void take() {
    infos_.consumer_wait();
    flags_ = load_key_info_flags(info());
  }
  /// When what was told of it has been read.
  JIT_DEVICE void release() {
    infos_.consumer_release();
    infos_.advance();
  }

  /// Whether there is a tile at all.
  JIT_DEVICE bool has_any() const { return (flags_ & key_info_none) == 0; }
  JIT_DEVICE bool is_last() const { return (flags_ & key_info_end) != 0; }
  /// Whether some score must be dropped.
  JIT_DEVICE bool is_partial() const { return (flags_ & key_info_partial) != 0; }
  /// Shared address of the bits of its scores; 0: they are not there.
  JIT_DEVICE unsigned mask_bits() const {
    return (flags_ & key_info_mask_bits) != 0 ? mask_bits_of<Traits>(smem_, infos_.stage()) : 0;
  }
  /// The tile's first key, and the shared addresses of the words and scales of its keys.
  JIT_DEVICE int first_key() const { return load_key_info_begin(info()); }
  JIT_DEVICE unsigned words() const { return key_words_of<Traits>(smem_, infos_.stage()); }
  JIT_DEVICE unsigned scales() const { return key_scales_of<Traits>(smem_, infos_.stage()); }

 private:
  JIT_DEVICE unsigned info() const { return key_tile_info<Traits>(smem_, infos_.stage()); }

  const unsigned smem_;
  decltype(KeyInfoPipeline<Traits>::k) infos_;
  int flags_ = 0;
};

}  // namespace jit::forward_wide_wgmma
