// The adder warp: it adds partial dQ from shared memory to the sums in global memory by TMA reductions. Pipelines
// provides the pipeline of an adder, `dq(adder)`, and the dQ infos of steps, `dq_info`; its Traits define the layout of
// sums (dq_sums.cuh).
#pragma once

#include "backward/dq_sums.cuh"
#include "backward/key_tiles.cuh"
#include "backward/listed_queries.cuh"
#include "backward/query_tile.cuh"
#include "backward/turn_waiter.cuh"
#include "ptx/atomic.cuh"
#include "ptx/bulk_copy.cuh"

namespace jit {

/// A range of parts of dQ, or of panels of K.
struct PanelRange {
  int begin;
  int count;
};

/// Adds an adder's parts of dQ of each step to the sums in global memory. By a warp.
template <class Pipelines>
class DqAdder {
  using Traits = typename Pipelines::Traits;
  using Config = typename Traits::Config;
  static constexpr int part_bytes = Pipelines::dq_part_bytes;

 public:
  JIT_DEVICE DqAdder(const AttentionParams& params, const GradientParams& gradients, const Turns& turns,
                     const KeyTile<Config>& keys, int adder, const PanelRange& parts, unsigned smem)
      : params_(params),
        turns_(turns),
        keys_(keys),
        parts_(parts),
        sums_(dq_sums<Traits>(gradients,
                              first_query_tile<Config>(params, keys.sequences(params), keys.batch, 0)) +
              parts_.begin * Traits::dq_part_floats),
        pipelines_(smem),
        pipeline_(pipelines_.dq(adder)) {}

  /// The steps of a tile of keys, as a function of for_each_key_tile.
  JIT_DEVICE unsigned run(unsigned step) const {
    for (int info = 0; (info & last_dq_tile) == 0; ++step) {
      bool is_first = has_listed_queries<Config>;  // and the only one
      for (int i = 0; i < parts_.count; ++i) {
        pipeline_.consumer_wait(step * parts_.count + i);  // mutate: TheAdderDoesNotWait
        if (i == 0) info = load_shared_by_warp(pipelines_.dq_info(step));
        add(step, i, info & ~last_dq_tile, is_first);
      }
    }
    return step;
  }

 private:
  // Adds part `i` of a step to tile `tile` of queries, or stores it if no block adds before. The first part sets
  // `is_first`.
  JIT_DEVICE void add(unsigned step, int i, int tile, bool& is_first) const {
    const unsigned part = step * parts_.count + i;
    // mutate: AddersTakeNoTurns
    if (Config::deterministic && i == 0) is_first = take_turn(pipelines_, step);
    if (lane_id() == 0) {
      float* const sums =
          // mutate: PanelsOfDqInAnotherOrder
          sums_ + static_cast<long long>(tile) * Traits::dq_tile_floats + i * Traits::dq_part_floats;
      if (is_first) {
        cp_async_bulk_store(sums, pipeline_.tile(part), part_bytes);
      } else {
        cp_reduce_async_bulk_add(sums, pipeline_.tile(part), part_bytes);
      }
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();  // mutate: TheAdderLetsGoTooEarly
    }
    pipeline_.consumer_release(part);
    // mutate: TurnsArePassedOnByEachPart
    if (Config::deterministic && i + 1 == parts_.count && lane_id() == 0) {
      cp_async_bulk_wait_group<0>();
      add_one_release(additions<Config>(params_, turns_, keys_, tile));
    }
  }

  const AttentionParams& params_;
  const Turns& turns_;
  const KeyTile<Config> keys_;
  const PanelRange parts_;
  float* const sums_;
  const Pipelines pipelines_;
  const typename Pipelines::DqPipeline pipeline_;
};

/// Adds dQ of all tiles of keys of the block. `parts_of(adder)` returns an adder's parts.
template <class Pipelines, class PartsOf>
JIT_DEVICE void add_dq(const AttentionParams& params, const GradientParams& gradients, const Turns& turns,
                       int adder, const PartsOf& parts_of, unsigned smem) {
  using Config = typename Pipelines::Traits::Config;
  const Pipelines pipelines(smem);
  for_each_key_tile<Config>(
      params, pipelines, [&](const KeyTile<Config>& keys, bool has_queries, unsigned step) {
        pipelines.keys.consumer_release(keys.round);
        if (!has_queries) return step;
        return DqAdder<Pipelines>(params, gradients, turns, keys, adder, parts_of(adder), smem).run(step);
      });
}

}  // namespace jit
