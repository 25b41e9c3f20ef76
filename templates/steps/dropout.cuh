// Dropout of P. Whether a score is kept depends only on seed, offset, batch entry, head, query and key, exactly as in
// flash-attention and PyTorch's flash backend (csrc/flash_attn/src/dropout.h and philox.cuh of
// Dao-AILab/flash-attention), so that all kernels agree. A group is 16 queries by 32 keys. The counter is
//
//     low 64 bits    offset + (batch · heads + head) · 32 + lane
//     high 64 bits   key / 32, query / 16
//
// and its 16 random bytes belong to the lane's 16 scores of the group in an accumulator of mma.sync: lane = query % 8 ·
// 4 + key % 8 / 2, byte = key % 32 / 8 · 4 + query % 16 / 8 · 2 + key % 2. A score is kept if its byte is at most the
// threshold.
#pragma once

#include "base/dropout_params.cuh"
#include "base/params.cuh"
#include "base/philox.cuh"
#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "ptx/warpgroup.cuh"
#include "steps/dropout_counter.cuh"
#include "steps/no_dropout.cuh"
#include "steps/positioned_dropout.cuh"
#include "steps/product_axes.cuh"
#include "steps/product_numbers.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The random bits of one head of a batch entry. `Counter` draws the numbers.
template <class Counter>
struct DropoutBits : Counter {
  using Counter::Counter;
  using Counter::draw;
  using Counter::seed;

  /// Whether any score can be dropped: a byte is never above 255.
  JIT_DEVICE bool drops_some() const { return seed.thresholds != 0xffffffffu; }

  /// A bit for each of 16 scores, set if it is kept, at 8 · (2 · (query % 16 / 8) + key % 2) + key % 32 / 8. The upper
  /// half of each byte is 0.
  JIT_DEVICE unsigned kept(int q, int k, int lane) const {
    constexpr unsigned upper_bits = 0x80808080u;
    const PhiloxWords random = draw(q, k, lane);
    unsigned bits = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      // Four comparisons at once: the lower 7 bits by a subtraction without borrows between bytes, then the upper bits.
      const unsigned x = random.words[w];
      // mutate: TheThresholdItselfIsDropped
      const unsigned not_less = (seed.thresholds | upper_bits) - (x & ~upper_bits);
      bits = bits >> 1 | (at_most(seed.thresholds, x, not_less) & upper_bits);
    }
    return bits >> 4;
  }

  /// The bits of two groups, of queries from `q` on: those of the second one in the upper halves of bytes.
  JIT_DEVICE unsigned kept_of_two(int q, int k, int lane) const {
    return kept(q, k, lane) | kept(q + dropout_group_queries, k, lane) << 4;
  }

  /// Whether one score is kept.
  JIT_DEVICE bool keeps(int q, int k) const {
    return (kept(q, k, q % 8 * 4 + k % 8 / 2) >> (8 * (q % 16 / 8 * 2 + k % 2) + k % 32 / 8) & 1) != 0;
  }

 private:
  // (limit & ~x) | (~(limit ^ x) & otherwise) in one instruction, of which the compiler makes three.
  static JIT_DEVICE unsigned at_most(unsigned limit, unsigned x, unsigned otherwise) {
    unsigned result;
    asm("lop3.b32 %0, %1, %2, %3, 0xb2;" : "=r"(result) : "r"(limit), "r"(x), "r"(otherwise));
    return result;
  }
};

using DropoutHead = DropoutBits<DropoutCounter>;

template <class Config>
JIT_DEVICE auto dropout_seed(const DropoutParams& params) {
  if constexpr (has_dropout<Config>) {
    return DropoutSeed(params);
  } else {
    return NoDropout{};
  }
}
template <class Config>
using DropoutSeedOf = decltype(dropout_seed<Config>(DropoutParams{}));

