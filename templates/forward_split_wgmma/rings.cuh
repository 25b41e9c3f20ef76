// The rings of a block, and the notes that go with their tiles.
//
//            filled by                       read by                       empty when
//     parts  the key loader                  query loaders, consumers      each lane of theirs says so
//     Q      the query loaders, by cp.async  consumers                     each consumer warp says so
//     K, V   the key loader, by TMA          consumers                     each consumer warp says so
#pragma once

#include "forward_split_wgmma/traits.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/span_note.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_ring.cuh"

namespace jit::forward_split_wgmma {

/// One side's places in the rings.
template <class Config>
struct Rings {
  using Traits = KernelTraits<Config>;
  TileRing<Config::stages_q, Traits::consumers * Traits::QTile::bytes> q;
  TileRing<Config::stages, Traits::KTile::bytes> k;
  TileRing<Config::stages, Traits::VTile::bytes> v;

  /// `smem` is the shared address of the block's memory.
  __device__ __forceinline__ explicit Rings(unsigned smem)
      : q(smem + Traits::layout.q, smem + Traits::layout.q_full, smem + Traits::layout.q_empty),
        k(smem + Traits::layout.k, smem + Traits::layout.k_full, smem + Traits::layout.k_empty),
        v(smem + Traits::layout.v, smem + Traits::layout.v_full, smem + Traits::layout.v_empty) {}
};

/// One warp's place in the ring of parts, by which the key loader tells the others what comes next.
template <class Config>
class PartRing {
  using Layout = SmemLayout;
  static constexpr SmemLayout layout = KernelTraits<Config>::layout;
  using Ring = TileRing<stages_parts, sizeof(Note<Config>), /*by_lanes=*/true>;

 public:
  static constexpr int warp_arrivals = Ring::warp_arrivals;

  __device__ __forceinline__ PartRing(unsigned char* memory, unsigned smem)
      : notes_(reinterpret_cast<Note<Config>*>(memory + layout.parts)),
        ring_(smem + layout.parts, smem + layout.part_full, smem + layout.part_empty) {}

  /// Waits for the next part; false when there is none left.
  __device__ __forceinline__ bool take() const {
    ring_.wait_full();
    return note().batch >= 0;
  }
  /// The one that was taken, until it is released.
  __device__ __forceinline__ const Note<Config>& note() const { return notes_[ring_.stage()]; }
  __device__ __forceinline__ void release() {
    ring_.arrive_empty();
    ring_.advance();
  }

  /// The key loader's side.
  __device__ __forceinline__ void put(const Note<Config>& note) {
    ring_.wait_empty();
    if (lane_id() == 0) notes_[ring_.stage()] = note;
    ring_.arrive_full();
    ring_.advance();
  }
  /// After the last one.
  __device__ __forceinline__ void put_end() {
    Note<Config> end{};
    end.batch = -1;
    put(end);
  }

 private:
  Note<Config>* notes_;
  Ring ring_;
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_rings(unsigned smem) {
  using Traits = KernelTraits<Config>;
  const auto init = [&](int barriers, int stages, int arrivals) {
    for (int stage = 0; stage < stages; ++stage) mbarrier_init(smem + barriers + stage * 8, arrivals);
  };
  init(Traits::layout.q_full, Config::stages_q, Traits::query_warps);
  init(Traits::layout.q_empty, Config::stages_q, Traits::consumer_warps);
  init(Traits::layout.k_full, Config::stages, 1);
  init(Traits::layout.k_empty, Config::stages, Traits::consumer_warps);
  init(Traits::layout.v_full, Config::stages, 1);
  init(Traits::layout.v_empty, Config::stages, Traits::consumer_warps);
  constexpr int lanes = PartRing<Config>::warp_arrivals;
  init(Traits::layout.part_full, stages_parts, lanes);
  init(Traits::layout.part_empty, stages_parts, (Traits::query_warps + Traits::consumer_warps) * lanes);
  fence_mbarrier_init();
}

/// Shared address of the note of a stage of K.
template <class Config>
__device__ __forceinline__ unsigned key_note(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.key_notes + stage * static_cast<int>(sizeof(KeyNote));
}
/// By one thread.
__device__ __forceinline__ void store_key_note(unsigned note, const KeyNote& value) {
  store_shared(note, value.k_begin);
  store_shared(note + 4, value.flags);
}
/// By a whole warp.
__device__ __forceinline__ KeyNote load_key_note(unsigned note) {
  return {load_shared_by_warp(note), load_shared_by_warp(note + 4)};
}

}  // namespace jit::forward_split_wgmma
