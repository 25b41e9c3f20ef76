// Bits in words. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

inline constexpr int bits_of_word = 32;

/// The bits of word i with numbers in [begin, end); bit j of word i has number 32 i + j.
JIT_HOST_DEVICE constexpr unsigned bits_between(int i, int begin, int end) {
  const int first = begin - i * bits_of_word, last = end - i * bits_of_word;
  const int low = first > 0 ? first : 0, high = last < bits_of_word ? last : bits_of_word;
  return low < high ? ~0u << low & ~0u >> (bits_of_word - high) : 0;
}

// Bits of a block's scores, in the order of accumulators (tiles/accumulator.cuh): a word holds a lane's scores of 16
// queries and 64 keys. Host and NVRTC compile this.
//
//     word of a block   for each 64 keys, each 16 queries, each lane: q % 8 * 4 + k % 8 / 2
//     bit of a word     k % 32 / 8 * 8 + k % 64 / 32 * 4 + q % 16 / 8 * 2 + k % 2

inline constexpr int score_word_queries = 16, score_word_keys = 64, score_word_lanes = 32;

/// Words of `queries` (a multiple of 16) by `keys` scores.
JIT_HOST_DEVICE constexpr int score_words(int queries, int keys) {
  return queries / score_word_queries * score_word_lanes * ((keys + score_word_keys - 1) / score_word_keys);
}

/// The first word of the 32 lanes among which score (q, k) is; both count from the block's first.
JIT_HOST_DEVICE constexpr int first_score_word(int q, int k, int block_q) {
  // mutate: ColumnsOfATile
  return (k / score_word_keys * (block_q / score_word_queries) + q / score_word_queries) * score_word_lanes;
}

/// Words of a tile, if every tile lies within one block and has whole words of it; else 0.
JIT_HOST_DEVICE constexpr int words_of_known_tile(int block_q, int block_kv, int tile_q, int tile_kv) {
  const bool is_in_block = block_q % tile_q == 0 && block_kv % tile_kv == 0;
  const bool has_whole_words = tile_kv % score_word_keys == 0 || tile_kv == block_kv;
  return is_in_block && has_whole_words ? score_words(tile_q, tile_kv) : 0;
}

struct ScoreBitPlace {
  int word;
  int bit;
};
JIT_HOST_DEVICE constexpr ScoreBitPlace score_bit_place(int q, int k, int block_q) {
  return {first_score_word(q, k, block_q) + q % 8 * 4 + k % 8 / 2,
          k % 32 / 8 * 8 + k % 64 / 32 * 4 + q % 16 / 8 * 2 + k % 2};
}

}  // namespace jit
