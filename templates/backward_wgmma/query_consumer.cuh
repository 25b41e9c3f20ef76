// The consumer of a one-pass kernel with roles that owns dQ = dS K of each tile of queries. A panel of columns at a time
// is multiplied and added to the sums in global memory, from registers.
#pragma once

#include "backward_wgmma/dq_rows.cuh"
#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/loader.cuh"
#include "backward_wgmma/pair.cuh"
#include "backward_wgmma/rings.cuh"
#include "backward_wgmma/turns.cuh"
#include "problem/gradients.cuh"
#include "ptx/atomic.cuh"
#include "ptx/relaxed.cuh"
#include "ptx/wgmma.cuh"

namespace jit::backward_wgmma {

template <class Config>
class QueryConsumer {
  using Traits = KernelTraits<Config>;
  using KTile = typename Traits::KTile;
  using DsTile = typename Traits::DsTile;

 public:
  __device__ __forceinline__ QueryConsumer(const AttentionParams& params, const GradientParams& gradients,
                                           const KeyTile<Config>& keys, unsigned smem)
      : first_tile_(
            static_cast<int>(first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0))),
        own_sums_(dq_sums<Config>(gradients, first_tile_) + threadIdx.x % warpgroup_size * 4),
        rings_(smem) {}

  /// Behind the last tile of keys.
  static __device__ __forceinline__ void end(unsigned smem, unsigned step) {
    if constexpr (Config::deterministic) {
      for (int stage = 0; stage < stages_turns; ++stage)
        hand_over_addition<Config>(Rings<Config>(smem), step + stage, no_addition);
    }
  }

  /// As a function of for_each_key_tile.
  __device__ __forceinline__ unsigned run(bool has_queries, unsigned step) {
    int note = has_queries ? 0 : last_dq_tile;
    for (; (note & last_dq_tile) == 0; ++step) {
      wait_ds_full(rings_, step);
      note = load_shared_by_warp(rings_.dq_note(step));
      multiply(step, note & ~last_dq_tile);
    }
    rings_.arrive_keys_empty();
    return step;
  }

 private:
  __device__ __forceinline__ void multiply(unsigned step, int tile) {
    float* const sums = own_sums_ + static_cast<long long>(tile) * Traits::dq_tile_floats;
    bool is_first = false;
    const int rank = pair_rank<Config>();
    const PanelRange panels = own_panels<Config>(rank);
#pragma unroll
    for (int i = 0; i < Traits::own_dq_parts; ++i) {
      if (i == panels.count) break;
      const int part = panels.begin + i;
      wgmma_fence();
      Config::template wgmma_dq<DsTile, KTile>(
          dq_.registers[0], ds_of(step, rank),
          lower_word(KTile::along_rows(rings_.smem + Traits::layout.k + part * KTile::panel_bytes, 0)));
      if constexpr (Config::pair) {
        Config::template wgmma_dq_of_peer<DsTile, KTile>(
            dq_.registers[0], ds_of(step, rank ^ 1),
            lower_word(KTile::along_rows(rings_.smem + Traits::layout.peer_k + i * KTile::panel_bytes, 0)));
      }
      wgmma_commit_group();
      if (Config::deterministic && i == 0) is_first = take_turn<Config>(rings_, step);
      wgmma_wait_group<0>();
      wgmma_hold(dq_.registers[0]);
      if (i + 1 == panels.count) arrive_ds_empty(rings_, step);
      if (is_first) {
        store(sums + part * Traits::dq_part_floats);
      } else {
        add(sums + part * Traits::dq_part_floats);
      }
    }
    if constexpr (Config::deterministic) hand_over_addition<Config>(rings_, step, first_tile_ + tile);
  }

  // The descriptor of dS of the keys of block `rank` of a pair: a panel.
  __device__ __forceinline__ unsigned ds_of(unsigned step, int rank) const {
    return lower_word(DsTile::along_columns(rings_.ds.tile(step) + rank * DsTile::panel_bytes, 0, 0));
  }

  __device__ __forceinline__ void add(float* sums) const {
#pragma unroll
    for (int n = 0; n < Traits::QueryGradient::column_blocks; ++n)
      atomic_add_relaxed(sums + n * warpgroup_size * 4, dq_.registers[0][n]);
  }

  __device__ __forceinline__ void store(float* sums) const {
#pragma unroll
    for (int n = 0; n < Traits::QueryGradient::column_blocks; ++n) {
      const float(&x)[4] = dq_.registers[0][n];
      store_relaxed(reinterpret_cast<float4*>(sums + n * warpgroup_size * 4),
                    make_float4(x[0], x[1], x[2], x[3]));
    }
  }

  const int first_tile_;  // of the batch entry, among those of the call
  float* const own_sums_;
  const Rings<Config> rings_;
  typename Traits::QueryGradient dq_;  // a part
};

}  // namespace jit::backward_wgmma
