// The warps that load keys and values of all work tiles of a block, by TMA.
#pragma once

#include "base/params.cuh"
#include "mainloop/beside_keys.cuh"
#include "mainloop/key_order.cuh"
#include "mainloop/key_word_ranges.cuh"
#include "mainloop/mask_memory.cuh"
#include "mainloop/panel_producer.cuh"
#include "mainloop/scaled_kv_producer.cuh"
#include "mainloop/tensor_maps.cuh"
#include "problem/functor.cuh"
#include "problem/kv_tiles.cuh"
#include "ptx/griddepcontrol.cuh"
#include "scheduling/work_pipeline.cuh"

namespace jit {

/// Tiles of keys that are left when the next work tile is requested: early enough to load its queries in time, and
/// late, because another block can no longer take it.
inline constexpr int asked_ahead = 5;

template <class Traits>
using KeyBox = decltype(key_box<Traits>(AttentionParams(), typename Traits::Work(), 0));

/// The producer of keys and values of whole tiles, or of panels where Traits say so.
template <class Traits>
using ProducerOf =
    typename ChosenType<Traits::loads_panels, PanelProducer<Traits, TensorMaps, KeyBox<Traits>>,
                        TileProducer<Traits, TensorMaps, KeyBox<Traits>>>::type;

/// The key producer's loop over all work tiles. Loads K(n), then V(n−1), also across work tiles, since consumers
/// compute S(n) before P V(n−1). If values are transposed, K(n) is followed by V(n): transposing takes about as long as
/// a step of the consumers, and values that waited for a free stage of K came late.
template <class Traits>
JIT_DEVICE void load_keys(const AttentionParams& params, const TensorMaps& maps, unsigned smem) {
  using Config = typename Traits::Config;
  using Mask = typename Config::Mask;
  using Work = typename Traits::Work;
  using Box = KeyBox<Traits>;
  ProducerOf<Traits> producer(params, maps, smem);
  const KeyWordRanges<Traits> word_ranges(params, maps.schedule, smem);
  MaskMemory<Mask> memory;
  KeyOrder<Config> order(params);
  NextWork<Traits> work(params, maps.schedule, smem);
  for (Work own = work.take(); is_work(own); own = work.take()) {
    const SeqlenInfo seqlens = seqlens_of<Config>(params, own);
    const Mask mask(context_of<Config>(params, own));
    const CachedMask<Mask, KeyWordRanges<Traits>> remembered{mask, memory, word_ranges, own.batch};
    const ScoreTile queries{own.q_begin, minimum(own.q_begin + Config::tile_q, seqlens.q.length), 0, 0};
    const KeyRange range = remembered.key_range(queries.q_begin, queries.q_end);
    typename KeyOrder<Config>::template Tiles<decltype(remembered)> tiles(order, remembered, queries, range,
                                                                          seqlens.kv.length);
    bool has_next = false;
    do {
      Box keys = key_box<Traits>(params, own, tiles.key(0));
      const bool has_keys = tiles.has(0);
      if (has_keys) {
        KeyTileInfo info{tiles.key(0),
                         key_tile_flags<Traits>(remembered, tiles, own.q_begin, range.end, seqlens)};
        KeyTileExtras<Traits> beside{params, mask, own, smem, info};
        beside.find_bits();
        order.load(tiles, producer, keys, info, beside);
      } else {
        producer.tell(key_info_none);
      }
      const bool asks = !has_next && (!tiles.has(1) || tiles.keys_left() <= asked_ahead * Config::tile_kv);
      if (asks) work.ask();
      constexpr bool loads_values = !Traits::has_value_producer;
      if constexpr (Traits::transposes_v) {  // mutate: OwnValuesForgotten
        producer.put_values(keys, has_keys && loads_values);
      }
      producer.load_values();  // the request is answered while values wait for a free stage
      if (asks) work.answer();
      has_next |= asks;
      if constexpr (!Traits::transposes_v) {
        producer.put_values(keys, has_keys && loads_values);
      }
      tiles.advance();
    } while (tiles.has(0));
  }
  producer.load_values();  // mutate: ForgetsTheLastValues
  order.finish();
  if constexpr (Traits::upcasts) producer.tell(key_info_no_more);  // mutate: ConvertersOfManyWithoutEnd
  if constexpr (!Traits::has_value_producer) producer.commit_end_of_values();
  griddepcontrol_launch_dependents();
}

/// The value producer's loop, if values have their own producer: loads V of each tile of keys once K has arrived.
template <class Traits>
JIT_DEVICE void load_values(const AttentionParams& params, const TensorMaps& maps, unsigned smem) {
  using Work = typename Traits::Work;
  WorkPipeline<Traits> work(params, smem);
  ProducerOf<Traits> producer(params, maps, smem);
  for (Work own = work.take(); is_work(own); own = work.take()) {
    work.release();
    for (KeyTileInfo info{0, 0}; (info.flags & (key_info_end | key_info_none)) == 0;) {
      info = producer.take_info();
      if ((info.flags & key_info_none) == 0) producer.load_values(key_box<Traits>(params, own, info.k_begin));
    }
  }
  producer.commit_end_of_values();
}

}  // namespace jit
