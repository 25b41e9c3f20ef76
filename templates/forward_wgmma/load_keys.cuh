// The warp of a wgmma kernel that loads keys and values by TMA, as far ahead of the multiplications as the pipelines
// have room.
#pragma once

#include "base/descale_params.cuh"
#include "base/params.cuh"
#include "forward_wgmma/key_scales.cuh"
#include "forward_wgmma/key_tile_flags.cuh"
#include "forward_wgmma/mask_bits.cuh"
#include "forward_wgmma/mask_memory.cuh"
#include "forward_wgmma/next_work.cuh"
#include "forward_wgmma/pipelines.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/tile_boxes.cuh"
#include "forward_wgmma/work.cuh"
#include "problem/functor.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/sequences.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::forward_wgmma {

/// The next work tile is asked for when so many tiles of keys are left: early enough for its queries to be
/// there in time, and late, because what a block has taken no other can take.
inline constexpr int asked_ahead = 5;

/// Loads a tile of values once there is room for it. By a whole warp.
template <class Config, class Box>
__device__ __forceinline__ void load_value_tile(const TensorMaps& maps, unsigned smem,
                                                StoredPipelines<Config>& pipelines, const Box& values) {
  using Traits = KernelTraits<Config>;
  pipelines.v.producer_acquire();
  if constexpr (Traits::transposes_v) {
    if (lane_id() == 0) store_shared(value_info<Config>(smem, pipelines.v.stage()), 1);
  }
  load_key_tile<Config, typename Traits::StoredVTile>(pipelines.v.tile(), v_map<Config>(maps),
                                                      pipelines.v.full(), values);
  pipelines.v.advance();
}

/// Tells those who transpose values that there are none any more.
template <class Config>
__device__ __forceinline__ void tell_no_values(unsigned smem, const StoredPipelines<Config>& pipelines) {
  if constexpr (KernelTraits<Config>::transposes_v) {
    pipelines.v.producer_acquire();
    // mutate: NoEndOfValues
    if (lane_id() == 0) store_shared(value_info<Config>(smem, pipelines.v.stage()), 0);
    pipelines.v.producer_commit();
  }
}

