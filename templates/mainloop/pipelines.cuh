// The pipelines of a mainloop whose producers copy by TMA, and the tile infos that accompany their tiles.
//
//            written by                   read by        released by
//     Q      the query producer, by TMA   its consumer   the storer, once it has stored O over Q; each consumer
//                                                        warp, if O has another buffer
//     O      each consumer warp           the storer     the storer, if O has its own buffer; no pipeline if
//                                                        consumers write O to global memory
//     K, V   the key producer, by TMA     consumers      each consumer warp
//            (its lanes, if keys have words or scales)
//
// if converters transpose (V of 8-bit q, k and v) or upcast (8-bit K and V with 16-bit q)
//
//     stored K, V  the key producer, by TMA  converters   each converter warp
//     K, V         each converter warp       consumers    each consumer warp
//
// Without converters stored K and K are one pipeline, as are stored V and V. A kernel family provides Traits: its
// Config, the tiles and stages of K and V and of stored K and V, `keys_by_lanes`, whether it has converters and
// upcasts, the numbers of converter warps, consumer warps and readers of stored keys, and the layout of shared memory.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/pipeline.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// State in the pipelines of Q and O of consumer 0. Each consumer has its own pipelines, so that its next Q does not
/// wait for the O of other consumers.
template <class Traits>
struct QoPipelines {
  Pipeline<Traits::Config::stages_q, Traits::q_stage_bytes> q;
  Pipeline<Traits::stages_o, Traits::q_stage_bytes> o;

  /// `smem` is the shared address of the block's memory.
  JIT_DEVICE explicit QoPipelines(unsigned smem) : q(smem, Traits::layout.q), o(smem, Traits::layout.o) {}
};

template <class Traits, class Pipeline>
JIT_DEVICE Pipeline q_pipeline_of(const Pipeline& first, int consumer) {
  return first.moved(consumer * Traits::q_bytes, consumer * Traits::Config::stages_q * 8);
}
template <class Traits, class Pipeline>
JIT_DEVICE Pipeline o_pipeline_of(const Pipeline& first, int consumer) {
  return first.moved(consumer * Traits::o_bytes, consumer * Traits::stages_o * 8);
}

/// State in the pipelines of K and V.
template <class Traits>
struct KvPipelines {
  Pipeline<Traits::stages_k, Traits::KTile::bytes, Traits::keys_by_lanes> k;
  Pipeline<Traits::stages_v, Traits::VTile::bytes> v;

  /// `smem` is the shared address of the block's memory.
  JIT_DEVICE explicit KvPipelines(unsigned smem) : k(smem, Traits::layout.k), v(smem, Traits::layout.v) {}
};

/// State in the pipelines of stored K and V.
template <class Traits>
struct StoredKvPipelines {
  Pipeline<Traits::stages_stored_k, Traits::StoredKTile::bytes, Traits::keys_by_lanes> k;
  Pipeline<Traits::stages_stored_v, Traits::StoredVTile::bytes> v;

  JIT_DEVICE explicit StoredKvPipelines(unsigned smem)
      : k(smem, Traits::layout.stored_k), v(smem, Traits::layout.stored_v) {}
};

/// State in the pipelines of panels of keys and of parts of values.
template <class Traits>
struct PanelPipelines {
  Pipeline<Traits::stages_k, Traits::KPanel::bytes> k;
  Pipeline<Traits::stages_v, Traits::VPart::bytes> v;

  JIT_DEVICE explicit PanelPipelines(unsigned smem) : k(smem, Traits::layout.k), v(smem, Traits::layout.v) {}
};

/// Initializes the barriers of KvPipelines and StoredKvPipelines. By one thread, before any other use;
/// fence_mbarrier_init and a __syncthreads must follow.
template <class Traits>
JIT_DEVICE void init_kv_pipelines(unsigned smem) {
  constexpr auto layout = Traits::layout;
  constexpr int arrivals = decltype(KvPipelines<Traits>::k)::warp_arrivals;
  // Lanes that copy scales arrive when these have come.
  constexpr int of_scales = converts_scales<typename Traits::Config> ? warp_size : 0;
  init_pipeline(smem, layout.stored_k, arrivals + of_scales,
                Traits::key_readers * arrivals);  // mutate: KIsEmptyAfterOneConsumer
  init_pipeline(smem, layout.stored_v, 1 + of_scales,
                Traits::has_converters ? Traits::converter_warps : Traits::consumer_warps);
  if constexpr (Traits::upcasts) {
    init_pipeline(smem, layout.k, Traits::converter_warps * arrivals, Traits::consumer_warps * arrivals);
  }
  if constexpr (Traits::has_converters)
    init_pipeline(smem, layout.v, Traits::converter_warps, Traits::consumer_warps);
}

