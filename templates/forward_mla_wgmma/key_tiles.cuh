// A warpgroup's place among the tiles of keys that a block has in shared memory, of which each part comes and goes by itself.
#pragma once

#include "base/prelude.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_mla_wgmma {

/// The barriers are those of the pipelines of parts (mainloop/pipelines.cuh), which producers walk through part by part.
/// Where P of a tile lies, were its keys alone: no warp reads these any more when P is there.
template <class Traits>
class KeyTiles {
  static constexpr int parts = Traits::v_parts, part_bytes = Traits::VPart::bytes;
  static constexpr SmemLayout layout = Traits::layout;

 public:
  /// `smem` is the shared address of the block's memory.
  JIT_DEVICE explicit KeyTiles(unsigned smem) : smem_(smem) {}

  /// Shared address of a part of values, which are keys, too.
  JIT_DEVICE unsigned part(int part) const {
    return uniform(smem_ + layout.v.tiles + (stage_ * parts + part) * part_bytes);
  }
  /// Shared address of the keys alone, and later of P.
  JIT_DEVICE unsigned alone() const {
    return uniform(smem_ + layout.k.tiles + stage_ * Traits::KPanel::bytes);
  }

  JIT_DEVICE void wait_for_part(int part) const { wait(layout.v.full + (stage_ * parts + part) * 8); }
  JIT_DEVICE void wait_for_alone() const { wait(layout.k.full + stage_ * 8); }
  /// By each warp of the warpgroup that multiplies P with the part.
  JIT_DEVICE void release_part(int part) const { arrive(layout.v.empty + (stage_ * parts + part) * 8); }
  /// By each warp of the warpgroup that reads P in its place.
  JIT_DEVICE void release_alone() const { arrive(layout.k.empty + stage_ * 8); }

  /// The tile before. It is there already.
  JIT_DEVICE KeyTiles before() const {
    KeyTiles tiles = *this;
    tiles.stage_ = (stage_ == 0 ? Traits::stages_k : stage_) - 1;
    return tiles;
  }
  JIT_DEVICE void advance() {
    if (++stage_ == Traits::stages_k) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  JIT_DEVICE void wait(int full) const { mbarrier_wait_parity(smem_ + full, phase_); }
  JIT_DEVICE void arrive(int empty) const {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(smem_ + empty);
  }

  unsigned smem_;
  int stage_ = 0;
  unsigned phase_ = 0;
};

}  // namespace jit::forward_mla_wgmma
