// Dropout of probabilities. Whether one is kept is a function of seed, offset, batch entry, head, query and key alone,
// and the same one as in flash-attention and PyTorch's flash backend (csrc/flash_attn/src/dropout.h and philox.cuh of
// Dao-AILab/flash-attention), so that all kernels agree with one another and with those. A group is 16 queries by 32
// keys. The counter is
//
//     low 64 bits    offset + (batch · heads + head) · 32 + lane
//     high 64 bits   key / 32, query / 16
//
// and the 16 bytes that come of it belong to the 16 scores of the group that a lane has as accumulators of mma.sync:
// lane = query % 8 · 4 + key % 8 / 2, byte = key % 32 / 8 · 4 + query % 16 / 8 · 2 + key % 2. A score is kept if its byte
// is at most the threshold.
#pragma once

#include "base/dropout_params.cuh"
#include "base/philox.cuh"
#include "base/prelude.cuh"
#include "ptx/math.cuh"
#include "steps/product_axes.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// Whether kernels of a Config have dropout: only where they have does it say so.
template <class Config>
inline constexpr bool has_dropout = requires {
  requires Config::dropout;
};

inline constexpr int dropout_group_queries = 16;
inline constexpr int dropout_group_keys = 32;

/// The random bits of one head of a batch entry.
struct DropoutHead {
  unsigned long long seed;
  unsigned long long counter;  ///< of lane 0
  unsigned thresholds;

  __device__ __forceinline__ DropoutHead(const DropoutParams& params, int heads_q, int batch, int head)
      : seed(params.rng_state[0]),
        counter(params.rng_state[1] + (static_cast<unsigned long long>(batch) * heads_q + head) * warp_size),
        thresholds(params.thresholds) {}

  /// Of the scores of the group that holds query `q` and key `k` which are kept of those of `lane`: bit
  /// 8 · (2 · (query % 16 / 8) + key % 2) + key % 32 / 8 tells. The upper half of each byte is 0.
  __device__ __forceinline__ unsigned kept(int q, int k, int lane) const {
    constexpr unsigned upper_bits = 0x80808080u;
    const unsigned long long low = counter + lane;
    const PhiloxWords random = philox<7>(
        {{static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
          static_cast<unsigned>(q / dropout_group_queries), static_cast<unsigned>(k / dropout_group_keys)}},
        static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
    unsigned bits = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      // Four comparisons at once: of the lower 7 bits by a subtraction that no byte borrows from its neighbour for, and
      // of the upper ones.
      const unsigned x = random.words[w];
      const unsigned not_less = (thresholds | upper_bits) - (x & ~upper_bits);
      const unsigned is_kept = ((thresholds & ~x) | (~(thresholds ^ x) & not_less)) & upper_bits;
      bits |= is_kept >> (7 - w);
    }
    return bits;
  }

  /// Of one score.
  __device__ __forceinline__ bool keeps(int q, int k) const {
    return (kept(q, k, q % 8 * 4 + k % 8 / 2) >> (8 * (q % 16 / 8 * 2 + k % 2) + k % 32 / 8) & 1) != 0;
  }
};

/// In place of what follows in kernels without dropout.
struct NoDropout {};

/// Of a head of a batch entry.
template <class Config>
__device__ __forceinline__ auto dropout_head(const DropoutParams& params, int heads_q, int batch, int head) {
  if constexpr (has_dropout<Config>) {
    return DropoutHead(params, heads_q, batch, head);
  } else {
    return NoDropout{};
  }
}

/// Which of a warp's scores are kept, a bit each. `Axes` says what rows and columns of the product are.
template <class Axes, class Product>
class KeptScores;

/// Rows are queries: a lane's bits are those of its own scores.
template <class Product>
class KeptScores<QueriesByKeys, Product> {
  static constexpr int blocks = dropout_group_keys / MmaLayout::block_columns;  // of columns, in a group
  static constexpr int groups = Product::column_blocks / blocks;
  static_assert(Product::column_blocks % blocks == 0, "tiles of keys must be multiples of 32 with dropout");

 public:
  KeptScores() = default;
  /// Of the product whose first row is that of query `q`, a multiple of 16, and whose first column is that of key
  /// `k`, a multiple of 32.
  __device__ __forceinline__ KeptScores(const DropoutHead& head, int q, int k) {
    const int lane = lane_id();
#pragma unroll
    for (int m = 0; m < Product::row_blocks; ++m) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const unsigned bits = head.kept(q + m * dropout_group_queries, k + g * dropout_group_keys, lane)
                              << g % 2 * 4;
        words_[m][g / 2] = g % 2 == 0 ? bits : words_[m][g / 2] | bits;
      }
    }
  }

  __device__ __forceinline__ bool has(int r, int n, int i) const {
    const int g = n / blocks;
    return (words_[r / 2][g / 2] >> (8 * (2 * (r % 2) + i) + g % 2 * 4 + n % blocks) & 1) != 0;
  }

 private:
  unsigned words_[Product::row_blocks][(groups + 1) / 2];
};

