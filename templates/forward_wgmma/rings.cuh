// The rings of a wgmma kernel, and the notes that go with their tiles.
//
//            filled by                    read by        empty when
//     Q      the query loader, by TMA     its consumer   the storer has stored O, which lies over it; where
//                                                        it does not, each consumer warp says so
//     K, V   the key loader, by TMA       consumers      each consumer warp says so
//            (its lanes, where keys have words or scales)
//     O      each consumer warp           the storer     it has read it, where O has its own place; no ring
//                                                        where consumers write O themselves
//
// and where elements of 8 bits are turned over (V of q, k and v of 8 bits) or widened (K and V under q of 16)
//
//     stored K, V  the key loader, by TMA    converters   each of their warps says so
//     K, V         each converter warp       consumers    each consumer warp says so
//
// What nobody converts is stored K or V itself: these are two names of one ring then.
#pragma once

#include "forward_wgmma/traits.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_ring.cuh"

namespace jit::forward_wgmma {

/// Whether each lane fills, and reads, a part of what lies beside a tile of keys.
template <class Config>
inline constexpr bool keys_by_lanes =
    KernelTraits<Config>::has_key_words || KernelTraits<Config>::has_key_scales;  // mutate: LanesArrive

/// One side's places in the rings. Each consumer has rings of its own for Q and O: the next Q of one does not
/// wait for the O of those behind it.
template <class Config>
struct Rings {
  using Traits = KernelTraits<Config>;
  TileRing<Config::stages_q, Traits::q_stage_bytes> q;
  TileRing<Config::stages_k, Traits::KTile::bytes, keys_by_lanes<Config>> k;
  TileRing<Config::stages_v, Traits::VTile::bytes> v;
  TileRing<Traits::stages_o, Traits::q_stage_bytes> o;

  /// `smem` is the shared address of the block's memory; Q and O are those of consumer 0.
  __device__ __forceinline__ explicit Rings(unsigned smem)
      : q(smem + Traits::layout.q, smem + Traits::layout.q_full, smem + Traits::layout.q_empty),
        k(smem + Traits::layout.k, smem + Traits::layout.k_full, smem + Traits::layout.k_empty),
        v(smem + Traits::layout.v, smem + Traits::layout.v_full, smem + Traits::layout.v_empty),
        o(smem + Traits::layout.o, smem + Traits::layout.o_full, smem + Traits::layout.o_empty) {}
};

/// The same of keys and values as they are stored.
template <class Config>
struct StoredRings {
  using Traits = KernelTraits<Config>;
  TileRing<Traits::stages_stored_k, Traits::StoredKTile::bytes, keys_by_lanes<Config>> k;
  TileRing<Traits::stages_stored_v, Traits::StoredVTile::bytes> v;

  __device__ __forceinline__ explicit StoredRings(unsigned smem)
      : k(smem + Traits::layout.stored_k, smem + Traits::layout.stored_k_full,
          smem + Traits::layout.stored_k_empty),
        v(smem + Traits::layout.stored_v, smem + Traits::layout.stored_v_full,
          smem + Traits::layout.stored_v_empty) {}
};

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
  init(Traits::layout.stored_k_full, Traits::stages_stored_k, key_arrivals);
  // mutate: KIsEmptyAfterOneConsumer
  init(Traits::layout.stored_k_empty, Traits::stages_stored_k, Traits::key_readers * key_arrivals);
  init(Traits::layout.stored_v_full, Traits::stages_stored_v, 1);
  init(Traits::layout.stored_v_empty, Traits::stages_stored_v,
       Traits::has_converters ? Traits::converter_warps : Traits::consumer_warps);
  if constexpr (Traits::widens) {
    init(Traits::layout.k_full, Config::stages_k, Traits::converter_warps * key_arrivals);
    init(Traits::layout.k_empty, Config::stages_k, Traits::consumer_warps * key_arrivals);
  }
  if constexpr (Traits::has_converters) {
    init(Traits::layout.v_full, Config::stages_v, Traits::converter_warps);
    init(Traits::layout.v_empty, Config::stages_v, Traits::consumer_warps);
  }
  init(Traits::layout.o_full, Traits::consumers * Traits::stages_o, warps);
  init(Traits::layout.o_empty, Traits::consumers * Traits::stages_o, 1);
  init(Traits::layout.work_full, stages_work, 1);
  init(Traits::layout.work_empty, stages_work, Traits::work_readers);
  init(Traits::layout.work_wanted, Traits::has_lengths ? 1 : 0, 1);
  fence_mbarrier_init();  // mutate: NoFenceBehindInit
}

