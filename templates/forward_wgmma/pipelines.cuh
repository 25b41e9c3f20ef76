// The pipelines of a wgmma kernel, and the tile infos that go with their tiles.
//
//            filled by                    read by        empty when
//     Q      the query producer, by TMA   its consumer   the storer has stored O, which lies over it; where
//                                                        it does not, each consumer warp says so
//     K, V   the key producer, by TMA     consumers      each consumer warp says so
//            (its lanes, where keys have words or scales)
//     O      each consumer warp           the storer     it has read it, where O has its own place; no pipeline
//                                                        where consumers write O themselves
//
// and where elements of 8 bits are transposed (V of q, k and v of 8 bits) or upcast (K and V under q of 16)
//
//     stored K, V  the key producer, by TMA  converters   each of their warps says so
//     K, V         each converter warp       consumers    each consumer warp says so
//
// What nobody converts is stored K or V itself: these are two names of one pipeline then.
#pragma once

#include "forward_wgmma/traits.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/pipeline.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

/// Whether each lane fills, and reads, a part of what lies beside a tile of keys.
template <class Config>
inline constexpr bool keys_by_lanes =
    KernelTraits<Config>::has_key_words || KernelTraits<Config>::has_key_scales;  // mutate: LanesArrive

/// One side's places in the pipelines. Each consumer has pipelines of its own for Q and O: the next Q of one does not
/// wait for the O of those behind it.
template <class Config>
struct Pipelines {
  using Traits = KernelTraits<Config>;
  Pipeline<Config::stages_q, Traits::q_stage_bytes> q;
  Pipeline<Config::stages_k, Traits::KTile::bytes, keys_by_lanes<Config>> k;
  Pipeline<Config::stages_v, Traits::VTile::bytes> v;
  Pipeline<Traits::stages_o, Traits::q_stage_bytes> o;

  /// `smem` is the shared address of the block's memory; Q and O are those of consumer 0.
  __device__ __forceinline__ explicit Pipelines(unsigned smem)
      : q(smem + Traits::layout.q, smem + Traits::layout.q_full, smem + Traits::layout.q_empty),
        k(smem + Traits::layout.k, smem + Traits::layout.k_full, smem + Traits::layout.k_empty),
        v(smem + Traits::layout.v, smem + Traits::layout.v_full, smem + Traits::layout.v_empty),
        o(smem + Traits::layout.o, smem + Traits::layout.o_full, smem + Traits::layout.o_empty) {}
};

/// The same of keys and values as they are stored.
template <class Config>
struct StoredPipelines {
  using Traits = KernelTraits<Config>;
  Pipeline<Traits::stages_stored_k, Traits::StoredKTile::bytes, keys_by_lanes<Config>> k;
  Pipeline<Traits::stages_stored_v, Traits::StoredVTile::bytes> v;

  __device__ __forceinline__ explicit StoredPipelines(unsigned smem)
      : k(smem + Traits::layout.stored_k, smem + Traits::layout.stored_k_full,
          smem + Traits::layout.stored_k_empty),
        v(smem + Traits::layout.stored_v, smem + Traits::layout.stored_v_full,
          smem + Traits::layout.stored_v_empty) {}
};

