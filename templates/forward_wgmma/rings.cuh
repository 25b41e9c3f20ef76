// The rings of a wgmma kernel, and the notes that go with their tiles.
//
//            filled by                    read by        empty when
//     Q      the query loader, by TMA     its consumer   the storer has stored O, which lies over it; where
//                                                        it does not, each consumer warp says so
//     K, V   the key loader, by TMA       consumers      each consumer warp says so
//            (its lanes, where keys have words or scales)
//     V      each transposing warp        consumers      each consumer warp says so
//     V rows the key loader, by TMA       transposers    each of their warps says so; V is the loader's own where
//                                                        nobody turns it over
//     O      each consumer warp           the storer     it has read it, where O has its own place; no ring
//                                                        where consumers write O themselves
#pragma once

#include "forward_wgmma/traits.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_ring.cuh"

namespace jit::forward_wgmma {

/// One side's places in the rings. Each consumer has rings of its own for Q and O: the next Q of one does not
/// wait for the O of those behind it.
template <class Config>
struct Rings {
  using Traits = KernelTraits<Config>;
  TileRing<Config::stages_q, Traits::q_stage_bytes> q;
  TileRing<Config::stages_k, Traits::KTile::bytes, Traits::has_key_words || Traits::has_key_scales> k;
  TileRing<Config::stages_v, Traits::VTile::bytes> v;
  TileRing<Config::stages_v, Traits::VRowsTile::bytes> v_rows;
  TileRing<Traits::stages_o, Traits::q_stage_bytes> o;

  /// `smem` is the shared address of the block's memory; Q and O are those of consumer 0.
  __device__ __forceinline__ explicit Rings(unsigned smem)
      : q(smem + Traits::layout.q, smem + Traits::layout.q_full, smem + Traits::layout.q_empty),
        k(smem + Traits::layout.k, smem + Traits::layout.k_full, smem + Traits::layout.k_empty),
        v(smem + Traits::layout.v, smem + Traits::layout.v_full, smem + Traits::layout.v_empty),
        v_rows(smem + Traits::layout.v_rows, smem + Traits::layout.v_rows_full,
               smem + Traits::layout.v_rows_empty),
        o(smem + Traits::layout.o, smem + Traits::layout.o_full, smem + Traits::layout.o_empty) {}
};

/// The ring of values as they are loaded.
template <class Config>
__device__ __forceinline__ auto& loaded_values(Rings<Config>& rings) {
  if constexpr (KernelTraits<Config>::transposes_v) {
    return rings.v_rows;
  } else {
    return rings.v;
  }
}

template <class Config, class Ring>
__device__ __forceinline__ Ring q_ring_of(const Ring& first, int consumer) {
  return first.moved(consumer * KernelTraits<Config>::q_bytes, consumer * Config::stages_q * 8);
}
template <class Config, class Ring>
__device__ __forceinline__ Ring o_ring_of(const Ring& first, int consumer) {
  using Traits = KernelTraits<Config>;
  return first.moved(consumer * Traits::o_bytes, consumer * Traits::stages_o * 8);
}

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_rings(unsigned smem) {
  using Traits = KernelTraits<Config>;
  const auto init = [&](int barriers, int stages, int arrivals) {
    for (int stage = 0; stage < stages; ++stage) mbarrier_init(smem + barriers + stage * 8, arrivals);
  };
  constexpr int warps = warpgroup_size / warp_size;
  init(Traits::layout.q_full, Traits::consumers * Config::stages_q, 1);
  init(Traits::layout.q_empty, Traits::consumers * Config::stages_q, Traits::o_over_q ? 1 : warps);
  constexpr int key_arrivals = decltype(Rings<Config>::k)::warp_arrivals;
  init(Traits::layout.k_full, Config::stages_k, key_arrivals);
  init(Traits::layout.k_empty, Config::stages_k, Traits::key_readers * key_arrivals);
  init(Traits::layout.v_full, Config::stages_v, Traits::transposes_v ? warps : 1);
  init(Traits::layout.v_empty, Config::stages_v, Traits::consumer_warps);
  constexpr int stages_v_rows = Traits::transposes_v ? Config::stages_v : 0;
  init(Traits::layout.v_rows_full, stages_v_rows, 1);
  init(Traits::layout.v_rows_empty, stages_v_rows, warps);
  init(Traits::layout.o_full, Traits::consumers * Traits::stages_o, warps);
  init(Traits::layout.o_empty, Traits::consumers * Traits::stages_o, 1);
  init(Traits::layout.work_full, stages_work, 1);
  init(Traits::layout.work_empty, stages_work, Traits::work_readers);
  init(Traits::layout.work_wanted, Traits::has_lengths ? 1 : 0, 1);
  fence_mbarrier_init();
}

inline constexpr int key_note_partial = 1;  ///< some score of the tile must be dropped
inline constexpr int key_note_end = 2;      ///< the last tile of keys for these queries
inline constexpr int key_note_none = 4;     ///< there is no tile: these queries see no key
/// The last tile for consumer 0; for consumer 1 and 2 twice, four times that.
inline constexpr int key_note_last = 8;
/// Consumer 0 sees only the lower half; for consumer 1 and 2 twice, four times that.
inline constexpr int key_note_lower = 64;
/// The last tile for everyone.
inline constexpr int key_note_all_last = key_note_end | 7 * key_note_last;

/// Shared address of the note of a stage.
template <class Config>
__device__ __forceinline__ unsigned key_note(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.key_notes + stage * static_cast<int>(sizeof(KeyNote));
}
/// Shared address of the note of a stage of values that are turned over: whether there are some, or none any more.
template <class Config>
__device__ __forceinline__ unsigned value_note(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.value_notes + stage * 4;
}
/// Shared address of the words of a stage's keys.
template <class Config>
__device__ __forceinline__ unsigned key_words_of(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.key_words + stage * Config::tile_kv * 4;
}

/// Shared address of the scales of a stage's keys.
template <class Config>
__device__ __forceinline__ unsigned key_scales_of(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.key_scales + stage * Config::tile_kv * 4;
}

__device__ __forceinline__ void store_key_note(unsigned note, int k_begin, int flags) {
  store_shared(note, k_begin);
  store_shared(note + 4, flags);
}
__device__ __forceinline__ int load_key_note_begin(unsigned note) { return load_shared_by_warp(note); }
__device__ __forceinline__ int load_key_note_flags(unsigned note) { return load_shared_by_warp(note + 4); }

}  // namespace jit::forward_wgmma