/// The dropout of a head of a batch entry. `tensors` are those of functors.
template <class Config>
JIT_DEVICE auto dropout_head(const DropoutSeed& seed, int heads_q, int batch, int head,
                             const FunctorTensor* tensors) {
  if constexpr (has_positions<Config>) {
    return DropoutBits<PositionedCounter<typename Config::Places>>(seed, heads_q, batch, head, tensors);
  } else {
    return DropoutHead(seed, heads_q, batch, head);
  }
}
template <class Config>
JIT_DEVICE NoDropout dropout_head(NoDropout, int /*heads_q*/, int /*batch*/, int /*head*/,
                                  const FunctorTensor* /*tensors*/) {
  return {};
}
template <class Config>
JIT_DEVICE auto dropout_head(const DropoutParams& params, int heads_q, int batch, int head,
                             const FunctorTensor* tensors) {
  return dropout_head<Config>(dropout_seed<Config>(params), heads_q, batch, head, tensors);
}

/// Which of a warp's scores are kept. `Axes` says what rows and columns of the product are.
template <class Axes, class Product>
class KeptScores;

/// Rows are queries: a lane draws the bytes of its own scores, and keeps them as bytes.
template <class Product>
class KeptScores<QueriesByKeys, Product> {
  static constexpr int blocks = dropout_group_keys / MmaLayout::block_columns;  // of columns, in a group
  static constexpr int groups = Product::column_blocks / blocks;
  static_assert(Product::column_blocks % blocks == 0, "tiles of keys must be multiples of 32 with dropout");

 public:
  KeptScores() = default;
  /// The kept scores of the product whose first row is that of query `q`, a multiple of 16, and whose first
  /// column is that of key `k`, a multiple of 32.
  template <class Head>
  JIT_DEVICE KeptScores(const Head& head, int q, int k) : limit_(head.seed.thresholds) {
    const int lane = lane_id();
    // The branch also keeps later code behind it: ptxas moves waits for products before earlier arithmetic, which would
    // then no longer overlap.
    const bool draws = head.drops_some();
    if (draws) {
#pragma unroll
      for (int m = 0; m < Product::row_blocks; ++m) {
#pragma unroll
        for (int g = 0; g < groups; ++g)
          random_[m][g] = head.draw(q + m * dropout_group_queries, k + g * dropout_group_keys, lane);
      }
    } else {
#pragma unroll
      for (int m = 0; m < Product::row_blocks; ++m) {
#pragma unroll
        for (int g = 0; g < groups; ++g) random_[m][g] = {};
      }
    }
  }

  JIT_DEVICE bool has(int r, int n, int i) const {
    // mutate: RowsAndColumnsExchanged
    return (word(r, n) >> (16 * (r % 2) + 8 * i) & 0xff) <= (limit_ & 0xff);
  }
  /// The mask of the lane's pair in column block `n` of its row `r`: all bits of the 16 of a value that is kept.
  JIT_DEVICE unsigned pair_mask(int r, int n) const {
    // As numbers of fp16, bytes have their own order: two of them are compared at once.
    // mutate: RowsOfPairsExchanged
    return at_most_masks(pick_bytes(word(r, n), 0, r % 2 == 0 ? 0x4140 : 0x4342), limit_ & 0x00ff00ffu);
  }

 private:
  JIT_DEVICE unsigned word(int r, int n) const { return random_[r / 2][n / blocks].words[n % blocks]; }

  PhiloxWords random_[Product::row_blocks][groups];
  unsigned limit_;  // the largest byte of what is kept, in each byte
};

/// The exchange of bits between two warps with one half of a group's keys each: shared memory that alternates between
/// steps, and a named barrier.
struct SharedDraws {
  unsigned address;
  int barrier;
};

/// Rows are keys: two other lanes draw the bits of a lane's scores.
template <class Product>
class KeptScores<KeysByQueries, Product> {
  static constexpr int blocks = dropout_group_queries / MmaLayout::block_columns;  // of columns, in a group
  static constexpr int groups = Product::column_blocks / blocks;
  // Pairs of row blocks that begin with a group share its bits.
  static constexpr int shared_by = Product::row_blocks % 2 == 0 ? 2 : 1;