/// Each tile of keys is followed by the values of the one before, from one work tile to the next: scores are
/// computed first, or at once after. By its own where values are transposed: that takes about as long as a step of the
/// consumers, and values that waited for room for the next keys came late.
template <class Config>
__device__ __forceinline__ void load_keys(const AttentionParams& params, const DescaleParams& descale,
                                          const TensorMaps& maps, unsigned smem) {
  using Traits = KernelTraits<Config>;
  using Mask = typename Config::Mask;
  using Box = decltype(key_box<Config>(params, Work<Config>(), Sequence(), 0));
  const bool elected = lane_id() == 0;
  StoredPipelines<Config> pipelines(smem);
  Box values{};  // that are still to be loaded
  bool has_values = false;
  const KeyWordRanges<Config> word_ranges(params, maps, smem);
  MaskMemory<Mask> memory;

  const auto load_k = [&](const Mask& mask, const Box& keys, const Work<Config>& own,
                          const Sequence& sequence, int k_begin, int flags) {
    const int seqlen_kv = sequence.length;
    const unsigned* known = nullptr;
    if (Traits::has_mask_bits && (flags & key_info_partial) != 0)
      known = known_words<Config>(context_of<Config>(params, own), own.q_begin, k_begin);
    if (known != nullptr) flags |= key_info_known;  // mutate: AskedThoughKnown
    pipelines.k.producer_acquire();                 // mutate: LoadsKBeforeItIsEmpty
    if constexpr (Traits::has_key_words) {
      const unsigned words = stored_words_of<Config>(smem, pipelines.k.stage());
      for (int i = lane_id(); (flags & key_info_partial) != 0 && i < Config::tile_kv; i += warp_size)
        // mutate: WordsOfTheFirstKeys
        store_shared(words + i * 4, mask.key_word(minimum(k_begin + i, seqlen_kv - 1)));
    }
    if constexpr (Traits::has_key_scales)
      write_key_scales<Config>(params, descale, own, sequence, k_begin,
                               key_scales_of<Config>(smem, pipelines.k.stage()));
    pipelines.k.producer_commit_with_copies();
    if (elected) store_key_info(stored_info<Config>(smem, pipelines.k.stage()), k_begin, flags);
    if constexpr (Traits::has_mask_bits) {
      if (elected && known != nullptr) expect_mask_bits<Config>(pipelines.k.full());
    }
    load_key_tile<Config, typename Traits::StoredKTile>(pipelines.k.tile(), k_map<Config>(maps),
                                                        pipelines.k.full(), keys);
    if constexpr (Traits::has_mask_bits) {
      if (elected && known != nullptr)
        load_mask_bits<Config>(mask_bits_of<Config>(smem, pipelines.k.stage()), known, pipelines.k.full());
    }
    pipelines.k.advance();
  };
  const auto load_v = [&] {
    if (!has_values) return;
    load_value_tile<Config>(maps, smem, pipelines, values);
    has_values = false;
  };
  const auto tell_no_keys = [&](int flags) {
    pipelines.k.producer_acquire();
    if (elected) store_key_info(stored_info<Config>(smem, pipelines.k.stage()), 0, flags);
    pipelines.k.producer_commit();
    pipelines.k.advance();
  };

  NextWork<Config> work(params, maps, smem);
  for (Work<Config> own = work.take(); is_work(own); own = work.take()) {
    const int seqlen_q = query_count<Config>(params, own);
    const Sequence sequence = keys_of<Config>(params, own);
    const int seqlen_kv = sequence.length;
    const Mask mask(context_of<Config>(params, own));
    const RememberedMask<Mask, KeyWordRanges<Config>> remembered{mask, memory, word_ranges, own.batch};
    const ScoreTile queries{own.q_begin, minimum(own.q_begin + Config::tile_q, seqlen_q), 0, 0};
    const KeyRange range = remembered.key_range(queries.q_begin, queries.q_end);
    KvTiles<decltype(remembered), Config::tile_kv, 1, Config::descending> tiles(remembered, queries, range,
                                                                                seqlen_kv);
    bool has_next = false;
    do {
      const int k_begin = tiles.key(0);
      const Box keys = key_box<Config>(params, own, sequence, k_begin);
      const bool has_keys = tiles.has(0);
      if (has_keys) {
        load_k(mask, keys, own, sequence, k_begin,
               key_tile_flags<Config>(remembered, tiles, own.q_begin, seqlen_q, range.end, seqlen_kv));
      } else {
        tell_no_keys(key_info_none);
      }
      const bool asks = !has_next && (!tiles.has(1) || tiles.keys_left() <= asked_ahead * Config::tile_kv);
      if (asks) work.ask();
      if constexpr (Traits::transposes_v) {  // mutate: OwnValuesForgotten
        values = keys;
        has_values = has_keys && !Traits::has_value_producer;
      }
      load_v();  // the answer comes while values wait for room
      if (asks) work.answer();
      has_next |= asks;
      if constexpr (!Traits::transposes_v) {
        values = keys;
        has_values = has_keys && !Traits::has_value_producer;
      }
      tiles.advance();
    } while (tiles.has(0));
  }
  load_v();                                                       // mutate: ForgetsTheLastValues
  if constexpr (Traits::upcasts) tell_no_keys(key_info_no_more);  // mutate: ConvertersOfManyWithoutEnd
  if constexpr (!Traits::has_value_producer) tell_no_values<Config>(smem, pipelines);
  griddepcontrol_launch_dependents();
}

/// Loads values, each tile once its keys have come, where that is another warp's work.
template <class Config>
__device__ __forceinline__ void load_values(const AttentionParams& params, const TensorMaps& maps,
                                            unsigned smem) {
  using Traits = KernelTraits<Config>;
  WorkPipeline<Config> work(params, maps, smem);
  StoredPipelines<Config> pipelines(smem);
  for (Work<Config> own = work.take(); is_work(own); own = work.take()) {
    work.release();
    int flags = 0;
    while ((flags & (key_info_end | key_info_none)) == 0) {
      pipelines.k.consumer_wait();
      const unsigned info = stored_info<Config>(smem, pipelines.k.stage());
      const int k_begin = load_key_info_begin(info);
      flags = load_key_info_flags(info);
      pipelines.k.consumer_release();
      pipelines.k.advance();
      if ((flags & key_info_none) != 0) break;
      const Sequence sequence = keys_of<Config>(params, own);
      load_value_tile<Config>(maps, smem, pipelines, key_box<Config>(params, own, sequence, k_begin));
    }
  }
  tell_no_values<Config>(smem, pipelines);
}

}  // namespace jit::forward_wgmma
