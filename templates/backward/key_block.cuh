// The tile of keys of a block, in kernels of dK and dV with one block per tile: dense or varlen.
#pragma once

#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/grid_place.cuh"
#include "scheduling/query_block.cuh"

namespace jit {

/// A tile of keys of one KV head.
struct KeyBlock {
  int batch;
  int kv_head;
  int k_begin;
};

/// The tile of keys of this block, in a grid of (…, key tiles, batch); with varlen keys, in a grid of (…, places of
/// tiles), in which places may be empty.
template <class Config, class Order = TileByTile>
JIT_DEVICE KeyBlock key_block(const AttentionParams& params, const GradientParams& gradients, int kv_head) {
  const int tile = gradients.k_tile_begin + Order::tile();
  if constexpr (Config::sequences_kv == SequenceKind::varlen) {
    const VariableSequences<Config> sequences(params);
    const auto [batch, first_key] = varlen_place<Config::tile_kv>(
        tile, params.batch, [&](int entry) { return sequences.kv(entry).begin; });
    return {.batch = batch, .kv_head = kv_head, .k_begin = first_key};
  } else {
    return {.batch = params.batch_begin + static_cast<int>(blockIdx.z),
            .kv_head = kv_head,
            .k_begin = tile * Config::tile_kv};
  }
}

}  // namespace jit
