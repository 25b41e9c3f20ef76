// The pipelines of a mainloop whose producers copy by TMA, and the tile infos that accompany their tiles.
//
//            filled by                    read by        empty when
//     Q      the query producer, by TMA   its consumer   the storer has stored O, which lies over it; where
//                                                        it does not, each consumer warp says so
//     O      each consumer warp           the storer     it has read it, where O has its own place; no pipeline
//                                                        where consumers write O themselves
//     K, V   the key producer, by TMA     consumers      each consumer warp says so
//            (its lanes, where keys have words or scales)
//
// and where elements of 8 bits are transposed (V of q, k and v of 8 bits) or upcast (K and V under q of 16)
//
//     stored K, V  the key producer, by TMA  converters   each of their warps says so
//     K, V         each converter warp       consumers    each consumer warp says so
//
// Without converters K is stored K, and V stored V: both names mean one pipeline. A kernel family provides Traits: its Config, the tiles and stages of K and V and of stored K and V, `keys_by_lanes`, whether it has
// converters and upcasts, how many warps convert, consume, and read stored keys, and the layout of shared memory.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/pipeline.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// One side's places in the pipelines of queries and outputs, of consumer 0. Each consumer has pipelines of its own: the
/// next Q of one does not wait for the O of those behind it.
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

/// One side's places in the pipelines of keys and values.
template <class Traits>
struct KvPipelines {
  Pipeline<Traits::stages_k, Traits::KTile::bytes, Traits::keys_by_lanes> k;
  Pipeline<Traits::stages_v, Traits::VTile::bytes> v;

  /// `smem` is the shared address of the block's memory.
  JIT_DEVICE explicit KvPipelines(unsigned smem) : k(smem, Traits::layout.k), v(smem, Traits::layout.v) {}
};

/// Places in the pipelines of keys and values as they are stored.
template <class Traits>
struct StoredKvPipelines {
  Pipeline<Traits::stages_stored_k, Traits::StoredKTile::bytes, Traits::keys_by_lanes> k;
  Pipeline<Traits::stages_stored_v, Traits::StoredVTile::bytes> v;

  JIT_DEVICE explicit StoredKvPipelines(unsigned smem)
      : k(smem, Traits::layout.stored_k), v(smem, Traits::layout.stored_v) {}
};

/// Places in those of its panels of keys, and of the parts of its values.
template <class Traits>
struct PanelPipelines {
  Pipeline<Traits::stages_k, Traits::KPanel::bytes> k;
  Pipeline<Traits::stages_v, Traits::VPart::bytes> v;

  JIT_DEVICE explicit PanelPipelines(unsigned smem) : k(smem, Traits::layout.k), v(smem, Traits::layout.v) {}
};

/// Makes the barriers of KvPipelines and StoredKvPipelines. By one thread, before any other use; then fence_mbarrier_init and a __syncthreads.
template <class Traits>
JIT_DEVICE void init_kv_pipelines(unsigned smem) {
  constexpr auto layout = Traits::layout;
  constexpr int arrivals = decltype(KvPipelines<Traits>::k)::warp_arrivals;
  init_pipeline(smem, layout.stored_k, arrivals,
                Traits::key_readers * arrivals);  // mutate: KIsEmptyAfterOneConsumer
  init_pipeline(smem, layout.stored_v, 1,
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
/// Stored K has its own.
template <class Traits>
JIT_DEVICE unsigned stored_info(unsigned smem, int stage) {
  return smem + Traits::layout.stored_infos + stage * static_cast<int>(sizeof(KeyTileInfo));
}
/// Shared address of the tile info of a stage of values that are transposed: whether there are some, or none any more.
template <class Traits>
JIT_DEVICE unsigned value_info(unsigned smem, int stage) {
  return smem + Traits::layout.value_infos + stage * 4;
}
/// Shared address of the words of a stage's keys.
template <class Traits>
JIT_DEVICE unsigned key_words_of(unsigned smem, int stage) {
  return smem + Traits::layout.key_words + stage * Traits::KTile::rows * 4;
}
/// Stored K has its own.
template <class Traits>
JIT_DEVICE unsigned stored_words_of(unsigned smem, int stage) {
  // mutate: WordsOfOneStage
  return smem + Traits::layout.stored_words + stage * Traits::KTile::rows * 4;
}
/// Shared address of the bits of a stage's scores.
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

/// Shared address of where the keys of a stage's tile stand that are a list's, behind which are their members.
template <class Traits>
JIT_DEVICE unsigned list_words_of(unsigned smem, int stage) {
  // mutate: ListWordsOfOneStage
  return smem + Traits::layout.list_words + stage * Traits::list_words * Traits::Config::tile_kv * 4;
}

/// By one thread.
JIT_DEVICE void store_key_info(unsigned info, const KeyTileInfo& value) {
  store_shared(info, value.k_begin);
  store_shared(info + 4, value.flags);
}
/// By a whole warp, as those below.
JIT_DEVICE KeyTileInfo load_key_info(unsigned info) {
  return {load_shared_by_warp(info), load_shared_by_warp(info + 4)};
}
JIT_DEVICE int load_key_info_begin(unsigned info) { return load_shared_by_warp(info); }
JIT_DEVICE int load_key_info_flags(unsigned info) { return load_shared_by_warp(info + 4); }
/// In lane 0 and under a condition, else `other`.
JIT_DEVICE int load_key_info_flags_if(bool condition, unsigned info, int other) {
  return load_shared_if(condition && lane_id() == 0, info + 4, other);
}

/// One side's state in the pipeline of tile infos, for families whose keys have another pipeline, in panels
/// (mainloop/panel_producer.cuh).
template <class Traits>
struct KeyInfoPipeline {
  Pipeline<Traits::stages_infos, 0, Traits::keys_by_lanes> k;

  JIT_DEVICE explicit KeyInfoPipeline(unsigned smem) : k(smem, Traits::layout.infos), smem_(smem) {}

  /// Tells of a tile. By a whole warp, as is `take`. `beside(stage)` writes what accompanies it.
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
  /// The tile info that was taken, until it is released.
  JIT_DEVICE KeyTileInfo info() const { return load_key_info(key_tile_info<Traits>(smem_, k.stage())); }
  /// Shared address of what was told of the tile's keys, where they are a list's.
  JIT_DEVICE unsigned list_words() const { return list_words_of<Traits>(smem_, k.stage()); }
  JIT_DEVICE void release() {
    k.consumer_release();
    k.advance();
  }
  /// Waits for what is told next, and is done with it.
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