 public:
  KeptScores() = default;
  /// The kept scores of the product whose first row is that of key `k`, a multiple of 16 and of the rows, and
  /// whose first column is that of query `q`, a multiple of 16.
  template <class Head>
  JIT_DEVICE KeptScores(const Head& head, int q, int k) {
    const int lane = lane_id(), row = MmaLayout::lane_row(lane), column = MmaLayout::lane_column(lane);
#pragma unroll
    for (int m = 0; m < Product::row_blocks; m += shared_by) {
      const int key = k + m * MmaLayout::block_rows;
      // mutate: TheLowerHalfOfEachGroup
      const int shift = shared_by == 1 ? key % dropout_group_keys / 8 : 0;  // first key of four in a byte
#pragma unroll
      for (int g = 0; g < groups; g += 2) {
        unsigned bits = head.kept(q + g * dropout_group_queries, key, lane);
        if (g + 1 < groups) bits |= head.kept(q + (g + 1) * dropout_group_queries, key, lane) << 4;
        const unsigned first = __shfl_sync(full_warp, bits, column * 4 + row / 2);
        const unsigned second = __shfl_sync(full_warp, bits, column * 4 + 4 + row / 2);
        words_[m / shared_by][g / 2] = own_bytes(first, second, row, shift);
      }
    }
  }
  /// The kept scores of two warps with 16 of 32 keys each: each warp draws for all keys, but half of the queries.
  template <class Head>
  JIT_DEVICE KeptScores(const Head& head, int q, int k, const SharedDraws& shared) {
    static_assert(Product::row_blocks == 1 && groups % 4 == 0, "two warps share pairs of groups of queries");
    constexpr int words = groups / 2, own_words = words / 2, word_bytes = warp_size * 4;
    const int lane = lane_id(), row = MmaLayout::lane_row(lane), column = MmaLayout::lane_column(lane);
    const int half = k / MmaLayout::block_rows % 2;
#pragma unroll
    for (int i = 0; i < own_words; ++i) {
      // mutate: BothDrawTheSameHalf
      const int w = half * own_words + i, query = q + w * 2 * dropout_group_queries;
      store_shared(shared.address + w * word_bytes + lane * 4,
                   static_cast<int>(head.kept_of_two(query, k, lane)));
    }
    bar_sync(shared.barrier, 2 * warp_size);  // mutate: TakenBeforeTheyAreThere
    const unsigned others = shared.address + (column * 4 + row / 2) * 4;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const auto first = static_cast<unsigned>(load_shared(others + w * word_bytes));
      const auto second = static_cast<unsigned>(load_shared(others + w * word_bytes + 16));
      words_[0][w] = own_bytes(first, second, row, half * 2);  // mutate: KeysOfTheOtherWarp
    }
  }

  JIT_DEVICE bool has(int r, int n, int i) const { return (word(r, n) >> (16 * i + bit(r, n)) & 1) != 0; }
  /// As that of products whose rows are queries.
  JIT_DEVICE unsigned pair_mask(int r, int n) const {
    // The sign of a byte of each half is repeated; blocks of columns that are neighbors share the shift.
    const unsigned signs = word(r, n) << (7 - bit(r, n) % 8);
    return pick_bytes(signs, 0, bit(r, n) < 8 ? 0xaa88 : 0xbb99);  // mutate: SignsOfAnotherBlock
  }

 private:
  // The bits of the row's key among those of two lanes. Every other byte is of another key than the lane's.
  static JIT_DEVICE unsigned own_bytes(unsigned first, unsigned second, int row, int shift) {
    return pick_bytes(first, second, row % 2 == 0 ? 0x6420 : 0x7531) >> shift;  // mutate: BitsOfAnotherKey
  }
  JIT_DEVICE unsigned word(int r, int n) const { return words_[r / 2 / shared_by][n / blocks / 2]; }
  static JIT_DEVICE int bit(int r, int n) {
    return n % blocks * 8 + n / blocks % 2 * 4 + r / 2 % shared_by * 2 + r % 2;
  }

  unsigned words_[Product::row_blocks / shared_by][(groups + 1) / 2];  // a half for each of a pair
};

