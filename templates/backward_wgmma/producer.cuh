// The copies of a block of a pair, which also multiplies some of the other block's keys (pair.cuh).
#pragma once

#include "backward/tile_loads.cuh"
#include "backward/tile_producer.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"

namespace jit::backward_wgmma {

template <class Config, class Maps>
class PairLoads : public TileLoads<Pipelines<Config>, Maps> {
  using Base = TileLoads<Pipelines<Config>, Maps>;
  using typename Base::KTile;
  using typename Base::Traits;
  using typename Base::VTile;

 public:
  using Base::Base;

  JIT_DEVICE void load_values(unsigned round) const {
    const unsigned full = this->pipelines_.keys.full_at(round);
    mbarrier_arrive_expect_tx(full, VTile::bytes);
    load_tile<VTile>(this->pipelines_.v(round), this->v_map(), full, box_of_block(pair_rank<Config>()));
  }
  JIT_DEVICE void poison_keys(unsigned round) const {
    Base::fill_with_nan(this->pipelines_.smem + Traits::layout.peer_k,
                        own_panels<Config>(pair_rank<Config>()).count * KTile::panel_bytes);
    Base::poison_keys(round);
  }
  /// Loads the block's keys, and the panels of the peer's keys that it multiplies.
  JIT_DEVICE void load_keys(unsigned round) const {
    const int rank = pair_rank<Config>();
    const PanelRange of_peer = own_panels<Config>(rank);
    const auto& map = this->k_map();
    const unsigned full = this->pipelines_.keys.full_at(round);
    mbarrier_arrive_expect_tx(full, KTile::bytes + of_peer.count * KTile::panel_bytes);
    load_tile<KTile>(this->pipelines_.k(round), map, full, box_of_block(rank));
    for (int i = 0; i < of_peer.count; ++i)
      load_panel(this->pipelines_.smem + Traits::layout.peer_k + i * KTile::panel_bytes, map, full,
                 (of_peer.begin + i) * KTile::columns,
                 box_of_block(rank ^ 1));  // mutate: TheOtherTileIsMultiplied
  }

 private:
  // The box of the keys that block `block` of the pair owns.
  JIT_DEVICE auto box_of_block(int block) const {
    return this->own_box(keys_of_block(this->keys_, block).k_begin);
  }
};

/// The copies of a block.
template <class Config, class Maps>
using BlockLoads =
    typename ChosenType<Config::pair, PairLoads<Config, Maps>, TileLoads<Pipelines<Config>, Maps>>::type;

}  // namespace jit::backward_wgmma
