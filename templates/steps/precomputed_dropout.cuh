// Applies a dropout mask that an earlier kernel has drawn (dropout_mask/kernel.cuh). A warp reads the bits of a block;
// each lane's words hold the bits of its own scores.
#pragma once

#include "base/dropout_params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "ptx/cache_hints.cuh"
#include "ptx/math.cuh"
#include "steps/dropout.cuh"
#include "steps/product_axes.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// The layout for products of these axes, of tiles of so many keys.
template <class Axes, int tile_kv>
struct DropoutMaskLayout;

/// Rows are 16 queries. Word w covers keys 64 w to 64 w + 63: the bits of DropoutHead::kept for the first 32 in the
/// lower halves of bytes, for the others in the upper halves. Words of a lane are contiguous.
template <int tile_kv>
struct DropoutMaskLayout<QueriesByKeys, tile_kv> {
  static constexpr DropoutMaskBlock block = dropout_mask_for_query_rows(tile_kv);
  static_assert(tile_kv % dropout_group_keys == 0, "tiles of keys must be multiples of 32 with dropout");
  static_assert(block.queries == dropout_group_queries, "a warp has the rows of a group");

  template <class Head>
  static JIT_DEVICE void draw(const Head& head, int q, int k, int lane, unsigned* words) {
    unsigned own[block.words];
#pragma unroll
    for (int g = 0; g < tile_kv / dropout_group_keys; ++g) {
      const unsigned bits = head.kept(q, k + g * dropout_group_keys, lane);
      own[g / 2] = g % 2 == 0 ? bits : own[g / 2] | bits << 4;  // mutate: GroupsOfAWordExchanged
    }
    store(lane, words, own);
  }
  static JIT_DEVICE void keep_all(int lane, unsigned* words) {
    unsigned own[block.words];
#pragma unroll
    for (unsigned& word : own) word = 0xffffffffu;
    store(lane, words, own);
  }
  static JIT_DEVICE void load(const unsigned* words, int lane, unsigned (&own)[block.words]) {
    const unsigned* const from = words + lane * block.words;
    if constexpr (block.words == 4) {
      load_once(from, own[0], own[1], own[2], own[3]);
    } else if constexpr (block.words == 2) {
      load_once(from, own[0], own[1]);
    } else {
#pragma unroll
      for (int w = 0; w < block.words; ++w) load_once(from + w, own[w]);
    }
  }

 private:
  static JIT_DEVICE void store(int lane, unsigned* words, const unsigned (&own)[block.words]) {
    constexpr int access = block.words % 4 == 0 ? 16 : block.words % 2 == 0 ? 8 : 4;
    store_words<block.words * 4, access>(words + lane * block.words, own);
  }
};

/// Rows are keys, a warp has 16 of the block's 32, and a word for 64 queries: bit 16 · (query % 2) + 8 · (query / 8 % 2) +
/// 4 · (query / 16 % 2) + 2 · (query / 32) + key / 8 is that of the lane's score. The words of the second warp lie behind
/// those of the first.
template <int tile_kv>
struct DropoutMaskLayout<KeysByQueries, tile_kv> {
  static constexpr DropoutMaskBlock block = dropout_mask_for_key_rows();
  static_assert(block.keys == dropout_group_keys && block.words == 2, "two warps share a group of keys");

  template <class Head>
  static JIT_DEVICE void draw(const Head& head, int q, int k, int lane, unsigned* words) {
    constexpr unsigned first_warps = 0x33333333u;  // the bits of the first 16 keys of a group
    const int row = MmaLayout::lane_row(lane), column = MmaLayout::lane_column(lane);
    unsigned pairs[2];  // of groups of queries
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const int query = q + p * 2 * dropout_group_queries;
      const unsigned bits = head.kept_of_two(query, k, lane);
      const unsigned first = __shfl_sync(full_warp, bits, column * 4 + row / 2);
      const unsigned second = __shfl_sync(full_warp, bits, column * 4 + 4 + row / 2);
      pairs[p] = pick_bytes(first, second, row % 2 == 0 ? 0x6420 : 0x7531);  // mutate: DrawnBitsOfAnotherKey
    }
    words[lane] = (pairs[0] & first_warps) | (pairs[1] & first_warps) << 2;  // mutate: PairsExchanged
    words[warp_size + lane] = (pairs[0] >> 2 & first_warps) | (pairs[1] & ~first_warps);
  }
  static JIT_DEVICE void keep_all(int lane, unsigned* words) {
    words[lane] = words[warp_size + lane] = 0xffffffffu;
  }
};

