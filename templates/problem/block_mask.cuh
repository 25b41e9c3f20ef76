// A mask within blocks: a table says of each block of queries and keys what is left of it.
#pragma once

#include "base/bit_words.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/masks.cuh"

namespace jit {

/// A mask that keeps what `Within` keeps of the blocks, of block_q queries and block_kv keys each, that the
/// table does not call empty. The table is int32 tensor (batch, heads, block_rows, block_words) in slot
/// `slot`. A row of it is of block_q queries. Bit j of its words 2 i and 2 i + 1 is of block 32 i + j of
/// block_kv keys: in the first, whether some score of the block is kept, in the second, whether all are, so
/// that `Within` need not be asked. Blocks that it has no room for are empty. Where the words are of an odd
/// number, the last one of row i is a row, too: the i-th by what there is to do.
template <class Within, int slot, int block_q, int block_kv>
struct BlockMask {
  static constexpr int most_words =
      1 << 26;  // of the longest sequence in the smallest blocks, and of an int in bits

  Within within;
  const unsigned* table;  ///< of the batch entry and head
  long long row_stride;
  int block_rows;
  int key_blocks;  ///< of a row of the table, at most as many as there are keys for
  int seqlen_kv;
  bool has_heads;

  __device__ explicit BlockMask(const BlockContext& context) : within(context), seqlen_kv(context.seqlen_kv) {
    const FunctorTensor& tensor = context.tensors[slot];
    // mutate: TableOfTheFirstBatchEntry
    table = static_cast<const unsigned*>(tensor.data) + context.batch * tensor.strides[0] +
            context.head * tensor.strides[1];
    row_stride = tensor.strides[2];
    block_rows = minimum(rounded_up_quotient(context.seqlen_q, block_q), tensor.rows);
    key_blocks = minimum(rounded_up_quotient(seqlen_kv, block_kv),
                         minimum(tensor.last_size, most_words) / 2 * bits_of_word);
    has_heads = tensor.strides[1] != 0;
  }

  static constexpr bool reads_head = true;
  static constexpr bool needs_warp = jit::needs_warp<Within>;
  __device__ bool differs_by_head() const { return has_heads || heads_differ(within); }

  JIT_DEVICE unsigned seen(int row, int i) const {
    return __ldg(table + row * row_stride + 2 * i);  // mutate: FullBitsForSeenOnes
  }
  JIT_DEVICE unsigned full(int row, int i) const { return __ldg(table + row * row_stride + 2 * i + 1); }

  /// From the first to the last block that holds a key for one of the queries.
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    if (q_begin >= q_end || key_blocks == 0) return {0, 0};
    int first = key_blocks, last = -1;
    const int end = minimum(rounded_up_quotient(q_end, block_q), block_rows);
#pragma unroll 1
    for (int row = q_begin / block_q; row < end; ++row) {
#pragma unroll 1
      for (int i = 0; i * bits_of_word < first; ++i) {
        const unsigned word = seen(row, i) & bits_between(i, 0, first);
        if (word != 0) first = i * bits_of_word + __ffs(static_cast<int>(word)) - 1;
      }
#pragma unroll 1
      for (int i = (key_blocks - 1) / bits_of_word; (i + 1) * bits_of_word > last + 1; --i) {
        const unsigned word = seen(row, i) & bits_between(i, last + 1, key_blocks);
        // mutate: RangeEndsABlockEarly
        if (word != 0) last = (i + 1) * bits_of_word - 1 - __clz(static_cast<int>(word));
      }
    }
    if (first > last) return {0, 0};
    return {first * block_kv, last + 1 == key_blocks ? end_of_blocks() : (last + 1) * block_kv};
  }
  __device__ KeyRange lane_key_range(int, int q_begin, int q_end) const { return key_range(q_begin, q_end); }