/// Rows are keys: the bits of a lane's scores are those of two other lanes.
template <class Product>
class KeptScores<KeysByQueries, Product> {
  static constexpr int blocks = dropout_group_queries / MmaLayout::block_columns;  // of columns, in a group
  static constexpr int groups = Product::column_blocks / blocks;
  // Where pairs of blocks of rows begin with a group, they share its bits.
  static constexpr int shared_by = Product::row_blocks % 2 == 0 ? 2 : 1;

 public:
  KeptScores() = default;
  /// Of the product whose first row is that of key `k`, a multiple of 16 and of the rows, and whose first column is that
  /// of query `q`, a multiple of 16.
  __device__ __forceinline__ KeptScores(const DropoutHead& head, int q, int k) {
    const int lane = lane_id(), row = MmaLayout::lane_row(lane), column = MmaLayout::lane_column(lane);
#pragma unroll
    for (int m = 0; m < Product::row_blocks; m += shared_by) {
      const int key = k + m * MmaLayout::block_rows;
      const int shift = shared_by == 1 ? key % dropout_group_keys / 8 : 0;  // first key of four in a byte
#pragma unroll
      for (int g = 0; g < groups; g += 2) {
        unsigned bits = head.kept(q + g * dropout_group_queries, key, lane);
        if (g + 1 < groups) bits |= head.kept(q + (g + 1) * dropout_group_queries, key, lane) << 4;
        const unsigned first = __shfl_sync(full_warp, bits, column * 4 + row / 2);
        const unsigned second = __shfl_sync(full_warp, bits, column * 4 + 4 + row / 2);
        // Every other byte is of another key than the lane's.
        words_[m / shared_by][g / 2] = pick_bytes(first, second, row % 2 == 0 ? 0x6420 : 0x7531) >> shift;
      }
    }
  }

  __device__ __forceinline__ bool has(int r, int n, int i) const {
    return (word(r, n) >> (16 * i + bit(r, n)) & 1) != 0;
  }
  /// Of the lane's pair in column block `n` of its row `r`: all bits of the 16 of a value that is kept.
  __device__ __forceinline__ unsigned pair_mask(int r, int n) const {
    return (word(r, n) >> bit(r, n) & 0x00010001u) * 0xffffu;
  }

 private:
  __device__ __forceinline__ unsigned word(int r, int n) const {
    return words_[r / 2 / shared_by][n / blocks / 2];
  }
  static __device__ __forceinline__ int bit(int r, int n) {
    return n % blocks * 8 + n / blocks % 2 * 4 + r / 2 % shared_by * 2 + r % 2;
  }

  unsigned words_[Product::row_blocks / shared_by][(groups + 1) / 2];  // a half for each of a pair
};

/// Those of a product, whose place is as their constructors have it.
template <class Axes, class Product>
__device__ __forceinline__ auto kept_scores(const DropoutHead& head, int q, int k) {
  return KeptScores<Axes, Product>(head, q, k);
}
template <class Axes, class Product>
__device__ __forceinline__ NoDropout kept_scores(NoDropout, int /*q*/, int /*k*/) {
  return {};
}

/// What kept_scores makes in a kernel: NoDropout where it has none.
template <class Config, class Axes, class Product>
using KeptScoresOf =
    decltype(kept_scores<Axes, Product>(dropout_head<Config>(DropoutParams{}, 0, 0, 0), 0, 0));

/// The factor of a sum over scores that were kept: what is left stands for all.
template <class Config>
__device__ __forceinline__ float over_kept_share(float factor, const DropoutParams& params) {
  return has_dropout<Config> ? factor * params.scale : factor;
}

/// Sets to 0 what is not kept.
template <class Kept, class Product>
__device__ __forceinline__ void drop(Product& product, const Kept& kept) {
#pragma unroll
  for (int r = 0; r < Product::rows; ++r) {
#pragma unroll
    for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
      for (int i = 0; i < Product::pair; ++i)
        product.at(r, n, i) = kept.has(r, n, i) ? product.at(r, n, i) : 0;
    }
  }
}

template <class Product>
__device__ __forceinline__ void drop(Product& /*product*/, NoDropout) {}

/// The same of a step of a product that is packed (Accumulator::pack_step).
template <class Kept>
__device__ __forceinline__ void drop_packed(unsigned (&a)[4], const Kept& kept, int m, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] &= kept.pair_mask(2 * m + i % 2, 2 * step + i / 2);
}
__device__ __forceinline__ void drop_packed(unsigned (&/*a*/)[4], NoDropout, int /*m*/, int /*step*/) {}

/// Sets to −delta what is not kept of dP − delta.
template <class Kept, class Product, class Numbers>
__device__ __forceinline__ void drop_to_minus(Product& product, const Kept& kept, const Numbers& numbers) {
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
    const auto& block = numbers.at(n);
#pragma unroll
    for (int r = 0; r < Product::rows; ++r) {
#pragma unroll
      for (int i = 0; i < Product::pair; ++i)
        product.at(r, n, i) = kept.has(r, n, i) ? product.at(r, n, i) : -block.of(r, i);
    }
  }
}
template <class Product, class Numbers>
__device__ __forceinline__ void drop_to_minus(Product& /*product*/, NoDropout, const Numbers& /*numbers*/) {}

}  // namespace jit
