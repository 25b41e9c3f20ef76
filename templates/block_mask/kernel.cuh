// Makes a block mask: classifies each block of scores, or each that the caller lists, as empty, partial or full, and writes a bit
// for each score of partial blocks where these are wanted. A thread block has the two words of 32 blocks of keys of a row, and
// each of its warps some of these blocks; where blocks are listed, a warp has a row.
#pragma once

#include "base/bit_words.cuh"
#include "base/prelude.cuh"
#include "block_mask/params.cuh"
#include "pipeline/dependent_launch.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/variable_sequences.cuh"
#include "steps/score_bits.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// One block.
struct BlockPlace {
  int batch;
  int head;
  int row;
  int column;
};

/// The caller's class of a block where there are no lists; partial: the mask is to be asked.
JIT_DEVICE TileClass named_class(const BlockMaskParams& params, const BlockPlace& at) {
  if (params.map == nullptr) return TileClass::partial;
  const unsigned char may_be_seen =
      params.map[at.batch * params.map_strides[0] + at.head * params.map_strides[1] +
                 at.row * params.map_strides[2] + at.column * params.map_strides[3]];
  return may_be_seen == 0 ? TileClass::empty : TileClass::partial;
}

/// The class that the scores of a tile have, asked one by one until two differ. By a whole warp.
template <class Mask>
JIT_DEVICE TileClass class_of_scores(const Mask& mask, const ScoreTile& tile) {
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

/// A number of blocks above all others.
inline constexpr int none_comes_before = 0x7ffffffe;  // and one more is a number, too

/// Counts the blocks of rows from `begin` on, as many as a thread block puts in order. Neighboring lanes read a row's words,
/// which lie side by side, and those of several rows wait for memory together.
JIT_DEVICE void count_blocks(const BlockMaskParams& params, const unsigned* words, int begin, int* amounts) {
  constexpr int lanes = 8, at_once = 4, rows_apart = block_mask_threads / lanes,
                own_rows = ordered_rows / rows_apart;
  const int lane = static_cast<int>(threadIdx.x) % lanes, first_row = static_cast<int>(threadIdx.x) / lanes;
  int blocks[own_rows] = {};
#pragma unroll 1
  for (int first = 2 * lane; first < params.block_words; first += 2 * lanes * at_once) {
    unsigned seen[own_rows][at_once];
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const unsigned* const row =
          words + minimum(begin + first_row + i * rows_apart, params.block_rows - 1) * params.row_stride;
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const int word = first + 2 * lanes * j;
        seen[i][j] = word < params.block_words ? row[word] : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
#pragma unroll
      for (int j = 0; j < at_once; ++j) blocks[i] += __popc(static_cast<int>(seen[i][j]));
    }
  }
#pragma unroll
  for (int i = 0; i < own_rows; ++i) {
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) blocks[i] += __shfl_xor_sync(full_warp, blocks[i], step);
    const int place = first_row + i * rows_apart, row = begin + place;
    if (lane == 0)
      amounts[place] = row >= params.block_rows ? none_comes_before
                       : row == params.cut_row  ? none_comes_before - 1
                                                : blocks[i];
  }
}

/// Writes the row that comes at each place of a list of rows, those with the fewest blocks first, of equal ones the first,
/// and the one that is cut last: places of tiles do not move with it, however many it has. Two threads have a row, and count
/// those that come before it, every other four each.
JIT_DEVICE void order_rows(const BlockMaskParams& params) {
  __shared__ __align__(16) int amounts[ordered_rows];
  const int parts = rounded_up_quotient(params.block_rows, ordered_rows);
  const int part = static_cast<int>(blockIdx.x) % parts, slice = static_cast<int>(blockIdx.x) / parts;
  unsigned* const words =
      params.words + slice / params.heads * params.batch_stride + slice % params.heads * params.head_stride;
  const int thread = static_cast<int>(threadIdx.x) % ordered_rows, own = part * ordered_rows + thread;
  const int second = static_cast<int>(threadIdx.x) / ordered_rows;
  int amount = 0, place = 0;
#pragma unroll 1
  for (int i = 0; i < parts; ++i) {  // the own part comes first
    const int begin = (part + i < parts ? part + i : part + i - parts) * ordered_rows;
    __syncthreads();  // mutate: AmountsOverThoseInUse
    count_blocks(params, words, begin, amounts);
    __syncthreads();  // mutate: AmountsThatAreNotThere
    if (i == 0) amount = amounts[thread];
#pragma unroll 4
    for (int j = second; j < ordered_rows / 4; j += 2) {
      const int4 four = reinterpret_cast<const int4*>(amounts)[j];
      const auto count = [&](int other, int row) { place += other < amount + (row < own ? 1 : 0); };
      count(four.x, begin + 4 * j);
      count(four.y, begin + 4 * j + 1);
      count(four.z, begin + 4 * j + 2);
      count(four.w, begin + 4 * j + 3);
    }
  }
  __syncthreads();  // mutate: PlacesOverAmountsInUse
  if (second == 1) amounts[thread] = place;
  __syncthreads();  // mutate: PlacesThatAreNotThere
  if (second == 0 && own < params.block_rows)
    words[(place + amounts[thread]) * params.row_stride + params.block_words] = own;
}

