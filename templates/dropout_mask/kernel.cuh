// Draws the dropout mask before the attention kernel reads it: beside wgmma products arithmetic gets few issue slots, and here
// nothing competes with it. A warp has a block of queries of one head and draws for some blocks of keys one after another, so
// the part of the generator that depends on queries alone is computed once. Blocks that no query of the reader's tile sees, as
// far as that is cheaply known, are left unwritten.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/masks.cuh"
#include "ptx/warpgroup.cuh"
#include "steps/dropout.cuh"
#include "steps/precomputed_dropout.cuh"

namespace jit::dropout_mask {

/// Blocks of keys from `begin` to `end`.
struct KeyBlocks {
  int begin, end;
};

/// Blocks of keys that a reader of tiles of Config visits for the query block that begins with `q`: also for
/// one behind the last query, whose rows a warp of the reader has beside those of others.
template <class Config>
JIT_DEVICE KeyBlocks visited(const BlockContext& context, int q, const DropoutMaskBlock& block) {
  const int blocks = Config::tile_kv / block.keys;  // of a tile
  const int tile = q / Config::tile_q * Config::tile_q;
  if (tile >= context.seqlen_q) return {0, 0};  // mutate: RowsBehindTheLastQuery
  const KeyRange keys = lane_key_range(typename Config::Mask(context), context.seqlen_kv, tile,
                                       minimum(tile + Config::tile_q, context.seqlen_q));
  // mutate: WhatIsSeenIsLeftOut
  return {keys.begin / Config::tile_kv * blocks, rounded_up_quotient(keys.end, Config::tile_kv) * blocks};
}

/// By a grid of a block for each `key_blocks_of_warp` blocks of keys of each query block of its warps of each head of each
/// batch entry, keys first. Config is the reader's, and so is the Layout.
template <class Config, class Layout>
JIT_DEVICE void dropout_mask(const AttentionParams& params) {
  constexpr DropoutMaskBlock block = Layout::block;
  constexpr int warps = drawing_threads / warp_size, own_blocks = key_blocks_of_warp(block);
  static_assert(Config::tile_q % block.queries == 0 && Config::tile_kv % block.keys == 0,
                "blocks end where tiles do");
  // The previous kernel may still read the bits that lie here.
  wait_on_dependent_grids();
  launch_dependent_grids();
  const DropoutMaskBits& mask = params.dropout.mask;
  const int chunks = rounded_up_quotient(mask.key_blocks, own_blocks);
  const int groups = rounded_up_quotient(mask.query_blocks, warps);
  const int chunk = static_cast<int>(blockIdx.x) % chunks, row = static_cast<int>(blockIdx.x) / chunks;
  const int head_index = row / groups, batch = head_index / params.heads_q,
            head = head_index % params.heads_q;
  const int q = (row % groups * warps + uniform(threadIdx.x / warp_size)) * block.queries;
  const BlockContext context = SequencesOf<Config>(params, batch).context(batch, head);
  const KeyBlocks all = visited<Config>(context, q, block);
  // mutate: ChunksOfOne
  const KeyBlocks own{maximum(all.begin, chunk * own_blocks), minimum(all.end, (chunk + 1) * own_blocks)};
  const auto random =
      // mutate: HeadsAlike
      dropout_head<Config>(DropoutSeed(params.dropout), params.heads_q, batch, head, params.tensors);
  const bool draws = random.drops_some();
  const int lane = lane_id();
  unsigned* words = dropout_mask_block<Layout>(mask, head_index, q, own.begin * block.keys);
#pragma unroll 1
  for (int i = own.begin; i < own.end; ++i) {
    if (draws) {
      Layout::draw(random, q, i * block.keys, lane, words);
    } else {
      Layout::keep_all(lane, words);
    }
    words += block.words * warp_size;
  }
}

}  // namespace jit::dropout_mask
