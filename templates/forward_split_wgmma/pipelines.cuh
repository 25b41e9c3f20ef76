// The pipelines of a block.
//
//            filled by                       read by                       empty when
//     splits  the key producer               query producers, consumers    each lane of theirs says so
//     Q      the query producers, by cp.async  consumers                   each consumer warp says so
//     K, V   the key producer, by TMA        consumers                     each consumer warp says so
//
// and where keys and values have 8 bits
//
//     stored K, V  the key producer, by TMA  converters                    each of their warps says so
//     K, V         each converter warp       consumers                     each consumer warp says so
#pragma once

#include "forward_split_wgmma/traits.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/pipeline.cuh"

namespace jit::forward_split_wgmma {

/// One side's places in the pipelines.
template <class Config>
struct Pipelines {
  using Traits = KernelTraits<Config>;
  Pipeline<Config::stages_q, Traits::consumers * Traits::QTile::bytes> q;
  Pipeline<Config::stages, Traits::KTile::bytes> k;
  Pipeline<Config::stages, Traits::VTile::bytes> v;

  /// `smem` is the shared address of the block's memory.
  __device__ __forceinline__ explicit Pipelines(unsigned smem)
      : q(smem + Traits::layout.q, smem + Traits::layout.q_full, smem + Traits::layout.q_empty),
        k(smem + Traits::layout.k, smem + Traits::layout.k_full, smem + Traits::layout.k_empty),
        v(smem + Traits::layout.v, smem + Traits::layout.v_full, smem + Traits::layout.v_empty) {}
};

/// The same of keys and values as they are stored.
template <class Config>
struct StoredPipelines {
  using Traits = KernelTraits<Config>;
  Pipeline<Config::stages_stored, Traits::StoredKTile::bytes> k;
  Pipeline<Config::stages_stored, Traits::StoredVTile::bytes> v;

  __device__ __forceinline__ explicit StoredPipelines(unsigned smem)
      : k(smem + Traits::layout.stored_k, smem + Traits::layout.stored_k_full,
          smem + Traits::layout.stored_k_empty),
        v(smem + Traits::layout.stored_v, smem + Traits::layout.stored_v_full,
          smem + Traits::layout.stored_v_empty) {}
};

/// What a converter is told behind the last keys.
inline constexpr int key_info_end = 8;

/// Shared address of the tile info of a stage of stored K.
template <class Traits>
__device__ __forceinline__ unsigned stored_info(unsigned smem, int stage) {
  return smem + Traits::layout.stored_infos + stage * static_cast<int>(sizeof(KeyTileInfo));
}

/// For KeyConverter (steps/convert_keys.cuh).
template <class Config>
struct ConvertedKeys {
  using Traits = KernelTraits<Config>;
  using Pipelines = forward_split_wgmma::Pipelines<Config>;
  using StoredPipelines = forward_split_wgmma::StoredPipelines<Config>;

  static __device__ __forceinline__ KeyTileInfo stored_info(unsigned smem, int stage) {
    return load_key_info(forward_split_wgmma::stored_info<Traits>(smem, stage));
  }
  static __device__ __forceinline__ void write_info(unsigned smem, int /*stored_stage*/, int stage,
                                                    const KeyTileInfo& info, int thread) {
    if (thread == 0) store_key_info(key_tile_info<Traits>(smem, stage), info);
  }
  static __device__ __forceinline__ bool has_tile(const KeyTileInfo& info) {
    return (info.flags & key_info_none) == 0;
  }
  static __device__ __forceinline__ bool is_end(const KeyTileInfo& info) {
    return info.flags == key_info_end;
  }
};

/// What the key producer fills.
template <class Config, bool converts = KernelTraits<Config>::converts>
struct LoadedTiles {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using Pipelines = forward_split_wgmma::Pipelines<Config>;
  static __device__ __forceinline__ unsigned info(unsigned smem, int stage) {
    return key_tile_info<Traits>(smem, stage);
  }
};
template <class Config>
struct LoadedTiles<Config, true> {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::StoredKTile;
  using VTile = typename Traits::StoredVTile;
  using Pipelines = StoredPipelines<Config>;
  static __device__ __forceinline__ unsigned info(unsigned smem, int stage) {
    return stored_info<Traits>(smem, stage);
  }
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_pipelines(unsigned smem) {
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
  init_split_pipeline<Traits>(smem);
  fence_mbarrier_init();
}

}  // namespace jit::forward_split_wgmma
