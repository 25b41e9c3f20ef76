// The mass of each key, Σ P over queries, with TMA and wgmma, for sm_90a: as key_mass/kernel.cuh, whose results differ by
// the order of sums. One warp loads what two consumers multiply.
#pragma once

#include "base/prelude.cuh"
#include "key_mass_wgmma/consumer.cuh"
#include "key_mass_wgmma/traits.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/paged_kv.cuh"
#include "problem/query_tiles.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/box_copy.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Loads the block's keys: a box for each consumer, or for each piece of a page, which a lane looks up.
template <class Traits>
JIT_DEVICE void load_mass_keys(const KeyMassMaps& maps, const KeyTile<typename Traits::Config>& keys,
                               const Sequence& rows, const typename Traits::KPipeline& k) {
  using Config = typename Traits::Config;
  using K = typename Traits::K;
  const int lane = lane_id(), kv_head = keys.kv_head / Config::heads_per_key;
  if constexpr (PagedKv<Config>::has_pages) {
    if (lane == 0) mbarrier_arrive_expect_tx(k.full(), mass_consumers * K::bytes);
    __syncwarp();
    const PagedKv<Config> pages(maps.of_all.attention);
    const int row = lane * Traits::key_box, key = keys.k_begin + row;
    if (row < mass_block_keys) {
      const int page = key < rows.length ? pages.page(keys.batch, key) : -1;
      const RowPlace place = pages.place_in(page, kv_head, key);
      const unsigned target = k.tile() + static_cast<unsigned>(row / mass_consumer_keys * K::bytes +
                                                               row % mass_consumer_keys * K::row_bytes);
      load_tile<K>(target, maps.k, k.full(), place);  // mutate: MassOfTheFirstPage
    }
  } else if (lane == 0) {
    mbarrier_arrive_expect_tx(k.full(), mass_consumers * K::bytes);
    for (int consumer = 0; consumer < mass_consumers; ++consumer) {
      const RowPlace place{rows.begin + keys.k_begin + consumer * mass_consumer_keys, kv_head,
                           Config::sequences_kv == SequenceKind::varlen ? 0 : keys.batch};
      load_tile<K>(k.tile() + consumer * K::bytes, maps.k, k.full(), place);
    }
  }
  __syncwarp();
}

/// Loads the block's keys, and queries and LSE of one step after another. By one warp.
template <class Traits>
JIT_DEVICE void load_mass_steps(const KeyMassMaps& maps, const KeyTile<typename Traits::Config>& keys,
                                unsigned smem) {
  using Config = typename Traits::Config;
  using Q = typename Traits::Q;
  const auto sequences = keys.sequences(maps.of_all.attention);
  const Sequence rows_q = sequences.q(keys.batch), rows_kv = sequences.kv(keys.batch);
  const int lane = lane_id();
  typename Traits::KPipeline k(smem, Traits::layout.k);
  load_mass_keys<Traits>(maps, keys, rows_kv, k);
  typename Traits::QPipeline q(smem, Traits::layout.q);
  const ScoreTile own{0, 0, keys.k_begin, minimum(keys.k_begin + Config::tile_kv, rows_kv.length)};
  for (QueryTiles<Config, 0> tiles(sequences, keys.batch, keys.kv_head, own); tiles.has(0); tiles.advance()) {
    const MassStep step{tiles.head(0), tiles.query(0), tiles.is_partial()};
    q.producer_acquire();  // mutate: MassQueriesLoadedEarly
    const DenseRows<float> lse = sequences.lse_rows(keys.batch, step.head);
    for (int i = lane; i < mass_step_queries; i += warp_size) {
      const int query = step.q_begin + i;
      cp_async_zfill<4>(Traits::lse(smem, q.stage()) + static_cast<unsigned>(i * 4), lse.at(query),
                        query < rows_q.length);
    }
    if (lane == 0) {
      const unsigned place = Traits::step(smem, q.stage());
      store_shared(place, step.head);
      store_shared(place + 4, step.q_begin);
      store_shared(place + 8, step.partial);
      mbarrier_arrive_expect_tx(q.full(), Q::bytes);
      load_tile<Q>(q.tile(), maps.q, q.full(),
                   RowPlace{rows_q.begin + step.q_begin, step.head,
                            Config::sequences_q == SequenceKind::varlen ? 0 : keys.batch});
    }
    cp_async_mbarrier_arrive(q.full());  // mutate: MassLseReadEarly
    __syncwarp();
    q.advance();
  }
  q.producer_acquire();
  if (lane == 0) {
    store_shared(Traits::step(smem, q.stage()), -1);  // mutate: MassStepsWithoutEnd
    mbarrier_arrive(q.full());
  }
  mbarrier_arrive(q.full());
}

template <class Config>
JIT_DEVICE void sum_key_mass_by_wgmma(const KeyMassMaps& maps) {
  using Traits = KeyMassWgmmaTraits<Config>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) {
    init_pipeline(smem, Traits::layout.k, 1, 1);
    init_pipeline(smem, Traits::layout.q, 1 + warp_size, mass_consumers * warpgroup_size / warp_size);
    fence_mbarrier_init();  // mutate: MassNoFenceBehindInit
  }
  wait_for_grids_before();  // mutate: MassByWgmmaOfLseThatIsNotThere
  __syncthreads();          // mutate: MassNoBarrierBehindInit
  const KeyTile<Config> keys = keys_of_block<Config>(maps.of_all.attention, static_cast<int>(blockIdx.x));
  if (!keys.is_there()) return write_no_masses<Config>(maps.of_all, keys);
  if (threadIdx.x < warpgroup_size) {
    setmaxnreg_dec<40>();
    if (warp_id() == 0) load_mass_steps<Traits>(maps, keys, smem);
  } else {
    setmaxnreg_inc<232>();
    KeyMassConsumer<Traits>(maps.of_all, keys, smem, warp_id() / 4 - 1).run();
  }
  let_next_grid_start();
}

}  // namespace jit
