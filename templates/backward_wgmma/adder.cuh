// The warps of a one-pass kernel that add dQ to the sums in global memory: one for each consumer, whose part it has.
//
//     wait for dQ ─ store or add it ─ let go of its place ─ report what the step before has found
//
// and in a fixed order
//
//     wait for the turn, then for dQ ─ store or add it ─ let go of its place, ask for the next turn ─ report
//
// An addition takes some time to be there. Nobody waits for it but the blocks behind the first one of a tile, and in a
// fixed order the next one: else it is looked at a step later.
#pragma once

#include "backward_wgmma/additions.cuh"
#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/rings.cuh"
#include "backward_wgmma/tensor_maps.cuh"
#include "backward_wgmma/turns.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_wgmma {

template <class Config>
class Adder {
  using Traits = KernelTraits<Config>;

 public:
  __device__ __forceinline__ Adder(const AttentionParams& params, const GradientParams& gradients,
                                   const TensorMaps& maps, const KeyTile<Config>& keys, int consumer,
                                   unsigned smem)
      : params_(params),
        gradients_(gradients),
        maps_(maps),
        keys_(keys),
        consumer_(consumer),
        first_part_(first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0) *
                        Traits::dq_parts +
                    consumer),
        rings_(smem) {}

  __device__ __forceinline__ void run() {
    griddepcontrol_wait();
    const auto ring = rings_.dq(consumer_);
    const unsigned lag = Config::out_of_phase && consumer_ == 0 ? 1 : 0;  // steps until the first dQ comes
    int note = 0;
    for (unsigned step = 0; (note & last_dq_tile) == 0; ++step) {
      if (Config::deterministic && step > lag) wait_for_own_turn(step - lag);
      ring.wait_full(step);
      if (step < lag) {
        if (load_shared_by_warp(rings_.dq_note(0)) == no_dq_tile) break;
        ring.arrive_empty(step);
        continue;
      }
      note = load_shared_by_warp(rings_.dq_note(step - lag));
      if (note == no_dq_tile) break;
      if (Config::deterministic && step == lag) {
        ask_for_turn(note);
        wait_for_own_turn(0);
      }
      add(ring, step, step - lag, note);
    }
    if (begun_ == nothing && reported_ == 0) report(last_dq_tile | no_complete_tile);
    end<0>();
  }

 private:
  static constexpr int nothing = -1;

  template <class Ring>
  __device__ __forceinline__ void add(const Ring& ring, unsigned step, unsigned tile_step, int note) {
    constexpr int part_bytes = Traits::dq_part_floats * static_cast<int>(sizeof(float));
    const long long part = part_of(note);
    bool is_first = turn_ == 0;
    if (lane_id() == 0) {
      if constexpr (!Config::deterministic) is_first = begin_addition(gradients_.dq_additions + part);
      float* const sums = gradients_.dq_sums + part * Traits::dq_part_floats;
      if (is_first) {
        cp_async_bulk_store(sums, ring.tile(0), part_bytes);
      } else {
        cp_reduce_async_bulk_add(sums, ring.tile(0), part_bytes);
      }
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();
    }
    ring.arrive_empty(step);
    // Whoever left dQ had taken the queries of the next step.
    if (Config::deterministic && (note & last_dq_tile) == 0)
      ask_for_turn(load_shared_by_warp(rings_.dq_note(tile_step + 1)));
    end<1>();
    begun_ = note;
    if (Config::deterministic || uniform(is_first) != 0) end<0>();
  }
  __device__ __forceinline__ void ask_for_turn(int note) {
    const int tiles = query_tiles<Config>(params_), tile = note & ~last_dq_tile;
    turn_ = turn_of<Config>(keys_.sequences(params_).context(keys_.batch, tile / tiles), tile % tiles,
                            keys_.k_begin / Config::tile_kv, maps_.window);
  }
  __device__ __forceinline__ void wait_for_own_turn(unsigned tile_step) const {
    const int note = load_shared_by_warp(rings_.dq_note(tile_step));
    if (lane_id() == 0) wait_for_turn(gradients_.dq_additions + part_of(note), turn_);
  }

  // Ends the addition that has begun, when all but the thread's last `running` copies are there.
  template <int running>
  __device__ __forceinline__ void end() {
    if (begun_ == nothing) return;
    bool is_complete = false;
    if (lane_id() == 0) {
      cp_async_bulk_wait_group<running>();
      is_complete = end_addition(gradients_.dq_additions + part_of(begun_));
    }
    report(is_complete ? begun_ : (begun_ & last_dq_tile) | no_complete_tile);
    begun_ = nothing;
  }
  // What lane 0 says.
  __device__ __forceinline__ void report(int complete) {
    const auto ring = rings_.complete(consumer_);
    ring.wait_empty(reported_);
    if (lane_id() == 0) store_shared(ring.tile(reported_), complete);
    ring.arrive_full(reported_++);
  }

  __device__ __forceinline__ long long part_of(int note) const {
    return first_part_ + static_cast<long long>(note & ~last_dq_tile) * Traits::dq_parts;
  }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const TensorMaps& maps_;
  const KeyTile<Config> keys_;
  const int consumer_;
  const long long
      first_part_;  // the consumer's part of the first tile of the batch entry, among those of the call
  const Rings<Config> rings_;
  int begun_ = nothing;  // the note of the tile whose addition has begun
  int turn_ = 0;         // of the next one, where the order is fixed
  unsigned reported_ = 0;
};

}  // namespace jit::backward_wgmma
