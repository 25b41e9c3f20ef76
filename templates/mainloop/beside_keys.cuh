// Data that accompanies a tile of keys: the tile info, by which each consumer skips what its queries do not see, and
// the words, scales and mask bits in shared memory.
#pragma once

#include "base/bit_words.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_scales.cuh"
#include "mainloop/key_tile_info.cuh"
#include "mainloop/pipelines.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/seqlen_info.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "scheduling/tile_sequences.cuh"
#include "split_keys/waiting_spans.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

/// Flags of the tile info of the current tile of `tiles`. `mask` is a CachedMask, `q_begin` the first query of the
/// work tile, `range_end` the end of its range of keys.
template <class Traits, class Mask, class Tiles>
JIT_DEVICE int key_tile_flags(const Mask& mask, const Tiles& tiles, int q_begin, int range_end,
                              const SeqlenInfo& seqlens) {
  using Config = typename Traits::Config;
  int flags = tiles.has(1) ? 0 : key_info_all_last;
  if constexpr (requires { requires Traits::has_spans; }) {
    const int span = tiles.key(0) / Config::split_keys, next = tiles.key(1) / Config::split_keys;
    flags |= key_info_span_end * meeting_level(span, next);  // mutate: SpansThatDoNotEnd
  }
  if (!tiles.is_partial()) return flags;
  flags |= key_info_partial;  // mutate: NoInfoOfPartialTiles
  constexpr bool descending = Config::descending;
  // Consumers skip tiles only near the end of the range: from this tile on (descending) or after it.
  const bool may_skip =
      range_end - tiles.key(descending ? 0 : 1) <= Traits::max_skipped_tiles * Config::tile_kv &&
      (!descending || tiles.has(1));
  int skipping = 0;
#pragma unroll 1
  for (int consumer = 0; Traits::has_lower_tiles && consumer < Traits::consumers; ++consumer) {
    const int begin = q_begin + consumer * rows_per_warpgroup;  // mutate: UpperHalfOfTheFirstConsumer
    const int end = minimum(begin + rows_per_warpgroup, seqlens.q.length);
    const bool has_rows = begin < end;
    const ScoreTile upper{begin, end, tiles.key(0) + Traits::lower_keys,
                          minimum(tiles.key(0) + Config::tile_kv, seqlens.kv.length)};
    if (!has_rows || upper.k_begin >= upper.k_end || mask.drops(consumer, upper))
      flags |= key_info_lower << consumer;
    if (may_skip &&
        // mutate: LeavesOutATileOfKeys
        (!has_rows || mask.key_range_of(consumer, begin, end).end <= tiles.key(descending ? 0 : 1))) {
      flags |= (descending ? key_info_skipped : key_info_last) << consumer;
      ++skipping;
    }
  }
  // At least one consumer must take each tile.
  if (descending && skipping == Traits::consumers) flags &= ~(7 * key_info_skipped);
  return flags;
}

// Loads of mask bits: bits per score that a mask has precomputed, which accompany the tile of keys.

/// The mask-bit words of a block, from the tile's first word on; null: its scores are not precomputed.
template <class Traits>
JIT_DEVICE const unsigned* known_words(const BlockContext& context, int q_begin, int k_begin) {
  if constexpr (Traits::has_mask_bits) {
    using Mask = TileMask<typename Traits::Config>;
    const unsigned* const words = Mask(context).words_of(q_begin, k_begin);
    if (words == nullptr) return nullptr;
    // mutate: KnownTile
    return words + first_score_word(q_begin % Mask::queries_of_block, k_begin % Mask::keys_of_block,
                                    Mask::queries_of_block);
  }
  return nullptr;
}

/// Announces the bytes of the mask bits at `full`. By one thread, which arrives later.
template <class Traits>
JIT_DEVICE void expect_mask_bits(unsigned full) {
  mbarrier_expect_tx(full, Traits::mask_bit_words * 4);  // mutate: NobodyWaitsForTheBits
}

/// Starts the copies of the tile's mask bits: one copy if a block has as many queries as the tile, else one for each 64
/// keys. By one thread.
template <class Traits>
JIT_DEVICE void load_mask_bits(unsigned target, const unsigned* words, unsigned full) {
  using Config = typename Traits::Config;
  constexpr int block_q = TileMask<Config>::queries_of_block, tile_words = Traits::mask_bit_words;
  constexpr int column_words = score_words(Config::tile_q, score_word_keys);
  constexpr int pieces = Config::tile_q == block_q ? 1 : tile_words / column_words;
  constexpr int piece_words = tile_words / pieces;
#pragma unroll
  for (int i = 0; i < pieces; ++i) {
    cp_async_bulk_load(target + i * piece_words * 4, words + i * score_words(block_q, score_word_keys),
                       piece_words * 4, full);
  }
}

/// The `Beside` of KvProducer: words and scales of a tile's keys, and its mask bits if the mask has precomputed them.
template <class Traits>
struct KeyTileExtras {
  using Config = typename Traits::Config;
  const AttentionParams& params;
  const typename Config::Mask& mask;
  const typename Traits::Work& work;
  unsigned smem;
  KeyTileInfo& info;
  const unsigned* known = nullptr;

  /// Finds the mask bits, if the mask has precomputed the tile.
  JIT_DEVICE void find_bits() {
    if (Traits::has_mask_bits && (info.flags & key_info_partial) != 0)
      known = known_words<Traits>(context_of<Config>(params, work), work.q_begin, info.k_begin);
    if (known != nullptr) info.flags |= key_info_mask_bits;  // mutate: AskedThoughKnown
  }

  JIT_DEVICE void write(int stage) const {
    const Sequence keys = seqlens_of<Config>(params, work).kv;
    if constexpr (Traits::has_key_words) {
      const unsigned words = stored_words_of<Traits>(smem, stage);
      for (int i = lane_id(); (info.flags & key_info_partial) != 0 && i < Config::tile_kv; i += warp_size)
        // mutate: WordsOfTheFirstKeys
        store_shared(words + i * 4, mask.key_word(minimum(info.k_begin + i, keys.length - 1)));
    }
    if constexpr (Traits::has_key_scales)
      write_key_scales<Config>(params, work, keys, info.k_begin, key_scales_of<Traits>(smem, stage));
  }
  JIT_DEVICE void expect(unsigned full) const {
    if constexpr (Traits::has_mask_bits) {
      if (lane_id() == 0 && known != nullptr) expect_mask_bits<Traits>(full);
    }
  }
  JIT_DEVICE void start(int stage, unsigned full) const {
    if constexpr (Traits::has_mask_bits) {
      if (lane_id() == 0 && known != nullptr)
        load_mask_bits<Traits>(mask_bits_of<Traits>(smem, stage), known, full);
    }
  }
};

}  // namespace jit