  __device__ TileClass classify(const ScoreTile& tile) const {
    const int first = tile.k_begin / block_kv, end = rounded_up_quotient(tile.k_end, block_kv);
    const int row_end = rounded_up_quotient(tile.q_end, block_q);
    bool is_seen = false, is_covered = end <= key_blocks && row_end <= block_rows, is_full = is_covered;
#pragma unroll 1
    for (int row = tile.q_begin / block_q; row < minimum(row_end, block_rows); ++row) {
#pragma unroll 1
      for (int i = first / bits_of_word; i * bits_of_word < minimum(end, key_blocks); ++i) {
        const unsigned asked = bits_between(i, first, minimum(end, key_blocks));
        const unsigned seen_blocks = seen(row, i) & asked;
        is_seen |= seen_blocks != 0;         // mutate: EmptyByTheLastRow
        is_covered &= seen_blocks == asked;  // mutate: CoveredThoughABlockIsMissing
        is_full &= (full(row, i) & seen_blocks) == asked;
      }
    }
    if (!is_seen) return TileClass::empty;
    if (is_full) return TileClass::full;
    const TileClass kind = within.classify(tile);
    return kind == TileClass::full && !is_covered ? TileClass::partial : kind;
  }

  /// A lane's look at the words of a tile's blocks, which must be of one row and one pair of words.
  struct Look {
    unsigned seen;
    unsigned full;
  };
  template <int tile_q, int tile_kv>
  static constexpr bool needs_one_look =
      !needs_warp && block_q % tile_q == 0 &&
      (block_kv % tile_kv == 0 || (tile_kv % block_kv == 0 && bits_of_word % (tile_kv / block_kv) == 0));
  JIT_DEVICE Look look(const ScoreTile& tile) const {
    const int row = tile.q_begin / block_q, i = tile.k_begin / block_kv / bits_of_word;
    const bool exists = row < block_rows && i * bits_of_word < key_blocks;
    return {exists ? seen(row, i) : 0, exists ? full(row, i) : 0};
  }
  /// classify(tile), after a look at it.
  JIT_DEVICE TileClass classify(const ScoreTile& tile, const Look& look) const {
    const int first = tile.k_begin / block_kv, end = rounded_up_quotient(tile.k_end, block_kv);
    const unsigned asked = bits_between(first / bits_of_word, first, end);
    const unsigned seen = look.seen & bits_between(first / bits_of_word, first, minimum(end, key_blocks));
    if (seen == 0) return TileClass::empty;
    if ((look.full & seen) == asked) return TileClass::full;
    const TileClass kind = within.classify(tile);
    return kind == TileClass::full && seen != asked ? TileClass::partial : kind;  // mutate: LookedAtOneBlock
  }

  /// From key k on the first that one of the queries may see; seqlen_kv: none.
  __device__ int next_key(int q_begin, int q_end, int k) const {
    const int first = k / block_kv, end = minimum(rounded_up_quotient(q_end, block_q), block_rows);
#pragma unroll 1
    for (int i = first / bits_of_word; i * bits_of_word < key_blocks; ++i) {
      unsigned word = 0;
#pragma unroll 1
      // mutate: NextKeyOfTheFirstRow
      for (int row = q_begin / block_q; row < end; ++row) word |= seen(row, i);
      word &= bits_between(i, first, key_blocks);
      // mutate: NextKeyABlockLate
      if (word != 0) return maximum(k, (i * bits_of_word + __ffs(static_cast<int>(word)) - 1) * block_kv);
    }
    return seqlen_kv;
  }

  /// From query q on the first that may see one of the keys, or a number above all queries'. By a whole warp, whose lanes
  /// look at a row of blocks each.
  __device__ int next_query(int k_begin, int k_end, int q) const {
    const int first = k_begin / block_kv, end = minimum(rounded_up_quotient(k_end, block_kv), key_blocks);
#pragma unroll 1
    for (int begin = q / block_q; begin < block_rows; begin += warp_size) {
      const int row = begin + lane_id();
      unsigned word = 0;
#pragma unroll 1
      for (int i = first / bits_of_word; i * bits_of_word < end; ++i)
        if (row < block_rows) word |= seen(row, i) & bits_between(i, first, end);
      const unsigned rows = __ballot_sync(full_warp, word != 0);
      if (rows != 0) return maximum(q, (begin + __ffs(static_cast<int>(rows)) - 1) * block_q);
    }
    return 0x7fffffff;
  }