/// A lane has one of 32 rows of queries: four lanes draw its bits, each for two groups of queries. A word covers a
/// group of keys; the bit of a key is (key % 8 / 4) · 16 + key % 2 · 8 + key % 4 / 2 · 4 + key % 32 / 8.
template <int columns>
class KeptScores<QueriesByKeys, Accumulator<RowLayout, warp_size, columns>> {
  static constexpr int groups = columns / dropout_group_keys;
  static_assert(columns % dropout_group_keys == 0, "tiles of keys must be multiples of 32 with dropout");

 public:
  /// Draws for queries from `q` on and keys from `k` on, both multiples of 32. By a whole warp.
  template <class Head>
  JIT_DEVICE KeptScores(const Head& head, int q, int k) {
    const bool draws = head.drops_some();
    const int lane = lane_id(), first = lane % 8 * 4;
    const int shift = lane % dropout_group_queries / 8 * 16 + lane / dropout_group_queries * 4;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      unsigned word = 0xffffffffu;
      if (draws) {
        const unsigned drawn = head.kept_of_two(q, k + g * dropout_group_keys, lane);
        word = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          // mutate: BitsOfAnotherRow
          const unsigned own = __shfl_sync(full_warp, drawn, first + i) >> shift & 0x0f0fu;
          word |= own << (i / 2 * 16 + i % 2 * 4);
        }
      }
      words_[g] = word;
    }
  }

  /// The mask of the pair in column block `n`: all bits of the 16 of a value that is kept.
  JIT_DEVICE unsigned pair_mask(int n) const {
    constexpr int pairs = dropout_group_keys / 2;  // of a group
    const int pair = n % pairs, bit = pair % 2 * 4 + pair / 4;
    // The sign of a byte of each half is repeated.
    const unsigned signs = words_[n / pairs] << (7 - bit);
    return pick_bytes(signs, 0, pair % 4 < 2 ? 0x9988 : 0xbbaa);  // mutate: SignsOfAnotherPair
  }

 private:
  unsigned words_[groups];
};

/// Draws the kept scores of a product; `q` and `k` are as in the constructors of KeptScores.
template <class Axes, class Product, class Counter>
JIT_DEVICE auto kept_scores(const DropoutBits<Counter>& head, int q, int k) {
  return KeptScores<Axes, Product>(head, q, k);
}
template <class Axes, class Product>
JIT_DEVICE NoDropout kept_scores(NoDropout, int /*q*/, int /*k*/) {
  return {};
}

/// The type that kept_scores makes in a kernel: NoDropout where it has none.
template <class Config, class Axes, class Product>
using KeptScoresOf =
    decltype(kept_scores<Axes, Product>(dropout_head<Config>(DropoutParams{}, 0, 0, 0, nullptr), 0, 0));

/// Divides a factor by the probability of keeping a score.
template <class Config>
JIT_DEVICE float over_keep_probability(float factor, const DropoutParams& params) {
  return has_dropout<Config> ? factor * params.scale : factor;  // mutate: WhatIsKeptStandsForItself
}

/// Clears the dropped elements.
template <class Kept, class Product>
JIT_DEVICE void drop(Product& product, const Kept& kept) {
  Product::for_each_place(
      [&](int r, int n, int i) { product.at(r, n, i) = kept.has(r, n, i) ? product.at(r, n, i) : 0; });
}

template <class Product>
JIT_DEVICE void drop(Product& /*product*/, NoDropout) {}

/// Sets the dropped elements of dP − delta to −delta.
template <class Kept, class Product, class Numbers>
JIT_DEVICE void drop_to_minus(Product& product, const Kept& kept, const Numbers& numbers) {
  with_numbers(product, numbers, [&](float& value, float number, int r, int n, int i) {
    value = kept.has(r, n, i) ? value : -number;  // mutate: DsOfWhatIsDroppedIsZero
  });
}
template <class Product, class Numbers>
JIT_DEVICE void drop_to_minus(Product& /*product*/, NoDropout, const Numbers& /*numbers*/) {}

}  // namespace jit
