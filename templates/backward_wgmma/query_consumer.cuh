// The consumer of a one-pass kernel with roles that owns dQ = dS K of each tile of queries. A panel of columns at a time
// is multiplied and added to the sums in global memory, from registers.
#pragma once

#include "backward_wgmma/dq_rows.cuh"
#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/loader.cuh"
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
                                           const DropoutParams& dropout, const TensorMaps& maps,
                                           const KeyTile<Config>& keys, unsigned smem)
      : params_(params),
        gradients_(gradients),
        dropout_(dropout),
        maps_(maps),
        keys_(keys),
        first_tile_(first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0)),
        own_sums_(dq_sums<Config>(gradients, first_tile_) + threadIdx.x % warpgroup_size * 4),
        rings_(smem) {}

  /// As a function of for_each_key_tile.
  __device__ __forceinline__ unsigned run(bool has_queries, unsigned step) {
    int note = has_queries ? 0 : last_dq_tile;
    for (; (note & last_dq_tile) == 0; ++step) {
      rings_.ds.wait_full(step);
      note = load_shared_by_warp(rings_.dq_note(step));
      multiply(step, note & ~last_dq_tile);
    }
    rings_.arrive_keys_empty();
    return step;
  }

 private:
  struct Turn {
    bool is_first;
    bool is_last;
  };

  __device__ __forceinline__ void multiply(unsigned step, int tile) {
    float* const sums = own_sums_ + static_cast<long long>(tile) * Traits::dq_tile_floats;
    Turn turn{};
#pragma unroll
    for (int part = 0; part < Traits::dq_parts; ++part) {
      wgmma_fence();
      Config::template wgmma_dq<DsTile, KTile>(
          dq_.registers[0], lower_word(DsTile::along_columns(rings_.ds.tile(step), 0, 0)),
          lower_word(KTile::along_rows(rings_.smem + Traits::layout.k + part * KTile::panel_bytes, 0)));
      wgmma_commit_group();
      if (Config::deterministic && part == 0) turn = own_turn(tile);
      wgmma_wait_group<0>();
      wgmma_hold(dq_.registers[0]);
      if (part + 1 == Traits::dq_parts) rings_.ds.arrive_empty(step);
      leave(sums + part * Traits::dq_part_floats, turn, part, tile);
    }
    if (Config::deterministic && maps_.sharers > 1) end_turn(tile);
  }

  // Who is first stores, so that nobody has to write zeros, and who is last rounds.
  __device__ __forceinline__ void leave(float* sums, const Turn& turn, int part, int tile) {
    constexpr int block_floats = warpgroup_size * 4;
    if (Config::deterministic && turn.is_last) {
      if (!turn.is_first) {
#pragma unroll
        for (int n = 0; n < Traits::QueryGradient::column_blocks; ++n) {
          const float4 before = load_relaxed(reinterpret_cast<const float4*>(sums + n * block_floats));
          dq_.registers[0][n][0] += before.x;
          dq_.registers[0][n][1] += before.y;
          dq_.registers[0][n][2] += before.z;
          dq_.registers[0][n][3] += before.w;
        }
      }
      const int tiles = query_tiles<Config>(params_);
      const SequencesOf<Config> sequences = keys_.sequences(params_);
      store_dq_part<Config>(
          params_, dropout_, dq_,
          Gradients<Config>(params_, gradients_, sequences).dq_rows(keys_.batch, tile / tiles), part,
          threadIdx.x % warpgroup_size, tile % tiles * Config::tile_q, sequences.q(keys_.batch).length);
    } else {
#pragma unroll
      for (int n = 0; n < Traits::QueryGradient::column_blocks; ++n) {
        const float(&four)[4] = dq_.registers[0][n];
        if (Config::deterministic && turn.is_first) {
          store_relaxed(reinterpret_cast<float4*>(sums + n * block_floats),
                        float4{four[0], four[1], four[2], four[3]});
        } else {
          atomic_add_relaxed(sums + n * block_floats, four);
        }
      }
    }
  }

  // Found by each warp. A block that has all keys of a head adds in its own order.
  __device__ __forceinline__ Turn own_turn(int tile) const {
    const int before = count_before<Config>(params_, keys_, tile);
    if (maps_.sharers > 1) {
      if (lane_id() == 0) wait_for_turn(turns_of(tile), before);
      __syncwarp();
    }
    return {before == 0, is_last<Config>(params_, keys_, tile)};
  }
  // One thread speaks for all once their additions are there.
  __device__ __forceinline__ void end_turn(int tile) const {
    bar_sync(Traits::add_barrier, warpgroup_size);
    if (threadIdx.x % warpgroup_size == 0) add_one_release(turns_of(tile));
  }
  __device__ __forceinline__ int* turns_of(int tile) const { return maps_.turns + first_tile_ + tile; }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const DropoutParams& dropout_;
  const TensorMaps& maps_;
  const KeyTile<Config> keys_;
  const long long first_tile_;
  float* const own_sums_;
  const Rings<Config> rings_;
  typename Traits::QueryGradient dq_;  // a part
};

}  // namespace jit::backward_wgmma