template <class Config, class Pipeline>
__device__ __forceinline__ Pipeline q_pipeline_of(const Pipeline& first, int consumer) {
  return first.moved(consumer * KernelTraits<Config>::q_bytes, consumer * Config::stages_q * 8);
}
template <class Config, class Pipeline>
__device__ __forceinline__ Pipeline o_pipeline_of(const Pipeline& first, int consumer) {
  using Traits = KernelTraits<Config>;
  return first.moved(consumer * Traits::o_bytes, consumer * Traits::stages_o * 8);
}

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_pipelines(unsigned smem) {
  using Traits = KernelTraits<Config>;
  const auto init = [&](int barriers, int stages, int arrivals) {
    for (int stage = 0; stage < stages; ++stage) mbarrier_init(smem + barriers + stage * 8, arrivals);
  };
  constexpr int warps = warpgroup_size / warp_size;
  init(Traits::layout.q_full, Traits::consumers * Config::stages_q, 1);
  init(Traits::layout.q_empty, Traits::consumers * Config::stages_q, Traits::o_over_q ? 1 : warps);
  constexpr int key_arrivals = decltype(Pipelines<Config>::k)::warp_arrivals;
  init(Traits::layout.stored_k_full, Traits::stages_stored_k, key_arrivals);
  // mutate: KIsEmptyAfterOneConsumer
  init(Traits::layout.stored_k_empty, Traits::stages_stored_k, Traits::key_readers * key_arrivals);
  init(Traits::layout.stored_v_full, Traits::stages_stored_v, 1);
  init(Traits::layout.stored_v_empty, Traits::stages_stored_v,
       Traits::has_converters ? Traits::converter_warps : Traits::consumer_warps);
  if constexpr (Traits::upcasts) {
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

inline constexpr int key_info_partial = 1;  ///< some score of the tile must be dropped
inline constexpr int key_info_end = 2;      ///< the last tile of keys for these queries
inline constexpr int key_info_none = 4;     ///< there is no tile: these queries see no key
/// The last tile for consumer 0; for consumer 1 and 2 twice, four times that.
inline constexpr int key_info_last = 8;
/// Consumer 0 sees only the lower half; for consumer 1 and 2 twice, four times that.
inline constexpr int key_info_lower = 64;
/// There are no more tiles for anybody, as converters are told.
inline constexpr int key_info_no_more = 512;
/// The bits of its scores lie beside it.
inline constexpr int key_info_known = 1024;
/// Consumer 0 sees nothing of this tile, which is one of the first ones in descending order; those of others follow.
inline constexpr int key_info_unseen = 2048;
/// No flags: nobody has read the tile info.
inline constexpr int key_flags_unknown = -1;
/// The last tile for everyone.
inline constexpr int key_info_all_last = key_info_end | 7 * key_info_last;

/// Shared address of the tile info of a stage.
template <class Config>
__device__ __forceinline__ unsigned key_tile_info(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.key_tile_infos + stage * static_cast<int>(sizeof(KeyTileInfo));
}
/// The same of stored K.
template <class Config>
__device__ __forceinline__ unsigned stored_info(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.stored_infos + stage * static_cast<int>(sizeof(KeyTileInfo));
}
/// Shared address of the tile info of a stage of values that are transposed: whether there are some, or none any more.
template <class Config>
__device__ __forceinline__ unsigned value_info(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.value_infos + stage * 4;
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
__device__ __forceinline__ unsigned mask_bits_of(unsigned smem, int stage) {
  return smem + KernelTraits<Config>::layout.mask_bits + stage * KernelTraits<Config>::mask_bit_words * 4;
}

/// Shared address of the scales of a stage's keys.
template <class Config>
__device__ __forceinline__ unsigned key_scales_of(unsigned smem, int stage) {
  // mutate: ScalesOfOneStage
  return smem + KernelTraits<Config>::layout.key_scales + stage * Config::tile_kv * 4;
}

__device__ __forceinline__ void store_key_info(unsigned info, int k_begin, int flags) {
  store_shared(info, k_begin);
  store_shared(info + 4, flags);
}
__device__ __forceinline__ int load_key_info_begin(unsigned info) { return load_shared_by_warp(info); }
__device__ __forceinline__ int load_key_info_flags(unsigned info) { return load_shared_by_warp(info + 4); }
/// In lane 0 and under a condition, else `other`.
__device__ __forceinline__ int load_key_info_flags_if(bool condition, unsigned info, int other) {
  return load_shared_if(condition && lane_id() == 0, info + 4, other);
}

/// For KeyConverter (steps/convert_keys.cuh).
template <class Config>
struct ConvertedKeys {
  using Traits = KernelTraits<Config>;
  using Pipelines = forward_wgmma::Pipelines<Config>;
  using StoredPipelines = forward_wgmma::StoredPipelines<Config>;

  static __device__ __forceinline__ KeyTileInfo stored_info(unsigned smem, int stage) {
    const unsigned info = forward_wgmma::stored_info<Config>(smem, stage);
    return {load_key_info_begin(info), load_key_info_flags(info)};
  }
  static __device__ __forceinline__ void write_info(unsigned smem, int stored_stage, int stage,
                                                    const KeyTileInfo& info, int thread) {
    if (thread == 0) store_key_info(key_tile_info<Config>(smem, stage), info.k_begin, info.flags);
    if constexpr (Traits::has_key_words) {
      if ((info.flags & key_info_partial) == 0) return;
      const unsigned from = stored_words_of<Config>(smem, stored_stage);
      const unsigned to = key_words_of<Config>(smem, stage);
      for (int i = thread; i < Config::tile_kv; i += Traits::converter_warps * warp_size)
        store_shared(to + i * 4, load_shared(from + i * 4));  // mutate: WordsOfKeysNotPassedOn
    }
  }
  static __device__ __forceinline__ bool has_tile(const KeyTileInfo& info) {
    return (info.flags & key_info_none) == 0;
  }
  static __device__ __forceinline__ bool is_end(const KeyTileInfo& info) {
    return (info.flags & key_info_no_more) != 0;
  }
};

}  // namespace jit::forward_wgmma