/// The 32 blocks that a thread block looks at.
struct BlockGroup {
  BlockPlace first;
  int word;  ///< of the row, counted in pairs

  JIT_DEVICE BlockGroup(const BlockMaskParams& params, unsigned index) {
    const unsigned words = params.block_words / 2;
    const unsigned row_index = index / words, slice = row_index / params.block_rows;
    word = static_cast<int>(index % words);
    first = {.batch = static_cast<int>(slice / params.heads),
             .head = static_cast<int>(slice % params.heads),
             .row = static_cast<int>(row_index % params.block_rows),
             .column = word * warp_size};
  }
};

/// The two words of 32 blocks.
JIT_DEVICE unsigned* words_of_blocks(const BlockMaskParams& params, const BlockPlace& at, int row, int word) {
  return params.words + at.batch * params.batch_stride + at.head * params.head_stride +
         row * params.row_stride + 2 * word;
}

/// The class of a block. `named`, a function without arguments, is the caller's, asked where there is such a block. By a
/// whole warp.
template <class Config, class Named>
JIT_DEVICE TileClass class_of_block(const BlockPlace& at, const typename Config::Mask& mask,
                                    const BlockContext& context, const Named& named) {
  const int q_begin = at.row * Config::block_q, k_begin = at.column * Config::block_kv;
  if (q_begin >= context.seqlen_q || k_begin >= context.seqlen_kv) return TileClass::empty;
  if (const TileClass kind = named(); kind != TileClass::partial) return kind;
  const ScoreTile tile{q_begin, minimum(q_begin + Config::block_q, context.seqlen_q), k_begin,
                       minimum(k_begin + Config::block_kv, context.seqlen_kv)};
  const TileClass kind = mask.classify(tile);
  return kind == TileClass::partial ? class_of_scores(mask, tile) : kind;
}

/// Writes what is left of blocks.
template <class Config>
JIT_DEVICE void write_classes(const BlockMaskParams& params, const BlockGroup& group,
                              const typename Config::Mask& mask, const BlockContext& context) {
  __shared__ TileClass classes[warp_size];
  BlockPlace at = group.first;
#pragma unroll 1
  for (int i = warp_id(); i < warp_size; i += blockDim.x / warp_size) {
    at.column = group.first.column + i;
    const TileClass kind = class_of_block<Config>(at, mask, context, [&] { return named_class(params, at); });
    if (lane_id() == 0) classes[i] = kind;
  }
  __syncthreads();
  if (warp_id() == 0) {
    const TileClass kind = classes[lane_id()];
    const unsigned seen = __ballot_sync(full_warp, kind != TileClass::empty);
    const unsigned full = __ballot_sync(full_warp, kind == TileClass::full);
    unsigned* const pair = words_of_blocks(params, group.first, group.first.row, group.word);
    if (lane_id() < 2) pair[lane_id()] = lane_id() == 0 ? seen : full;
  }
}

