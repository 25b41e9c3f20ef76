// The rings of a block.
//
//            filled by                       read by                       empty when
//     parts  the key loader                  query loaders, consumers      each lane of theirs says so
//     Q      the query loaders, by cp.async  consumers                     each consumer warp says so
//     K, V   the key loader, by TMA          consumers                     each consumer warp says so
//
// and where keys and values have 8 bits
//
//     stored K, V  the key loader, by TMA    converters                    each of their warps says so
//     K, V         each converter warp       consumers                     each consumer warp says so
#pragma once

#include "forward_split_wgmma/traits.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/part_ring.cuh"
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

/// The same of keys and values as they are stored.
template <class Config>
struct StoredRings {
  using Traits = KernelTraits<Config>;
  TileRing<Config::stages_stored, Traits::StoredKTile::bytes> k;
  TileRing<Config::stages_stored, Traits::StoredVTile::bytes> v;

  __device__ __forceinline__ explicit StoredRings(unsigned smem)
      : k(smem + Traits::layout.stored_k, smem + Traits::layout.stored_k_full,
          smem + Traits::layout.stored_k_empty),
        v(smem + Traits::layout.stored_v, smem + Traits::layout.stored_v_full,
          smem + Traits::layout.stored_v_empty) {}
};

/// What a converter is told behind the last keys.
inline constexpr int key_note_end = 8;

/// Shared address of the note of a stage of stored K.
template <class Traits>
__device__ __forceinline__ unsigned stored_note(unsigned smem, int stage) {
  return smem + Traits::layout.stored_notes + stage * static_cast<int>(sizeof(KeyNote));
}

/// For KeyConverter (steps/convert_keys.cuh).
template <class Config>
struct ConvertedKeys {
  using Traits = KernelTraits<Config>;
  using Rings = forward_split_wgmma::Rings<Config>;
  using StoredRings = forward_split_wgmma::StoredRings<Config>;

  static __device__ __forceinline__ KeyNote stored_note(unsigned smem, int stage) {
    return load_key_note(forward_split_wgmma::stored_note<Traits>(smem, stage));
  }
  static __device__ __forceinline__ void leave_note(unsigned smem, int /*stored_stage*/, int stage,
                                                    const KeyNote& note, int thread) {
    if (thread == 0) store_key_note(key_note<Traits>(smem, stage), note);
  }
  static __device__ __forceinline__ bool has_tile(const KeyNote& note) {
    return (note.flags & key_note_none) == 0;
  }
  static __device__ __forceinline__ bool is_end(const KeyNote& note) { return note.flags == key_note_end; }
};

/// What the key loader fills.
template <class Config, bool converts = KernelTraits<Config>::converts>
struct LoadedTiles {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using Rings = forward_split_wgmma::Rings<Config>;
  static __device__ __forceinline__ unsigned note(unsigned smem, int stage) {
    return key_note<Traits>(smem, stage);
  }
};
template <class Config>
struct LoadedTiles<Config, true> {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::StoredKTile;
  using VTile = typename Traits::StoredVTile;
  using Rings = StoredRings<Config>;
  static __device__ __forceinline__ unsigned note(unsigned smem, int stage) {
    return stored_note<Traits>(smem, stage);
  }
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_rings(unsigned smem) {
  using Traits = KernelTraits<Config>;
  constexpr int fillers = Traits::converts ? Traits::converter_warps : 1;
  init_barriers(smem + Traits::layout.q_full, Config::stages_q, Traits::query_warps);
  init_barriers(smem + Traits::layout.q_empty, Config::stages_q, Traits::consumer_warps);
  init_barriers(smem + Traits::layout.k_full, Config::stages, fillers);
  init_barriers(smem + Traits::layout.k_empty, Config::stages, Traits::consumer_warps);
  init_barriers(smem + Traits::layout.v_full, Config::stages, fillers);
  init_barriers(smem + Traits::layout.v_empty, Config::stages, Traits::consumer_warps);
  if constexpr (Traits::converts) {
    init_barriers(smem + Traits::layout.stored_k_full, Config::stages_stored, 1);
    init_barriers(smem + Traits::layout.stored_k_empty, Config::stages_stored, Traits::converter_warps);
    init_barriers(smem + Traits::layout.stored_v_full, Config::stages_stored, 1);
    init_barriers(smem + Traits::layout.stored_v_empty, Config::stages_stored, Traits::converter_warps);
  }
  init_part_ring<Traits>(smem);
  fence_mbarrier_init();
}

}  // namespace jit::forward_split_wgmma