inline constexpr int key_note_partial = 1;  ///< some score of the tile must be dropped
inline constexpr int key_note_end = 2;      ///< the last tile of keys for these queries
inline constexpr int key_note_none = 4;     ///< there is no tile: these queries see no key
/// The last tile for consumer 0; for consumer 1 and 2 twice, four times that.
inline constexpr int key_note_last = 8;
/// Consumer 0 sees only the lower half; for consumer 1 and 2 twice, four times that.
inline constexpr int key_note_lower = 64;
/// There are no more tiles for anybody, as converters are told.
inline constexpr int key_note_no_more = 512;
/// The bits of its scores lie beside it.
inline constexpr int key_note_known = 1024;
/// Consumer 0 sees nothing of this tile, which is one of the first ones in descending order; those of others follow.
inline constexpr int key_note_unseen = 2048;
/// No flags: nobody has read the note.
inline constexpr int key_flags_unknown = -1;
/// The last tile for everyone.
inline constexpr int key_note_all_last = key_note_end | 7 * key_note_last;

/// Shared address of the note of a stage.
template <class Config>
__device__ __forceinline__ unsigned key_note(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.key_notes + stage * static_cast<int>(sizeof(KeyNote));
}
/// The same of stored K.
template <class Config>
__device__ __forceinline__ unsigned stored_note(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.stored_notes + stage * static_cast<int>(sizeof(KeyNote));
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
/// The same of stored K.
template <class Config>
__device__ __forceinline__ unsigned stored_words_of(unsigned smem, int stage) {
  // mutate: WordsOfOneStage
  return smem + KernelTraits<Config>::layout.stored_words + stage * Config::tile_kv * 4;
}

/// Shared address of the bits of a stage's scores.
template <class Config>
__device__ __forceinline__ unsigned known_scores_of(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.known_scores +
         stage * KernelTraits<Config>::known_score_words * 4;
}

/// Shared address of the scales of a stage's keys.
template <class Config>
__device__ __forceinline__ unsigned key_scales_of(unsigned smem, int stage) {
  // mutate: ScalesOfOneStage
  return smem + KernelTraits<Config>::layout.key_scales + stage * Config::tile_kv * 4;
}

__device__ __forceinline__ void store_key_note(unsigned note, int k_begin, int flags) {
  store_shared(note, k_begin);
  store_shared(note + 4, flags);
}
__device__ __forceinline__ int load_key_note_begin(unsigned note) { return load_shared_by_warp(note); }
__device__ __forceinline__ int load_key_note_flags(unsigned note) { return load_shared_by_warp(note + 4); }
/// In lane 0 and under a condition, else `other`.
__device__ __forceinline__ int load_key_note_flags_if(bool condition, unsigned note, int other) {
  return load_shared_if(condition && lane_id() == 0, note + 4, other);
}

/// For KeyConverter (steps/convert_keys.cuh).
template <class Config>
struct ConvertedKeys {
  using Traits = KernelTraits<Config>;
  using Rings = forward_wgmma::Rings<Config>;
  using StoredRings = forward_wgmma::StoredRings<Config>;

  static __device__ __forceinline__ KeyNote stored_note(unsigned smem, int stage) {
    const unsigned note = forward_wgmma::stored_note<Config>(smem, stage);
    return {load_key_note_begin(note), load_key_note_flags(note)};
  }
  static __device__ __forceinline__ void leave_note(unsigned smem, int stored_stage, int stage,
                                                    const KeyNote& note, int thread) {
    if (thread == 0) store_key_note(key_note<Config>(smem, stage), note.k_begin, note.flags);
    if constexpr (Traits::has_key_words) {
      if ((note.flags & key_note_partial) == 0) return;
      const unsigned from = stored_words_of<Config>(smem, stored_stage);
      const unsigned to = key_words_of<Config>(smem, stage);
      for (int i = thread; i < Config::tile_kv; i += Traits::converter_warps * warp_size)
        store_shared(to + i * 4, load_shared(from + i * 4));  // mutate: WordsOfKeysNotPassedOn
    }
  }
  static __device__ __forceinline__ bool has_tile(const KeyNote& note) {
    return (note.flags & key_note_none) == 0;
  }
  static __device__ __forceinline__ bool is_end(const KeyNote& note) {
    return (note.flags & key_note_no_more) != 0;
  }
};

}  // namespace jit::forward_wgmma