/// Marks the blocks of a row's list that lie in a window of so many words from word `first` on. Indices may come in any order
/// and more than once, and a list has no more than there is room for. By a whole warp.
JIT_DEVICE void mark_listed(const BlockLists& lists, const BlockPlace& row, int first, int words,
                            unsigned* marks) {
  if (lists.counts == nullptr && lists.begins == nullptr) return;
  const auto from = [&](const long long(&strides)[3]) {
    return row.batch * strides[0] + row.head * strides[1] + row.row * strides[2];
  };
  const long long place = from(lists.count_strides);
  const int* indices = lists.indices + from(lists.index_strides);
  int begin = 0, end;
  if (lists.begins != nullptr) {
    begin = maximum(lists.begins[place], 0);
    end = lists.begins[place + lists.count_strides[2]];
  } else {
    end = lists.counts[place];
  }
  end = minimum(end, lists.capacity);  // mutate: BlocksBehindTheRoom
#pragma unroll 1
  for (int i = begin + lane_id(); i < end; i += warp_size) {
    const int block = indices[i];
    const int word = block < 0 ? -1 : block / bits_of_word - first;  // mutate: NegativeBlocks
    if (word >= 0 && word < words) atomicOr(marks + word, 1u << block % bits_of_word);
  }
}

/// Writes the words of a row whose blocks are listed: a bit for each that is listed, and then what the mask leaves of these.
/// By a whole warp.
template <class Config>
JIT_DEVICE void write_listed_row(const BlockMaskParams& params, const BlockGroup& row,
                                 const typename Config::Mask& mask, const BlockContext& context) {
  constexpr int most_words = 2 * warp_size, most_warps = 16;  // of a window: 2,048 blocks
  __shared__ unsigned marks[most_warps][2][most_words];
  unsigned* const asked = marks[warp_id()][0];
  unsigned* const full = marks[warp_id()][1];
  BlockPlace at = row.first;
#pragma unroll 1
  for (int first = 0; first < params.block_words / 2; first += most_words) {
    const int words = minimum(params.block_words / 2 - first, most_words);
    // A lane clears the words that it has read.
    for (int i = lane_id(); i < words; i += warp_size) asked[i] = full[i] = 0;
    __syncwarp();  // mutate: BlocksMarkedBeforeTheyAreCleared
    mark_listed(params.partial, row.first, first, words, asked);
    mark_listed(params.full, row.first, first, words, full);
    __syncwarp();  // mutate: BlocksReadBeforeTheyAreMarked
    const int blocks = at.row * Config::block_q < context.seqlen_q
                           ? rounded_up_quotient(context.seqlen_kv, Config::block_kv)
                           : 0;
#pragma unroll 1
    for (int begin = 0; begin < words; begin += warp_size) {  // a lane has a word
      const int own = begin + lane_id();
      unsigned all = own < words ? full[own] : 0, seen = all;
      const unsigned unknown = own < words ? asked[own] & ~all : 0;
#pragma unroll 1
      for (unsigned lanes = __ballot_sync(full_warp, unknown != 0); lanes != 0; lanes &= lanes - 1) {
        const int lane = __ffs(static_cast<int>(lanes)) - 1;
#pragma unroll 1
        for (unsigned left = __shfl_sync(full_warp, unknown, lane); left != 0; left &= left - 1) {
          const unsigned bit = left & -left;
          at.column = (first + begin + lane) * bits_of_word + __ffs(static_cast<int>(bit)) - 1;
          const TileClass kind = class_of_block<Config>(at, mask, context, [] { return TileClass::partial; });
          if (lane_id() != lane) continue;
          if (kind != TileClass::empty) seen |= bit;
          if (kind == TileClass::full) all |= bit;
        }
      }
      if (own >= words) continue;
      const unsigned exist = bits_between(first + own, 0, blocks);
      unsigned* const pair = words_of_blocks(params, row.first, row.first.row, first + own);
      pair[0] = seen & exist;
      pair[1] = all & exist;
    }
  }
}

/// Blocks of which something, but not all, is left.
JIT_DEVICE unsigned partial_blocks(const unsigned* pair) { return pair[0] & ~pair[1]; }