  /// The words that a warp has read for a tile of queries: `key_range` comes first, and then `next_tile`
  /// needs no look at memory but for blocks far behind. A lane has the words of 32 blocks.
  static constexpr bool has_memory = has_one_class<Within>;
  class Memory {
   public:
    JIT_DEVICE KeyRange key_range(const BlockMask& mask, int q_begin, int q_end) {
      int first = -1, last = -1;
#pragma unroll 1
      for (int window = 0; q_begin < q_end && window * bits_of_word < mask.key_blocks; window += warp_size) {
        read(mask, q_begin, q_end, window);
        const unsigned lanes = __ballot_sync(full_warp, seen_ != 0);
        if (lanes == 0) continue;
        if (first < 0) first = first_block(seen_, lanes);
        const int lane = bits_of_word - 1 - __clz(static_cast<int>(lanes));
        last = (window + lane + 1) * bits_of_word - 1 - __clz(static_cast<int>(of_lane(seen_, lane)));
      }
      if (first < 0) return {0, 0};
      return {first * block_kv, last + 1 == mask.key_blocks ? mask.end_of_blocks() : (last + 1) * block_kv};
    }

    JIT_DEVICE SeenTile next_tile(const BlockMask& mask, int q_begin, int q_end, int k, int k_end,
                                  int tile_kv) {
#pragma unroll 1
      while (true) {
        const int block = next_block(mask, q_begin, q_end, k / block_kv);
        k = maximum(k, block * block_kv) / tile_kv * tile_kv;
        if (block == mask.key_blocks || k >= k_end) return {k_end, false};
        const ScoreTile tile{q_begin, q_end, k, minimum(k + tile_kv, mask.seqlen_kv)};
        const TileClass kind = classify(mask, tile, block);
        if (kind != TileClass::empty) return {k, kind == TileClass::full};
        k += tile_kv;
      }
    }

   private:
    static JIT_DEVICE unsigned of_lane(unsigned word, int lane) { return __shfl_sync(full_warp, word, lane); }
    // The first block of these words of the lanes, some of which have bits.
    JIT_DEVICE int first_block(unsigned word, unsigned lanes) const {
      const int lane = __ffs(static_cast<int>(lanes)) - 1;
      return (window_ + lane) * bits_of_word + __ffs(static_cast<int>(of_lane(word, lane))) - 1;
    }
    JIT_DEVICE void read(const BlockMask& mask, int q_begin, int q_end, int window) {
      window_ = window;
      seen_ = full_ = 0;
      const int word = window + lane_id(),
                end = minimum(rounded_up_quotient(q_end, block_q), mask.block_rows);
      if (word * bits_of_word >= mask.key_blocks) return;
#pragma unroll 1
      for (int row = q_begin / block_q; row < end; ++row) {
        seen_ |= mask.seen(row, word);
        full_ = mask.full(row, word);
      }
      seen_ &= bits_between(word, 0, mask.key_blocks);
    }
    // From `block` on the first that is seen; key_blocks: none.
    JIT_DEVICE int next_block(const BlockMask& mask, int q_begin, int q_end, int block) {
#pragma unroll 1
      for (int window = block / bits_of_word / warp_size * warp_size; window * bits_of_word < mask.key_blocks;
           window += warp_size) {
        if (window != window_) read(mask, q_begin, q_end, window);
        const unsigned word = seen_ & bits_between(window + lane_id(), block, mask.key_blocks);
        const unsigned lanes = __ballot_sync(full_warp, word != 0);
        if (lanes != 0) return first_block(word, lanes);
      }
      return mask.key_blocks;
    }
    // The class of a tile of which `block` is seen.
    JIT_DEVICE TileClass classify(const BlockMask& mask, const ScoreTile& tile, int block) const {
      const bool is_in_block = tile.q_begin / block_q == (tile.q_end - 1) / block_q &&
                               tile.k_begin / block_kv == (tile.k_end - 1) / block_kv;
      if (!is_in_block) return mask.classify(tile);
      const unsigned full = of_lane(full_, block / bits_of_word - window_);
      return (full >> block % bits_of_word & 1) != 0 ? TileClass::full : mask.within.classify(tile);
    }

