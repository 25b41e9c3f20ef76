// A consumer of a one-pass kernel that owns 64 keys of the block and, unless a dQ consumer exists, a half of dQ. The
// order of its products depends on the head dims.
#pragma once

#include "backward/gradient_writer.cuh"
#include "backward_wgmma/products.cuh"
#include "backward_wgmma/row_schedules.cuh"

namespace jit::backward_wgmma {

template <class Config, class Maps>
class RowConsumer {
  using Traits = KernelTraits<Config>;
  using Writer = typename WriterOf<Traits, Maps>::type;

 public:
  JIT_DEVICE RowConsumer(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                         const DropoutParams& dropout, const KeyTile<Config>& keys, unsigned smem)
      : tile_(params, dropout, keys, uniform(threadIdx.x / warpgroup_size - 1), smem),
        writer_(params, gradients, maps, dropout, smem, keys.round),
        params_(params) {}

  /// Called after the last tile of keys.
  static JIT_DEVICE void end() { Writer::end(); }

  /// The callback of for_each_key_tile.
  JIT_DEVICE unsigned run(bool has_queries, unsigned step) {
    const int number = number_of_tile();
    tile_.dk.clear();
    tile_.dv.clear();
    if (has_queries) {  // mutate: KeysAreLetGoTooEarly
      tile_.take_queries(step);
      step = sum(step);
    } else {
      tile_.pipelines.arrive_values_empty(tile_.keys.round);
      tile_.pipelines.keys.consumer_release(tile_.keys.round);
    }
    if (!writes_dv_early || !has_queries) writer_.write_dv(keys_to_write(number), tile_.dv);
    writer_.write_dk(keys_to_write(number), tile_.dk);
    return step;
  }

 private:
  // Whether dV is written while the last products of dK and dQ run, if registers suffice.
  static constexpr bool writes_dv_early = Writer::by_tma;

  // Gradients that are stored from registers keep only the tile's index, from which its batch entry and head are
  // computed again: these would take two registers through all steps.
  static constexpr bool holds_number = !Writer::by_tma && !has_entry_lengths<Config>;
  JIT_DEVICE int number_of_tile() const {
    if constexpr (!holds_number) return no_key_tile;
    return load_shared_by_warp(tile_.pipelines.key_tile_info(tile_.keys.round));
  }
  JIT_DEVICE decltype(auto) keys_to_write(int number) const {
    if constexpr (holds_number) {
      return key_tile<Config>(params_, number);
    } else {
      return (tile_.keys);
    }
  }

  JIT_DEVICE unsigned sum(unsigned step) {
    const auto leave_dv = [&] {
      if constexpr (writes_dv_early) writer_.write_dv(tile_.keys, tile_.dv);
    };
    if constexpr (Traits::has_query_consumer) {
      return sum_beside_queries(tile_, step, leave_dv);
    } else {
      return sum_rows(tile_, step, leave_dv);
    }
  }

  GradientProducts<Config> tile_;
  const Writer writer_;
  const AttentionParams& params_;
};

}  // namespace jit::backward_wgmma