/// Partial blocks of the same batch entry and head that come before these. By a whole thread block.
JIT_DEVICE int partial_blocks_before(const BlockMaskParams& params, const BlockGroup& group) {
  __shared__ int of_warps[warp_size];
  const int words = params.block_words / 2, end = group.first.row * words + group.word;
  int own = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < end; i += static_cast<int>(blockDim.x))
    own += __popc(partial_blocks(words_of_blocks(params, group.first, i / words, i % words)));
  own = __reduce_add_sync(full_warp, own);
  if (lane_id() == 0) of_warps[warp_id()] = own;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  return __reduce_add_sync(full_warp, lane_id() < warps ? of_warps[lane_id()] : 0);
}

/// Writes the bits of a block's scores in the order of base/bit_words.cuh. By a whole warp.
template <class Config>
JIT_DEVICE void write_score_bits(unsigned* words, const typename Config::Mask& mask,
                                 const BlockContext& context, int q_begin, int k_begin) {
  using Scores = MaskedScores<MmaLayout, score_word_keys / MmaLayout::block_columns>;
#pragma unroll 1
  for (int k = 0; k < Config::block_kv; k += score_word_keys) {
#pragma unroll 1
    for (int q = 0; q < Config::block_q; q += score_word_queries) {
      unsigned word = 0;
      if (q_begin + q < context.seqlen_q && k_begin + k < context.seqlen_kv) {
        const Scores scores(q_begin + q + MmaLayout::lane_row(lane_id()),
                            k_begin + k + MmaLayout::lane_column(lane_id()), context);
        word = (kept_bits(mask, scores) & scores.of_existing_keys()).word(0);
      }
      words[first_score_word(q, k, Config::block_q) + lane_id()] = word;
    }
  }
}

/// Writes where the bits of partial blocks lie, one block behind another as far as there is room, and these bits.
template <class Config>
JIT_DEVICE void write_scores(const BlockMaskParams& params, const BlockGroup& group,
                             const typename Config::Mask& mask, const BlockContext& context) {
  const BlockPlace& first = group.first;
  const unsigned partial = partial_blocks(words_of_blocks(params, first, first.row, group.word));
  const int before = partial_blocks_before(params, group);
  const auto from = [&](const long long(&strides)[3], int index) {
    return first.batch * strides[0] + first.head * strides[1] + index * strides[2];
  };
#pragma unroll 1
  for (int i = warp_id(); i < warp_size; i += blockDim.x / warp_size) {
    const int column = first.column + i;
    if (column >= params.block_columns) break;
    const int place = before + __popc(partial & bits_between(0, 0, i));
    const bool has_place = (partial >> i & 1) != 0 && place < params.room;
    if (lane_id() == 0)
      params.places[from(params.place_strides, first.row) + column] = has_place ? place : -1;
    if (!has_place) continue;
    write_score_bits<Config>(params.scores + from(params.score_strides, place), mask, context,
                             first.row * Config::block_q, column * Config::block_kv);
  }
}

template <class Config>
JIT_DEVICE void make_block_mask(const BlockMaskParams& params) {
  wait_on_dependent_grids();
  if (params.step == BlockMaskStep::order) {
    order_rows(params);
    return launch_dependent_grids();
  }
  const bool has_lists = params.step == BlockMaskStep::lists;
  const unsigned row = blockIdx.x * (blockDim.x / warp_size) + static_cast<unsigned>(warp_id());
  if (has_lists && row >= params.rows) return launch_dependent_grids();
  const BlockGroup group(params, has_lists ? row * (params.block_words / 2) : blockIdx.x);
  AttentionParams lengths{};
  lengths.seqlen_q = params.seqlen_q;
  lengths.seqlen_kv = params.seqlen_kv;
  lengths.sequences = params.sequences;
  const VariableSequences<Config> sequences(lengths);
  const Sequence queries = sequences.q(group.first.batch), keys = sequences.kv(group.first.batch);
  const BlockContext context{group.first.batch, group.first.head, params.heads_q, queries.length,
                             keys.length,       queries.begin,    params.tensors};
  const typename Config::Mask mask(context);
  if constexpr (Config::knows_scores) {
    if (params.step == BlockMaskStep::scores) {
      write_scores<Config>(params, group, mask, context);
      return launch_dependent_grids();
    }
  }
  if (has_lists) {
    write_listed_row<Config>(params, group, mask, context);
  } else {
    write_classes<Config>(params, group, mask, context);
  }
  launch_dependent_grids();
}

}  // namespace jit