/// The words of the block that holds query `q` and key `k`; `head_of_all` counts heads of all batch entries.
template <class Layout>
JIT_DEVICE unsigned* dropout_mask_block(const DropoutMaskBits& mask, int head_of_all, int q, int k) {
  constexpr DropoutMaskBlock block = Layout::block;
  const unsigned row = static_cast<unsigned>(head_of_all * mask.query_blocks + q / block.queries);
  const unsigned long long index = static_cast<unsigned long long>(row) * mask.key_blocks + k / block.keys;
  return mask.words + index * (block.words * warp_size);
}

/// The kept scores of a warp, with the interface of KeptScores.
template <class Axes, class Product>
class PrecomputedDropout;

/// Bits of a tile of 16 queries by the keys of the product.
template <class Product>
class PrecomputedDropout<QueriesByKeys, Product> {
  static constexpr int blocks = 64 / MmaLayout::block_columns;  // of columns, in a word
  static constexpr int tile_kv = Product::column_blocks * MmaLayout::block_columns;
  using Layout = DropoutMaskLayout<QueriesByKeys, tile_kv>;
  static_assert(Product::row_blocks == 1, "a warp has 16 queries");

 public:
  PrecomputedDropout() = default;
  /// Bits of the product whose first row is that of query `q`, a multiple of 16, and whose first column is
  /// that of key `k`, a multiple of the tile. Loads are on their way then.
  JIT_DEVICE PrecomputedDropout(const DropoutMaskBits& mask, int head_of_all, int q, int k) {
    Layout::load(dropout_mask_block<Layout>(mask, head_of_all, q, k), lane_id(), words_);
  }

  /// As that of KeptScores.
  JIT_DEVICE unsigned pair_mask(int r, int n) const {
    // The signs of two neighboring bytes are repeated; both rows share the shift.
    const unsigned signs = words_[n / blocks] << (blocks - 1 - n % blocks);  // mutate: WordsAlike
    return pick_bytes(signs, 0, r == 0 ? 0x9988 : 0xbbaa);                   // mutate: RowsOfAWordAlike
  }

 private:
  unsigned words_[Layout::block.words];
};

/// Bits of a tile of 16 keys by 64 queries, or by 128.
template <class Product>
class PrecomputedDropout<KeysByQueries, Product> {
  using Layout = DropoutMaskLayout<KeysByQueries, dropout_group_keys>;
  static constexpr int blocks = Layout::block.queries / MmaLayout::block_columns;  // of columns, in a word
  static constexpr int words = Product::column_blocks / blocks;
  static_assert(Product::row_blocks == 1 && Product::column_blocks % blocks == 0,
                "a warp has 16 keys, and whole words of queries");

 public:
  PrecomputedDropout() = default;
  /// Bits of the product whose first row is that of key `k`, a multiple of 16, and whose first column is that
  /// of query `q`, a multiple of 64. Loads are on their way then.
  JIT_DEVICE PrecomputedDropout(const DropoutMaskBits& mask, int head_of_all, int q, int k) {
    // mutate: DrawnKeysOfTheOtherWarp
    const int own = k / MmaLayout::block_rows % Layout::block.words * warp_size + lane_id();
    const unsigned* const from = dropout_mask_block<Layout>(mask, head_of_all, q, k) + own;
    const long long next = static_cast<long long>(mask.key_blocks) * (Layout::block.words * warp_size);
#pragma unroll
    for (int w = 0; w < words; ++w) load_once(from + w * next, words_[w]);
  }

  JIT_DEVICE bool has(int r, int n, int i) const {
    return (words_[n / blocks] >> (16 * i + bit(r, n)) & 1) != 0;
  }
  /// As that of KeptScores.
  JIT_DEVICE unsigned pair_mask(int r, int n) const {
    // The sign of a byte of each half is repeated; blocks of columns that are neighbors share the shift.
    const unsigned signs = words_[n / blocks] << (7 - bit(r, n) % 8);
    return pick_bytes(signs, 0, bit(r, n) < 8 ? 0xaa88 : 0xbb99);  // mutate: DrawnSignsOfAnotherBlock
  }

 private:
  static JIT_DEVICE int bit(int r, int n) {
    return n % 2 * 8 + n / 2 % 2 * 4 + n / 4 % 2 * 2 + r;  // mutate: BlocksAlike
  }

  unsigned words_[words];
};

/// The type that tells in a kernel which scores of a product are kept: NoDropout where it has none.
template <class Config, class Axes, class Product>
using KeptOf = typename ChosenType<has_dropout_mask_ahead<Config>, PrecomputedDropout<Axes, Product>,
                                   KeptScoresOf<Config, Axes, Product>>::type;

}  // namespace jit
