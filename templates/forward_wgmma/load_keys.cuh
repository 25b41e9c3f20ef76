// The warp of a wgmma kernel that loads keys and values by TMA, as far ahead of the multiplications as the rings have
// room.
#pragma once

#include "base/descale_params.cuh"
#include "base/params.cuh"
#include "forward_wgmma/key_note_flags.cuh"
#include "forward_wgmma/key_scales.cuh"
#include "forward_wgmma/known_scores.cuh"
#include "forward_wgmma/mask_memory.cuh"
#include "forward_wgmma/next_work.cuh"
#include "forward_wgmma/rings.cuh"
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
                                                StoredRings<Config>& rings, const Box& values) {
  using Traits = KernelTraits<Config>;
  rings.v.wait_empty();
  if constexpr (Traits::transposes_v) {
    if (lane_id() == 0) store_shared(value_note<Config>(smem, rings.v.stage()), 1);
  }
  load_key_tile<Config, typename Traits::StoredVTile>(rings.v.tile(), v_map<Config>(maps), rings.v.full(),
                                                      values);
  rings.v.advance();
}

/// Tells those who turn values over that there are none any more.
template <class Config>
__device__ __forceinline__ void note_no_values(unsigned smem, const StoredRings<Config>& rings) {
  if constexpr (KernelTraits<Config>::transposes_v) {
    rings.v.wait_empty();
    if (lane_id() == 0) store_shared(value_note<Config>(smem, rings.v.stage()), 0);  // mutate: NoEndOfValues
    rings.v.arrive_full();
  }
}

/// Each tile of keys is followed by the values of the one before, from one work tile to the next: scores are
/// computed first, or at once after. By its own where values are turned over: that takes about as long as a step of the
/// consumers, and values that waited for room for the next keys came late.
template <class Config>
__device__ __forceinline__ void load_keys(const AttentionParams& params, const DescaleParams& descale,
                                          const TensorMaps& maps, unsigned smem) {
  using Traits = KernelTraits<Config>;
  using Mask = typename Config::Mask;
  using Box = decltype(key_box<Config>(params, Work<Config>(), Sequence(), 0));
  const bool elected = lane_id() == 0;
  StoredRings<Config> rings(smem);
  Box values{};  // that are still to be loaded
  bool has_values = false;
  const KeyWordRanges<Config> word_ranges(params, maps, smem);
  MaskMemory<Mask> memory;

  const auto load_k = [&](const Mask& mask, const Box& keys, const Work<Config>& own,
                          const Sequence& sequence, int k_begin, int flags) {
    const int seqlen_kv = sequence.length;
    const unsigned* known = nullptr;
    if (Traits::has_known_scores && (flags & key_note_partial) != 0)
      known = known_words<Config>(context_of<Config>(params, own), own.q_begin, k_begin);
    if (known != nullptr) flags |= key_note_known;  // mutate: AskedThoughKnown
    rings.k.wait_empty();                           // mutate: LoadsKBeforeItIsEmpty
    if constexpr (Traits::has_key_words) {
      const unsigned words = stored_words_of<Config>(smem, rings.k.stage());
      for (int i = lane_id(); (flags & key_note_partial) != 0 && i < Config::tile_kv; i += warp_size)
        // mutate: WordsOfTheFirstKeys
        store_shared(words + i * 4, mask.key_word(minimum(k_begin + i, seqlen_kv - 1)));
    }
    if constexpr (Traits::has_key_scales)
      leave_key_scales<Config>(params, descale, own, sequence, k_begin,
                               key_scales_of<Config>(smem, rings.k.stage()));
    rings.k.arrive_full_beside_copies();
    if (elected) store_key_note(stored_note<Config>(smem, rings.k.stage()), k_begin, flags);
    if constexpr (Traits::has_known_scores) {
      if (elected && known != nullptr) expect_known_scores<Config>(rings.k.full());
    }
    load_key_tile<Config, typename Traits::StoredKTile>(rings.k.tile(), k_map<Config>(maps), rings.k.full(),
                                                        keys);
    if constexpr (Traits::has_known_scores) {
      if (elected && known != nullptr)
        load_known_scores<Config>(known_scores_of<Config>(smem, rings.k.stage()), known, rings.k.full());
    }
    rings.k.advance();
  };
  const auto load_v = [&] {
    if (!has_values) return;
    load_value_tile<Config>(maps, smem, rings, values);
    has_values = false;
  };
  const auto note_no_keys = [&](int flags) {
    rings.k.wait_empty();
    if (elected) store_key_note(stored_note<Config>(smem, rings.k.stage()), 0, flags);
    rings.k.arrive_full();
    rings.k.advance();
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
               key_note_flags<Config>(remembered, tiles, own.q_begin, seqlen_q, range.end, seqlen_kv));
      } else {
        note_no_keys(key_note_none);
      }
      const bool asks = !has_next && (!tiles.has(1) || tiles.keys_left() <= asked_ahead * Config::tile_kv);
      if (asks) work.ask();
      if constexpr (Traits::transposes_v) {  // mutate: OwnValuesForgotten
        values = keys;
        has_values = has_keys && !Traits::has_value_loader;
      }
      load_v();  // the answer comes while values wait for room
      if (asks) work.answer();
      has_next |= asks;
      if constexpr (!Traits::transposes_v) {
        values = keys;
        has_values = has_keys && !Traits::has_value_loader;
      }
      tiles.advance();
    } while (tiles.has(0));
  }
  load_v();                                                      // mutate: ForgetsTheLastValues
  if constexpr (Traits::widens) note_no_keys(key_note_no_more);  // mutate: ConvertersOfManyWithoutEnd
  if constexpr (!Traits::has_value_loader) note_no_values<Config>(smem, rings);
  griddepcontrol_launch_dependents();
}

/// Loads values, each tile once its keys have come, where that is another warp's work.
template <class Config>
__device__ __forceinline__ void load_values(const AttentionParams& params, const TensorMaps& maps,
                                            unsigned smem) {
  using Traits = KernelTraits<Config>;
  WorkRing<Config> work(params, maps, smem);
  StoredRings<Config> rings(smem);
  for (Work<Config> own = work.take(); is_work(own); own = work.take()) {
    work.release();
    int flags = 0;
    while ((flags & (key_note_end | key_note_none)) == 0) {
      rings.k.wait_full();
      const unsigned note = stored_note<Config>(smem, rings.k.stage());
      const int k_begin = load_key_note_begin(note);
      flags = load_key_note_flags(note);
      rings.k.arrive_empty();
      rings.k.advance();
      if ((flags & key_note_none) != 0) break;
      const Sequence sequence = keys_of<Config>(params, own);
      load_value_tile<Config>(maps, smem, rings, key_box<Config>(params, own, sequence, k_begin));
    }
  }
  note_no_values<Config>(smem, rings);
}

}  // namespace jit::forward_wgmma
