// How the loader of keys tells the others what comes next: notes of parts in a ring, and a note of each tile of keys beside
// its buffer. A Traits is that of a kernel family: its Config and the layout of its shared memory.
#pragma once

#include "base/prelude.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/key_note.cuh"
#include "split_keys/span_note.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_ring.cuh"

namespace jit {

/// One warp's place in the ring of parts.
template <class Traits>
class PartRing {
  using Config = typename Traits::Config;
  using Ring = TileRing<stages_parts, sizeof(Note<Config>), /*by_lanes=*/true>;

 public:
  static constexpr int warp_arrivals = Ring::warp_arrivals;

  __device__ __forceinline__ PartRing(unsigned char* memory, unsigned smem)
      : notes_(reinterpret_cast<Note<Config>*>(memory + Traits::layout.parts)),
        ring_(smem + Traits::layout.parts, smem + Traits::layout.part_full,
              smem + Traits::layout.part_empty) {}

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

/// Makes the barriers of the stages of a ring. By one thread, as init_part_ring.
__device__ __forceinline__ void init_barriers(unsigned first, int stages, int arrivals) {
  for (int stage = 0; stage < stages; ++stage) mbarrier_init(first + stage * 8, arrivals);
}
/// Those of the ring of parts, which loaders of queries and consumers read.
template <class Traits>
__device__ __forceinline__ void init_part_ring(unsigned smem) {
  constexpr int lanes = PartRing<Traits>::warp_arrivals;
  init_barriers(smem + Traits::layout.part_full, stages_parts, lanes);
  init_barriers(smem + Traits::layout.part_empty, stages_parts,
                (Traits::query_warps + Traits::consumer_warps) * lanes);
}

/// Shared address of the note of a stage of K.
template <class Traits>
__device__ __forceinline__ unsigned key_note(unsigned smem, int stage) {
  return smem + Traits::layout.key_notes + stage * static_cast<int>(sizeof(KeyNote));
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

}  // namespace jit
