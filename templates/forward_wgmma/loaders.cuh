// The warps of a wgmma kernel that only start copies by TMA: one loads keys and values, one loads queries,
// one stores outputs. Each walks through the work at its own pace, as far ahead of the multiplications as its
// ring has room; the key loader is the one who finds out what comes next.
#pragma once

#include "base/params.cuh"
#include "forward_wgmma/key_note_flags.cuh"
#include "forward_wgmma/mask_memory.cuh"
#include "forward_wgmma/rings.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/work_ring.cuh"
#include "problem/functor.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/sequences.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/griddepcontrol.cuh"
#include "scheduling/work_tiles.cuh"

namespace jit::forward_wgmma {

/// Starts the copies of all panels of a tile whose first row is `first`. By one thread.
template <class Tile>
__device__ __forceinline__ void load_tile(unsigned tile, const TensorMap& map, unsigned full,
                                          const RowPlace& first) {
  mbarrier_arrive_expect_tx(full, Tile::bytes);
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel) {
    cp_async_bulk_tensor_load(tile + panel * Tile::panel_bytes, map, full, panel * Tile::columns, first.seq,
                              first.head, first.batch);
  }
}

/// Starts the copies of all panels of a tile to where its first row is `first`. By one thread.
template <class Tile>
__device__ __forceinline__ void store_tile(unsigned tile, const TensorMap& map, const RowPlace& first) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel) {
    cp_async_bulk_tensor_store(map, tile + panel * Tile::panel_bytes, panel * Tile::columns, first.seq,
                               first.head, first.batch);
  }
}

template <class Config>
__device__ __forceinline__ void load_queries(const AttentionParams& params, const TensorMaps& maps,
                                             unsigned smem) {
  using Traits = KernelTraits<Config>;
  WorkRing<Config> work(params, maps, smem);
  auto ring = Rings<Config>(smem).q;
  const Sequences<Config> sequences(params);
  for (WorkTile tile = work.take(); is_work(tile); tile = work.take()) {
    work.release();
    const auto [batch, head, q_begin] = tile;
#pragma unroll 1
    for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
      const auto own = q_ring_of<Config>(ring, consumer);
      own.wait_empty();
      if (lane_id() == 0) {
        load_tile<typename Traits::QTile>(
            own.tile(), maps.q, own.full(),
            sequences.query_place(batch, head, q_begin + consumer * rows_per_warpgroup));
      }
    }
    ring.advance();
  }
}

/// The next work tile is asked for when so many tiles of keys are left: early enough for its queries to be
/// there in time, and late, because what a block has taken no other can take.
inline constexpr int asked_ahead = 5;

/// Each tile of keys is followed by the values of the one before, from one work tile to the next: scores are
/// computed first, or at once after.
template <class Config>
__device__ __forceinline__ void load_keys(const AttentionParams& params, const TensorMaps& maps,
                                          unsigned smem) {
  using Traits = KernelTraits<Config>;
  using Mask = typename Config::Mask;
  const Sequences<Config> sequences(params);
  const int seqlen_q = Sequences<Config>::longest_q(params),
            seqlen_kv = Sequences<Config>::longest_kv(params);
  const bool elected = lane_id() == 0;
  WorkRing<Config> work(params, maps, smem);
  Rings<Config> rings(smem);
  RowPlace values{0, 0, 0};  // that are still to be loaded
  bool has_values = false;
  const KeyWordRanges<Config> word_ranges(params, maps, smem);
  MaskMemory<Mask> memory;

  const auto load_k = [&](const Mask& mask, const RowPlace& keys, int flags) {
    rings.k.wait_empty();
    if constexpr (Traits::has_key_words) {
      const unsigned words = key_words_of<Config>(smem, rings.k.stage());
      for (int i = lane_id(); (flags & key_note_partial) != 0 && i < Config::tile_kv; i += warp_size)
        store_shared(words + i * 4, mask.key_word(minimum(keys.seq + i, seqlen_kv - 1)));
    }
    rings.k.arrive_full_beside_copies();
    if (elected) {
      store_key_note(key_note<Config>(smem, rings.k.stage()), keys.seq, flags);
      load_tile<typename Traits::KTile>(rings.k.tile(), maps.k, rings.k.full(), keys);
    }
    rings.k.advance();
  };
  const auto load_v = [&] {
    if (!has_values) return;
    rings.v.wait_empty();
    if (elected) load_tile<typename Traits::VTile>(rings.v.tile(), maps.v, rings.v.full(), values);
    rings.v.advance();
    has_values = false;
  };
  const auto note_no_keys = [&] {
    rings.k.wait_empty();
    if (elected) store_key_note(key_note<Config>(smem, rings.k.stage()), 0, key_note_none);
    rings.k.arrive_full();
    rings.k.advance();
  };

  WorkDealer<Config> dealer(params, maps);
  WorkTile next = dealer.tile();
  work.put(next);
  while (is_work(next)) {
    const auto [batch, head, q_begin] = next;
    const BlockContext context = sequences.context(batch, head);
    const Mask mask(context);
    const RememberedMask<Mask, KeyWordRanges<Config>> remembered{mask, memory, word_ranges, batch};
    const ScoreTile queries{q_begin, minimum(q_begin + Config::tile_q, seqlen_q), 0, 0};
    const KeyRange range = remembered.key_range(queries.q_begin, queries.q_end);
    KvTiles<decltype(remembered), Config::tile_kv, 1> tiles(remembered, queries, range, seqlen_kv);
    bool has_next = false;
    do {
      const RowPlace keys = sequences.key_place(batch, sequences.kv_head(head), tiles.key(0));
      const bool has_keys = tiles.has(0);
      if (has_keys) {
        load_k(mask, keys, key_note_flags<Config>(mask, tiles, q_begin, seqlen_q, range.end, seqlen_kv));
      } else {
        note_no_keys();
      }
      const bool asks = !has_next && (!tiles.has(1) || range.end - keys.seq <= asked_ahead * Config::tile_kv);
      if (asks) dealer.ask();
      load_v();  // the answer comes while values wait for room
      if (asks) {
        dealer.answer();
        next = dealer.tile();
        work.put(next);
        has_next = true;
      }
      values = keys;
      has_values = has_keys;
      tiles.advance();
    } while (tiles.has(0));
  }
  load_v();
  if constexpr (Config::dependent_launch) griddepcontrol_launch_dependents();
}

template <class Config>
__device__ __forceinline__ void store_outputs(const AttentionParams& params, const TensorMaps& maps,
                                              unsigned smem) {
  using Traits = KernelTraits<Config>;
  const Sequences<Config> sequences(params);
  WorkRing<Config> work(params, maps, smem);
  Rings<Config> rings(smem);
  for (WorkTile tile = work.take(); is_work(tile); tile = work.take()) {
    work.release();
    const auto [batch, head, q_begin] = tile;
#pragma unroll 1
    for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
      const auto own = o_ring_of<Config>(rings.o, consumer);
      own.wait_full();
      if (lane_id() == 0) {
        store_tile<typename Traits::OTile>(
            own.tile(), maps.o, sequences.query_place(batch, head, q_begin + consumer * rows_per_warpgroup));
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
      }
      if constexpr (Config::separate_o) {
        own.arrive_empty();
      } else {
        q_ring_of<Config>(rings.q, consumer).arrive_empty();
      }
    }
    rings.q.advance();
    rings.o.advance();
  }
}

}  // namespace jit::forward_wgmma