    int window_;     // the word of the first lane
    unsigned seen_;  // by some query
    unsigned full_;  // of the last row
  };

  __device__ bool keep(int q, int k) const { return has_key(row_of(q), k) && within.keep(q, k); }

  static_assert(block_q % 8 == 0 && block_kv % 16 == 0, "parts are of 8 queries and 16 keys");
  static constexpr bool has_parts = is_made_of_parts<Within>;
  template <class Scores>
  __device__ auto kept_bits(const Scores& scores) const {
    return scores.of_blocks([&](int q, int k) { return has_key(row_of(q), k); }) &
           jit::kept_bits(within, scores);
  }

  static constexpr int key_words = jit::key_words<Within>;
  __device__ int key_word(int k) const { return within.key_word(k); }
  __device__ auto query_term(int q) const { return term_pair(row_of(q), jit::query_term(within, q)); }
  template <class QueryTerm>
  __device__ bool keeps(const QueryTerm& query, int k, int key_word) const {
    return has_key(query.a, k) & jit::keeps(within, query.b, k, key_word);
  }

 private:
  __device__ int end_of_blocks() const {
    return key_blocks < rounded_up_quotient(seqlen_kv, block_kv) ? key_blocks * block_kv : seqlen_kv;
  }
  // The row of the table that a query is of, or null.
  __device__ const unsigned* row_of(int q) const {
    const int row = q / block_q;
    return row < block_rows ? table + row * row_stride : nullptr;
  }
  __device__ bool has_key(const unsigned* row, int k) const {
    const int block = k / block_kv;  // mutate: KeptByTheBlockBefore
    if (row == nullptr || block >= key_blocks) return false;
    return (__ldg(row + 2 * (block / bits_of_word)) >> block % bits_of_word & 1) != 0;
  }
};

/// Tiles of queries by what there is to do for them, as a table tells.
template <class Within, int slot, int block_q, int block_kv, int tile_q>
struct TilesByWork<BlockMask<Within, slot, block_q, block_kv>, tile_q> {
  static constexpr bool are_known = block_q % tile_q == 0;

  /// The tile that is the i-th from the least work on. Every tile has one place: rows of blocks move with all of
  /// their tiles, and the last row stays where it is when it has fewer. A table of another number of rows says nothing.
  static JIT_DEVICE int tile(const BlockContext& context, int i) {
    constexpr int tiles_of_row = block_q / tile_q;
    const FunctorTensor& tensor = context.tensors[slot];
    const int rows = rounded_up_quotient(context.seqlen_q, block_q);
    if (tensor.last_size % 2 == 0 || tensor.rows != rows) return i;
    const auto* order = static_cast<const unsigned*>(tensor.data) + context.batch * tensor.strides[0] +
                        context.head * tensor.strides[1] + tensor.last_size - 1;
    const auto row_at = [&](int place) { return static_cast<int>(__ldg(order + place * tensor.strides[2])); };
    const bool is_cut = rounded_up_quotient(context.seqlen_q, tile_q) % tiles_of_row != 0;
    if (is_cut && row_at(rows - 1) != rows - 1) return i;
    const unsigned row = row_at(i / tiles_of_row);
    return static_cast<int>(minimum(row, rows - 1u)) * tiles_of_row + i % tiles_of_row;
  }
};

/// A tile of scores that lies within one block, and is not empty, is what `Within` keeps.
template <class Within, int slot, int block_q, int block_kv, int tile_q, int tile_kv>
struct MaskOfTile<BlockMask<Within, slot, block_q, block_kv>, tile_q, tile_kv> {
  static constexpr bool is_in_block = block_q % tile_q == 0 && block_kv % tile_kv == 0;
  using type = typename ChosenType<is_in_block, typename MaskOfTile<Within, tile_q, tile_kv>::type,
                                   BlockMask<Within, slot, block_q, block_kv>>::type;
};

}  // namespace jit
