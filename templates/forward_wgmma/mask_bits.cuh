// What a mask knows of a tile's scores, on its way to the consumers: bits that lie beside the tile of keys.
#pragma once

#include "base/prelude.cuh"
#include "base/score_words.cuh"
#include "forward_wgmma/traits.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"

namespace jit::forward_wgmma {

/// The words of a block from the tile's first on; null: its scores are not known.
template <class Config>
__device__ __forceinline__ const unsigned* known_words(const BlockContext& context, int q_begin,
                                                       int k_begin) {
  if constexpr (KernelTraits<Config>::has_mask_bits) {
    using Mask = TileMask<Config>;
    const unsigned* const words = Mask(context).words_of(q_begin, k_begin);
    if (words == nullptr) return nullptr;
    // mutate: KnownTile
    return words + first_score_word(q_begin % Mask::queries_of_block, k_begin % Mask::keys_of_block,
                                    Mask::queries_of_block);
  }
  return nullptr;
}

/// Lets `full` wait for their bytes. By one thread, which arrives later.
template <class Config>
__device__ __forceinline__ void expect_mask_bits(unsigned full) {
  mbarrier_expect_tx(full, KernelTraits<Config>::mask_bit_words * 4);  // mutate: NobodyWaitsForTheBits
}

/// Starts the copies of the tile's words, which lie in one piece where the block has no other queries, else in one for
/// each 64 keys. By one thread.
template <class Config>
__device__ __forceinline__ void load_mask_bits(unsigned target, const unsigned* words, unsigned full) {
  constexpr int block_q = TileMask<Config>::queries_of_block,
                tile_words = KernelTraits<Config>::mask_bit_words;
  constexpr int column_words = score_words(Config::tile_q, score_word_keys);
  constexpr int pieces = Config::tile_q == block_q ? 1 : tile_words / column_words;
  constexpr int piece_words = tile_words / pieces;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    cp_async_bulk_load(target + i * piece_words * 4, words + i * score_words(block_q, score_word_keys),
                       piece_words * 4, full);
  }
}

}  // namespace jit::forward_wgmma