/// Shared address of the tile info of a stage of K.
template <class Traits>
JIT_DEVICE unsigned key_tile_info(unsigned smem, int stage) {
  return smem + Traits::layout.key_tile_infos + stage * static_cast<int>(sizeof(KeyTileInfo));
}
/// Shared address of the tile info of a stage of stored K.
template <class Traits>
JIT_DEVICE unsigned stored_info(unsigned smem, int stage) {
  return smem + Traits::layout.stored_infos + stage * static_cast<int>(sizeof(KeyTileInfo));
}
/// Shared address of the tile info of a stage of V that is transposed: 1 if the stage has values, 0 at the end.
template <class Traits>
JIT_DEVICE unsigned value_info(unsigned smem, int stage) {
  return smem + Traits::layout.value_infos + stage * 4;
}
/// Shared address of the words of a stage's keys.
template <class Traits>
JIT_DEVICE unsigned key_words_of(unsigned smem, int stage) {
  return smem + Traits::layout.key_words + stage * Traits::KTile::rows * 4;
}
/// Shared address of the words of a stage of stored K.
template <class Traits>
JIT_DEVICE unsigned stored_words_of(unsigned smem, int stage) {
  // mutate: WordsOfOneStage
  return smem + Traits::layout.stored_words + stage * Traits::KTile::rows * 4;
}
/// Shared address of the mask bits of a stage's scores.
template <class Traits>
JIT_DEVICE unsigned mask_bits_of(unsigned smem, int stage) {
  return smem + Traits::layout.mask_bits + stage * Traits::mask_bit_words * 4;
}
/// Shared address of the scales of a stage's keys.
template <class Traits>
JIT_DEVICE unsigned key_scales_of(unsigned smem, int stage) {
  // mutate: ScalesOfOneStage
  return smem + Traits::layout.key_scales + stage * Traits::Config::tile_kv * 4;
}

/// Shared addresses of the scales of a stage's stored keys, and values, which converters multiply them by.
template <class Traits>
JIT_DEVICE unsigned stored_k_scales_of(unsigned smem, int stage) {
  using Config = typename Traits::Config;
  return smem + Traits::layout.stored_k_scales +
         stage * Config::tile_kv * converted_scale_bytes<Config>(Config::head_dim);
}
template <class Traits>
JIT_DEVICE unsigned stored_v_scales_of(unsigned smem, int stage) {
  using Config = typename Traits::Config;
  return smem + Traits::layout.stored_v_scales +
         stage * Config::tile_kv * converted_scale_bytes<Config>(Config::head_dim_v);
}

/// Shared address of the positions of a stage's listed keys; their members follow (RowPlanner::write_list).
template <class Traits>
JIT_DEVICE unsigned list_words_of(unsigned smem, int stage) {
  // mutate: ListWordsOfOneStage
  return smem + Traits::layout.list_words + stage * Traits::list_words * Traits::Config::tile_kv * 4;
}

/// Writes a tile info. By one thread.
JIT_DEVICE void store_key_info(unsigned info, const KeyTileInfo& value) {
  store_shared(info, value.k_begin);
  store_shared(info + 4, value.flags);
}
/// Reads a tile info, or a part of it. By a whole warp, as the functions below.
JIT_DEVICE KeyTileInfo load_key_info(unsigned info) {
  return {load_shared_by_warp(info), load_shared_by_warp(info + 4)};
}
JIT_DEVICE int load_key_info_begin(unsigned info) { return load_shared_by_warp(info); }
JIT_DEVICE int load_key_info_flags(unsigned info) { return load_shared_by_warp(info + 4); }
/// Reads the flags in lane 0 if `condition`; else `other`.
JIT_DEVICE int load_key_info_flags_if(bool condition, unsigned info, int other) {
  return load_shared_if(condition && lane_id() == 0, info + 4, other);
}

/// State in the pipeline of tile infos, for families that load keys in panels by another pipeline
/// (mainloop/panel_producer.cuh).
template <class Traits>
struct KeyInfoPipeline {
  Pipeline<Traits::stages_infos, 0, Traits::keys_by_lanes> k;

  JIT_DEVICE explicit KeyInfoPipeline(unsigned smem) : k(smem, Traits::layout.infos), smem_(smem) {}

  /// Commits a tile info; `beside(stage)` writes the data that accompanies it. By a whole warp, as `take`.
  JIT_DEVICE void put(const KeyTileInfo& info) {
    put(info, [](int) {});
  }
  template <class Beside>
  JIT_DEVICE void put(const KeyTileInfo& info, Beside beside) {
    k.producer_acquire();
    if (lane_id() == 0) store_key_info(key_tile_info<Traits>(smem_, k.stage()), info);
    beside(k.stage());
    k.producer_commit();
    k.advance();
  }
  /// The tile info of the current stage, until it is released.
  JIT_DEVICE KeyTileInfo info() const { return load_key_info(key_tile_info<Traits>(smem_, k.stage())); }
  /// Shared address of the positions of the tile's listed keys.
  JIT_DEVICE unsigned list_words() const { return list_words_of<Traits>(smem_, k.stage()); }
  JIT_DEVICE void release() {
    k.consumer_release();
    k.advance();
  }
  /// Waits for the next tile info, and releases it.
  JIT_DEVICE KeyTileInfo take() {
    k.consumer_wait();
    const KeyTileInfo told = info();
    release();
    return told;
  }

 private:
  const unsigned smem_;
};

}  // namespace jit
