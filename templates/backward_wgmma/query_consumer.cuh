// The dQ consumer of a one-pass kernel: it computes dQ = dS K of each tile of queries, as one of three roles or next to
// consumers of rows. It multiplies a panel of columns at a time, which is added to the sums in global memory: by an
// adder warp (dq_adder.cuh), or from registers: in deterministic mode with roles or varlen sequences, and if shared memory
// has no buffer.
#pragma once

#include "backward/dq_sums.cuh"
#include "backward/gradient_writer.cuh"
#include "backward/key_tiles.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/pipelines.cuh"
#include "backward_wgmma/turn_warps.cuh"
#include "ptx/atomic.cuh"
#include "ptx/relaxed.cuh"
#include "ptx/wgmma.cuh"

namespace jit::backward_wgmma {

template <class Config>
class QueryConsumer {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::KTile;
  using DsTile = typename Traits::DsTile;
  static constexpr bool takes_turns = Config::deterministic && !Traits::adds_by_tma;  // else its adder does

 public:
  JIT_DEVICE QueryConsumer(const AttentionParams& params, const GradientParams& gradients,
                           const KeyTile<Config>& keys, unsigned smem)
      : gradients_(gradients),
        panels_(own_panels<Config>(pair_rank<Config>())),
        first_tile_(
            static_cast<int>(first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0))),
        round_(keys.round),
        pipelines_(smem) {}

  /// Marks the end of additions for the turn passers. Called after the last tile of keys.
  static JIT_DEVICE void end(unsigned smem, unsigned step) {
    if constexpr (takes_turns) {
      for (int stage = 0; stage < stages_turns; ++stage)
        hand_over_addition<Config>(Pipelines<Config>(smem), step + stage, no_addition);
    }
  }

  /// The callback of for_each_key_tile.
  JIT_DEVICE unsigned run(bool has_queries, unsigned step) {
    for (int info = has_queries ? 0 : last_dq_tile; (info & last_dq_tile) == 0; ++step) {
      pipelines_.ds.consumer_wait(step);  // mutate: DqDoesNotWaitForDs
      info = load_shared_by_warp(pipelines_.dq_info(step));
      multiply(step, info & ~last_dq_tile);
    }
    // mutate: KeysAreLetGoTwice
    if (!lets_keys_go_early || !has_queries) pipelines_.keys.consumer_release(round_);
    return step;
  }

 private:
  JIT_DEVICE void multiply(unsigned step, int tile) {
    const unsigned own = static_cast<unsigned>(panels_.begin * Traits::dq_part_floats) +
                         reread_thread_index() % warpgroup_size * 4;
    float* const sums = dq_sums<Traits>(gradients_, first_tile_ + tile) + own;
    const unsigned ds =
        uniform(pipelines_.ds.tile(step));  // else descriptors would lie in registers of each thread
    bool is_first = false;
#pragma unroll
    for (int i = 0; i < Traits::own_dq_parts; ++i) {
      if (i == panels_.count) break;
      wgmma_fence();
      Config::template wgmma_dq<DsTile, KTile>(dq_.registers[0], ds_panel(ds, own_ds_panel),
                                               // mutate: KeysOfTheOtherTileForDq
                                               k_panel(pipelines_.k(round_), panels_.begin + i));
      if constexpr (Config::pair) {
        Config::template wgmma_dq_of_peer<DsTile, KTile>(dq_.registers[0], ds_panel(ds, peer_ds_panel),
                                                         k_panel(pipelines_.smem + Traits::layout.peer_k, i));
      }
      wgmma_commit_group();
      if constexpr (takes_turns) {
        if (i == 0) is_first = take_turn(pipelines_, step);  // mutate: ConsumerTakesNoTurns
      }
      wgmma_wait_group<0>();  // mutate: DqOfRolesIsNotWaitedFor
      wgmma_hold(dq_.registers[0]);
      if (i + 1 == panels_.count) {  // mutate: DsAndKeysAreLetGoBehindTheFirstPanel
        arrive_ds_empty(pipelines_, step);
        // mutate: KeysAreNeverLetGo
        if (lets_keys_go_early && (load_shared_by_warp(pipelines_.dq_info(step)) & last_dq_tile) != 0)
          pipelines_.keys.consumer_release(round_);
      }
      if constexpr (Traits::adds_by_tma) {
        const unsigned part = step * panels_.count + i;
        put_dq(pipelines_.dq(0), part, dq_);
        pass_dq(pipelines_.dq(0), part);
      } else if (is_first) {
        store(sums + i * Traits::dq_part_floats);
      } else {
        add(sums + i * Traits::dq_part_floats);
      }
    }
    if constexpr (takes_turns) hand_over_addition<Config>(pipelines_, step, first_tile_ + tile);
  }

  // Whether keys are released before the last dQ is stored, if a register is free.
  static constexpr bool lets_keys_go_early = Traits::adds_by_tma;

  // Descriptors of a panel of dS, with the sum along its columns, and of a panel of keys, along its rows.
  static JIT_DEVICE unsigned ds_panel(unsigned ds, int panel) {
    return lower_word(DsTile::along_columns(ds + panel * DsTile::panel_bytes, 0, 0));
  }
  static JIT_DEVICE unsigned k_panel(unsigned keys, int panel) {
    return lower_word(KTile::along_rows(keys + panel * KTile::panel_bytes, 0));
  }

  JIT_DEVICE void add(float* sums) const {
#pragma unroll
    for (int n = 0; n < Traits::QueryGradient::column_blocks; ++n)
      atomic_add_relaxed(sums + n * warpgroup_size * 4, dq_.registers[0][n]);
  }

  JIT_DEVICE void store(float* sums) const {
#pragma unroll
    for (int n = 0; n < Traits::QueryGradient::column_blocks; ++n) {
      const float(&x)[4] = dq_.registers[0][n];
      store_relaxed(reinterpret_cast<float4*>(sums + n * warpgroup_size * 4),
                    make_float4(x[0], x[1], x[2], x[3]));
    }
  }

  const GradientParams& gradients_;
  const PanelRange panels_;  // panels of the block
  const int first_tile_;     // first tile of the batch entry, counted in the call
  const unsigned round_;     // index of the tile of keys
  const Pipelines<Config> pipelines_;
  typename Traits::QueryGradient dq_;  // accumulators of one part
};

/// Computes dQ of all tiles of keys of the block.
template <class Config>
JIT_DEVICE void compute_dq(const AttentionParams& params, const GradientParams& gradients, unsigned smem) {
  const unsigned steps = for_each_key_tile<Config>(
      params, Pipelines<Config>(smem), [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
        return QueryConsumer<Config>(params, gradients, keys, smem).run(has_queries, step);
      });
  QueryConsumer<Config>::end(smem, steps);
}

}  // namespace jit::backward_wgmma
