// Copies the scales of 8-bit keys, one per key or block of keys, into shared memory beside their tile: by one warp,
// next to TMA, or as part of a block's cp.async copies.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/paged_kv.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/cp_async.cuh"
#include "scheduling/work_tiles.cuh"
#include "steps/block_factors.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Starts the copy of word `word` of a row's block scales, `count` bytes in all; writes zeros if `row` is null. If
/// `count` is a multiple of 4, rows are aligned to 4 bytes; otherwise bytes are read one by one.
template <int count>
JIT_DEVICE void copy_scale_word(unsigned target, const unsigned char* row, int word) {
  if constexpr (count % 4 == 0) {
    cp_async_zfill<4>(target, row + word * 4, row != nullptr);
  } else {
    unsigned bytes = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row != nullptr && word * 4 + i < count)
        bytes |= static_cast<unsigned>(row[word * 4 + i]) << (8 * i);
    }
    store_shared(target, static_cast<int>(bytes));
  }
}

/// Starts the copy of an fp32 scale; writes 0 if `scale` is null.
JIT_DEVICE void copy_scale(unsigned target, const float* scale) {
  cp_async_zfill<4>(target, scale, scale != nullptr);
}
/// Starts the copies of all `count` block scales of a row.
template <int count>
JIT_DEVICE void copy_scale_words(unsigned target, const unsigned char* row) {
  static_assert(count % 4 == 0, "cp.async copies scales as whole words");
#pragma unroll
  for (int word = 0; word < count / 4; ++word) copy_scale_word<count>(target + word * 4, row, word);
}

/// Calls use(row, place, exists) for all rows of a tile that is copied in boxes, spread over the lanes. `box` is the
/// lane's own box; the first `keys` rows exist. By a whole warp.
template <class Traits, class Use>
JIT_DEVICE void for_tile_rows(const AttentionParams& params, const RowPlace& box, int keys, const Use& use) {
  using Config = typename Traits::Config;
  const PagedKv<Config> paged(params);
#pragma unroll 1
  for (int first = 0; first < Config::tile_kv; first += warp_size) {
    const int row = first + lane_id(), lane = minimum(row / Traits::box_rows, Traits::boxes - 1);
    const int batch = __shfl_sync(full_warp, box.batch, lane), seq = __shfl_sync(full_warp, box.seq, lane);
    // mutate: ScalesOfTheBoxesFirstRow
    const RowPlace place{seq + row % Traits::box_rows, box.head, batch};
    if (row < Config::tile_kv) use(row, place, row < keys && paged.exists(batch));
  }
}

/// The scale of row `row` of a sequence; `of_head` points to the KV head's first scale. 0 if the row's page does not
/// exist, since its keys are zeros.
template <class Config>
JIT_DEVICE float key_scale(const AttentionParams& params, const float* of_head, const TensorStrides& strides,
                           int batch, int row) {
  if constexpr (Config::sequences_kv == SequenceKind::paged) {
    const int page = VariableSequences<Config>(params).page(batch, row);
    if (page < 0 || page >= params.sequences.pages) return 0;
    return of_head[page * strides.batch + row % Config::page_size / rows_of_scale<Config> * strides.seq];
  }
  return of_head[batch * strides.batch + row / rows_of_scale<Config> * strides.seq];
}

/// Writes the scales of a tile's keys to shared address `target`. By a whole warp.
template <class Config>
JIT_DEVICE void write_key_scales(const AttentionParams& params, const WorkTile& work,
                                 const Sequence& sequence, int k_begin, unsigned target) {
  const TensorStrides& strides = params.descale.k_strides;
  // mutate: ScaleOfAnotherHeadsKey
  const float* const of_head = params.descale.k + work.head / Config::gqa_ratio * strides.head;
  if constexpr (has_block_factors<Config>) {
    constexpr int keys = keys_of_factor(Config::tile_kv);
    if (const int i = lane_id(); i < Config::tile_kv / keys) {
      const int row = minimum(k_begin + i * keys, sequence.length - 1);  // mutate: ScaleOfAnotherBlock
      store_shared(target + i * 4,
                   __float_as_int(key_scale<Config>(params, of_head, strides, work.batch, row)));
    }
    return;
  }
#pragma unroll
  for (int i = lane_id(); i < Config::tile_kv; i += warp_size) {
    const int row = sequence.begin + minimum(k_begin + i, sequence.length - 1);  // mutate: ScaleOfAnotherKey
    store_shared(target + i * 4,
                 __float_as_int(key_scale<Config>(params, of_head, strides, work.batch, row)));
  }
}

/// Copies scales of dense keys by cp.async, by a block of `threads` threads. Does nothing if keys have no scales of
/// their own.
template <class Config, int threads>
class KeyScalesCopy {
 public:
  JIT_DEVICE KeyScalesCopy(const AttentionParams& params, int batch, int kv_head, int seqlen_kv)
      : of_head_(params.descale.k + batch * params.descale.k_strides.batch +
                 kv_head * params.descale.k_strides.head),
        stride_(params.descale.k_strides.seq),
        seqlen_kv_(seqlen_kv) {}

  /// Starts the copy of the scales of a tile's keys, from `first_key` on, to a shared address.
  JIT_DEVICE void load(unsigned target, int first_key) const {
    if constexpr (!has_row_scales<Config>) return;
    constexpr int keys = has_block_scales<Config> ? keys_of_factor(Config::tile_kv) : 1;  // of a scale
    constexpr int count = Config::tile_kv / keys;
#pragma unroll
    for (int i = 0; i < count; i += threads) {
      const int place = i + static_cast<int>(threadIdx.x);
      if (count % threads != 0 && place >= count) break;
      const int key = first_key + place * keys;  // mutate: OneScaleATile
      // mutate: TokensOfTheFirstTile
      cp_async_zfill<4>(target + place * 4, of_head_ + key / rows_of_scale<Config> * stride_,
                        key < seqlen_kv_);
    }
  }

 private:
  const float* of_head_;
  long long stride_;
  int seqlen_kv_;
};

}  // namespace jit
