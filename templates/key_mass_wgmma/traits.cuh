// Traits that follow from the Config of a kernel of key masses by wgmma, and which keys a block owns.
#pragma once

#include "backward/key_tile.cuh"
#include "base/prelude.cuh"
#include "base/varlen_tiles.cuh"
#include "jit/options.h"
#include "key_mass_wgmma/params.cuh"
#include "pipeline/pipeline.cuh"
#include "problem/entry_sequences.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

template <class C>
struct KeyMassWgmmaTraits {
  using Config = C;
  using Element = typename Config::Element;
  using Q = PanelTile<Element, mass_step_queries, Config::head_dim>;
  using K = PanelTile<Element, mass_consumer_keys, Config::head_dim>;
  using Scores = Accumulator<MmaLayout, MmaLayout::block_rows, mass_consumer_keys>;
  static constexpr KeyMassWgmmaSmem layout = key_mass_wgmma_smem(Config::head_dim);
  using KPipeline = Pipeline<1, mass_consumers * K::bytes>;
  using QPipeline = Pipeline<layout.q.stages, Q::bytes>;
  static constexpr bool keys_are_rows = false, keys_stay = true, shares_columns = true;
  static constexpr int products = 2, consumers = mass_consumers, order_barrier = 0;
  static constexpr WarpgroupOrder order = WarpgroupOrder::free;
  static constexpr int q_arrivals = 1 + warp_size, k_arrivals = 1;
  static constexpr int producer_registers = 40, consumer_registers = 232;
  static constexpr int sums_barrier = 1;  ///< named barrier of the first consumer

  static JIT_DEVICE unsigned lse(unsigned smem, int stage) {
    return smem + layout.lse + static_cast<unsigned>(stage * mass_step_queries * 4);
  }
  static JIT_DEVICE unsigned step(unsigned smem, int stage) {
    return smem + layout.steps + static_cast<unsigned>(stage) * static_cast<unsigned>(sizeof(MassStep));
  }
};

/// The keys of block `block`: the first keys of all heads come first, as most queries see them under a causal mask. By
/// whole warps.
template <class Config>
JIT_DEVICE KeyTile<Config> keys_of_block(const AttentionParams& params, int block) {
  int slices = params.heads_kv, tiles;
  if constexpr (Config::sequences_kv == SequenceKind::varlen) {
    tiles = static_cast<int>(varlen_tiles(params.batch, params.sequences.total_k, Config::tile_kv));
  } else {
    slices *= params.batch;
    tiles = key_tiles_of_head<Config>(params);
  }
  return key_tile<Config>(params, block % slices * tiles + block / slices);
}

}  // namespace jit
