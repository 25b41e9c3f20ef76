// Makes a block mask: what a mask leaves of each block of scores, of those that the caller names or of all. A thread block
// has the two words of 32 blocks of keys of a row, and a warp some of these blocks.
#pragma once

#include "base/bit_words.cuh"
#include "base/dependent_launch.cuh"
#include "base/prelude.cuh"
#include "block_mask/params.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// One block.
struct BlockPlace {
  int batch;
  int head;
  int row;
  int column;
};

__device__ __forceinline__ bool has_lists(const BlockLists& lists) {
  return lists.counts != nullptr || lists.begins != nullptr;
}

/// Whether a list has the block. By a whole warp. Indices may come in any order and more than once, and a list has no more
/// than there is room for.
__device__ __forceinline__ bool has_block(const BlockLists& lists, const BlockPlace& at) {
  if (!has_lists(lists)) return false;
  const auto from = [&](const long long(&strides)[3]) {
    return at.batch * strides[0] + at.head * strides[1] + at.row * strides[2];
  };
  const long long row = from(lists.count_strides);
  const int* indices = lists.indices + from(lists.index_strides);
  int begin = 0, end;
  if (lists.begins != nullptr) {
    begin = maximum(lists.begins[row], 0);
    end = lists.begins[row + lists.count_strides[2]];
  } else {
    end = lists.counts[row];
  }
  end = minimum(end, lists.capacity);
  bool is_there = false;
#pragma unroll 1
  for (int i = begin + lane_id(); i < end; i += warp_size) is_there |= indices[i] == at.column;
  return __any_sync(full_warp, is_there) != 0;
}

/// What the caller says of a block; partial: the mask is to be asked. By a whole warp.
__device__ __forceinline__ TileClass named_class(const BlockMaskParams& params, const BlockPlace& at) {
  if (params.map != nullptr) {
    const unsigned char may_be_seen =
        params.map[at.batch * params.map_strides[0] + at.head * params.map_strides[1] +
                   at.row * params.map_strides[2] + at.column * params.map_strides[3]];
    if (may_be_seen == 0) return TileClass::empty;
  }
  if (!has_lists(params.partial) && !has_lists(params.full)) return TileClass::partial;
  if (has_block(params.full, at)) return TileClass::full;
  return has_block(params.partial, at) ? TileClass::partial : TileClass::empty;
}

/// The class that the scores of a tile have, asked one by one until two differ. By a whole warp.
template <class Mask>
__device__ __forceinline__ TileClass class_of_scores(const Mask& mask, const ScoreTile& tile) {
  constexpr int rows = 8;
  bool is_some = false, is_all = true;
#pragma unroll 1
  for (int begin = tile.q_begin; begin < tile.q_end; begin += rows) {
#pragma unroll 1
    for (int q = begin; q < minimum(begin + rows, tile.q_end); ++q) {
#pragma unroll 1
      for (int k = tile.k_begin + lane_id(); k < tile.k_end; k += warp_size) {
        const bool is_kept = mask.keep(q, k);
        is_some |= is_kept;
        is_all &= is_kept;
      }
    }
    is_some = __any_sync(full_warp, is_some) != 0;
    is_all = __all_sync(full_warp, is_all) != 0;
    if (is_some && !is_all) return TileClass::partial;
  }
  return is_all ? TileClass::full : TileClass::empty;
}

/// Writes the row that comes at each place of a list of rows, those with the fewest blocks first, of equal ones the first,
/// and the one that is cut last: places of tiles do not move with it, however many it has. A thread has a row, and counts
/// those that come before it.
__device__ __forceinline__ void order_rows(const BlockMaskParams& params) {
  constexpr int most_threads = 1024;
  __shared__ int amounts[most_threads];
  const int threads = static_cast<int>(blockDim.x);
  const unsigned parts = rounded_up_quotient(params.block_rows, threads), slice = blockIdx.x / parts;
  unsigned* words =
      params.words + slice / params.heads * params.batch_stride + slice % params.heads * params.head_stride;
  const auto amount_of = [&](int row) {
    if (row >= params.block_rows || row == params.cut_row) return 0x7fffffff;
    int blocks = 0;
#pragma unroll 4
    for (int i = 0; i < params.block_words; i += 2)
      blocks += __popc(static_cast<int>(words[row * params.row_stride + i]));
    return blocks;
  };
  const int own = static_cast<int>(blockIdx.x % parts) * threads + static_cast<int>(threadIdx.x);
  const int amount = amount_of(own);
  int place = 0;
#pragma unroll 1
  for (int begin = 0; begin < params.block_rows; begin += threads) {
    __syncthreads();
    amounts[threadIdx.x] = amount_of(begin + static_cast<int>(threadIdx.x));
    __syncthreads();
    const int count = minimum(threads, params.block_rows - begin);
#pragma unroll 4
    for (int i = 0; i < count; ++i) place += amounts[i] < amount || (amounts[i] == amount && begin + i < own);
  }
  if (own < params.block_rows) words[place * params.row_stride + params.block_words] = own;
}

template <class Config>
__device__ __forceinline__ void make_block_mask(const BlockMaskParams& params) {
  using Mask = typename Config::Mask;
  __shared__ TileClass classes[warp_size];
  wait_for_grids_before();
  if (params.is_order_asked) {
    order_rows(params);
    return let_next_grid_start();
  }
  const unsigned words = params.block_words / 2;
  const unsigned row_index = blockIdx.x / words, slice = row_index / params.block_rows;
  BlockPlace at{.batch = static_cast<int>(slice / params.heads),
                .head = static_cast<int>(slice % params.heads),
                .row = static_cast<int>(row_index % params.block_rows),
                .column = 0};
  const int first = static_cast<int>(blockIdx.x % words) * warp_size;
  AttentionParams lengths{};
  lengths.seqlen_q = params.seqlen_q;
  lengths.seqlen_kv = params.seqlen_kv;
  lengths.sequences = params.sequences;
  const VariableSequences<Config> sequences(lengths);
  const Sequence queries = sequences.q(at.batch), keys = sequences.kv(at.batch);
  const BlockContext context{at.batch,    at.head,       params.heads_q, queries.length,
                             keys.length, queries.begin, params.tensors};
  const Mask mask(context);
#pragma unroll 1
  for (int i = warp_id(); i < warp_size; i += blockDim.x / warp_size) {
    at.column = first + i;
    TileClass kind = TileClass::empty;
    const int q_begin = at.row * Config::block_q, k_begin = at.column * Config::block_kv;
    if (q_begin < queries.length && k_begin < keys.length) {
      const ScoreTile tile{q_begin, minimum(q_begin + Config::block_q, queries.length), k_begin,
                           minimum(k_begin + Config::block_kv, keys.length)};
      kind = named_class(params, at);
      if (kind == TileClass::partial) kind = mask.classify(tile);
      if (kind == TileClass::partial) kind = class_of_scores(mask, tile);
    }
    if (lane_id() == 0) classes[i] = kind;
  }
  __syncthreads();
  if (warp_id() == 0) {
    const TileClass kind = classes[lane_id()];
    const unsigned seen = __ballot_sync(full_warp, kind != TileClass::empty);
    const unsigned full = __ballot_sync(full_warp, kind == TileClass::full);
    unsigned* pair = params.words + at.batch * params.batch_stride + at.head * params.head_stride +
                     at.row * params.row_stride + first / warp_size * 2;
    if (lane_id() < 2) pair[lane_id()] = lane_id() == 0 ? seen : full;
  }
  let_next_grid_start();
}

}  // namespace jit
