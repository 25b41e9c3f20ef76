// The mass of each key, Σ P over queries, with TMA and wgmma, for sm_90a: as key_mass/kernel.cuh, whose results differ by
// the order of sums. One warp loads what two consumers multiply.
#pragma once

#include "base/prelude.cuh"
#include "key_mass_wgmma/consumer.cuh"
#include "key_mass_wgmma/traits.cuh"
#include "problem/paged_kv.cuh"
#include "problem/query_tiles.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "score_mainloop/mainloop.cuh"
#include "score_mainloop/roles.cuh"

namespace jit {

/// Loads the block's keys, and queries and LSE of one step after another. By one warp.
template <class Traits>
JIT_DEVICE void load_mass_steps(const KeyMassMaps& maps, const KeyTile<typename Traits::Config>& keys,
                                unsigned smem) {
  using Config = typename Traits::Config;
  using Q = typename Traits::Q;
  const auto sequences = keys.sequences(maps.of_all.attention);
  const Sequence rows_q = sequences.q(keys.batch), rows_kv = sequences.kv(keys.batch);
  const int kv_head = keys.kv_head / Config::heads_per_key;
  typename Traits::KPipeline k(smem, Traits::layout.k);
  constexpr BoxesBy by = PagedKv<Config>::has_pages ? BoxesBy::lanes : BoxesBy::one_lane;
  load_stage<typename Traits::K, mass_block_keys, mass_key_box(Config::page_size),
             by>(k, maps.k, [&](int row) -> RowPlace {
    const int key = keys.k_begin + row;
    if constexpr (PagedKv<Config>::has_pages) {
      const PagedKv<Config> pages(maps.of_all.attention);
      // mutate: MassOfTheFirstPage
      return pages.place_in(key < rows_kv.length ? pages.page(keys.batch, key) : -1, kv_head, key);
    } else {
      return {rows_kv.begin + key, kv_head, Config::sequences_kv == SequenceKind::varlen ? 0 : keys.batch};
    }
  });
  typename Traits::QPipeline q(smem, Traits::layout.q);
  const ScoreTile own{0, 0, keys.k_begin, minimum(keys.k_begin + Config::tile_kv, rows_kv.length)};
  for (QueryTiles<Config, 0> tiles(sequences, keys.batch, keys.kv_head, own); tiles.has(0); tiles.advance()) {
    const MassStep step{tiles.head(0), tiles.query(0), tiles.is_partial()};
    load_stage<Q>(
        q, maps.q,
        [&](int) {
          return RowPlace{rows_q.begin + step.q_begin, step.head,
                          Config::sequences_q == SequenceKind::varlen ? 0 : keys.batch};
        },
        [&] {
          const DenseRows<float> lse = sequences.lse_rows(keys.batch, step.head);
          for (int i = lane_id(); i < mass_step_queries; i += warp_size) {
            const int query = step.q_begin + i;
            cp_async_zfill<4>(Traits::lse(smem, q.stage()) + static_cast<unsigned>(i * 4), lse.at(query),
                              query < rows_q.length);
          }
          cp_async_mbarrier_arrive(q.full());  // mutate: MassLseReadEarly
          if (lane_id() == 0) {
            const unsigned place = Traits::step(smem, q.stage());
            store_shared(place, step.head);
            store_shared(place + 4, step.q_begin);
            store_shared(place + 8, step.partial);
          }
        });
  }
  q.producer_acquire();
  if (lane_id() == 0) {
    store_shared(Traits::step(smem, q.stage()), -1);  // mutate: MassStepsWithoutEnd
    mbarrier_arrive(q.full());
  }
  mbarrier_arrive(q.full());
}

template <class Config>
JIT_DEVICE void sum_key_mass_by_wgmma(const KeyMassMaps& maps) {
  using Traits = KeyMassWgmmaTraits<Config>;
  const unsigned smem = begin_score_pass<Traits>();
  const KeyTile<Config> keys = keys_of_block<Config>(maps.of_all.attention, static_cast<int>(blockIdx.x));
  if (!keys.is_there()) return write_no_masses<Config>(maps.of_all, keys);
  run_score_pass<Traits>(
      [&] { load_mass_steps<Traits>(maps, keys, smem); },
      [&](int consumer) { KeyMassConsumer<Traits>(maps.of_all, keys, smem, consumer).run(); });
}

}  // namespace jit
