// Elements of q, k, v and o, and what follows from their width. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"
#include "jit/options.h"

namespace jit {

/// A 16-bit float of either kind is stored as its bits; arithmetic is done in fp32 after conversion.
struct bf16 {
  unsigned short bits;
};
struct fp16 {
  unsigned short bits;
};

/// Bytes of one lane's row in ldmatrix, and of the widest cp.async.
inline constexpr int chunk_bytes = 16;

/// The k of one mma.sync or wgmma: 32 bytes of a row, for any type.
JIT_HOST_DEVICE constexpr int mma_k_of(int element_bytes) { return 32 / element_bytes; }

template <class Element>
struct ElementTraits {
  static constexpr int bytes = sizeof(Element);
  static constexpr int per_chunk = chunk_bytes / bytes;
  static constexpr int mma_k = mma_k_of(bytes);
};

/// Bytes of an element, the host's default: most elements have 16 bits.
inline constexpr int element_bytes = ElementTraits<bf16>::bytes;

/// Head dims are padded in shared memory to whole steps of an mma.
JIT_HOST_DEVICE constexpr int padded_head_dim(int head_dim, int mma_k = ElementTraits<bf16>::mma_k) {
  return (head_dim + mma_k - 1) / mma_k * mma_k;
}

/// The most columns of O of which a warp accumulates 16 rows: these take half of a thread's registers.
inline constexpr int most_warp_columns = 256;

/// Warps among which the columns of an output are divided, if it has more than that. Each computes all scores of its
/// rows; together they have a thread for each chunk of a row.
JIT_HOST_DEVICE constexpr int column_warps(int head_dim, int head_dim_v) {
  return ((head_dim > head_dim_v ? head_dim : head_dim_v) + most_warp_columns - 1) / most_warp_columns;
}
/// Columns of each of `warps` warps. With several warps, each begins at a multiple of 128 bytes, the period of the
/// swizzle.
JIT_HOST_DEVICE constexpr int warp_columns(int columns, int warps, int bytes = element_bytes) {
  constexpr int swizzle_bytes = 128;
  return warps == 1 ? padded_head_dim(columns)
                    : padded_head_dim((columns + warps - 1) / warps, swizzle_bytes / bytes);
}
/// Columns of a tile that all of these warps read.
JIT_HOST_DEVICE constexpr int shared_columns(int columns, int warps, int bytes = element_bytes) {
  return warps * warp_columns(columns, warps, bytes);
}

/// The element of o: that of q, k and v unless the Config names another.
template <class Config>
struct OutputElementOf {
  using type = typename Config::Element;
};
template <class Config>
requires requires { typename Config::OutputElement; }
struct OutputElementOf<Config> {
  using type = typename Config::OutputElement;
};
template <class Config>
using OutputElement = typename OutputElementOf<Config>::type;

/// Whether O has 8 bits, and scales.
template <class Config>
inline constexpr bool quantizes_output = sizeof(OutputElement<Config>) == 1;
/// Whether the epilogue computes scales of rows of O; else they are given.
template <class Config>
concept finds_output_scales = Config::o_descale;

/// Bytes that rows of O are aligned to.
template <class Config>
inline constexpr int output_alignment = Config::alignment;
template <class Config>
requires(quantizes_output<Config>&& Config::head_dim_v % chunk_bytes != 0 &&
         Config::alignment > 8) inline constexpr int output_alignment<Config> = 8;

/// The element of k and v: that of q unless the Config names another.
template <class Config>
struct KvElementOf {
  using type = typename Config::Element;
};
template <class Config>
requires requires { typename Config::KvElement; }
struct KvElementOf<Config> {
  using type = typename Config::KvElement;
};
template <class Config>
using KvElement = typename KvElementOf<Config>::type;

/// Numbers in an element: packed 4-bit elements have two.
template <class Element>
inline constexpr int numbers_of = 1;
template <class Element>
requires requires { Element::numbers; }
inline constexpr int numbers_of<Element> = Element::numbers;
/// Elements of a row with `columns` columns.
template <class Element>
JIT_HOST_DEVICE constexpr int stored_columns(int columns) {
  return columns / numbers_of<Element>;
}
/// Columns that share a one-byte scale; 0: no block scales.
template <class Element>
inline constexpr int scale_columns_of = 0;
template <class Element>
requires requires { Element::scale_columns; }
inline constexpr int scale_columns_of<Element> = Element::scale_columns;

/// Whether k and v have 4-bit elements, two per byte.
template <class Config>
inline constexpr bool keys_are_packed = numbers_of<KvElement<Config>> > 1;

/// Bytes of a row's block scales in shared memory: whole words.
JIT_HOST_DEVICE constexpr int block_scale_bytes(int columns, int scale_columns) {
  return scale_columns == 0 ? 0 : (columns / scale_columns + (columns % scale_columns != 0) + 3) / 4 * 4;
}

/// Whether k and v have 8-bit or 4-bit elements, with scales.
template <class Config>
inline constexpr bool keys_are_narrow = sizeof(KvElement<Config>) == 1;

/// Whether converters multiply numbers of k and v by the scales of their rows, or of blocks of these. Nobody else sees them.
template <class Config>
concept converts_scales = Config::converts_scales;

/// Bytes of such scales of a row of so many columns, which are whole words: one of fp32, or a byte for each block.
template <class Config>
JIT_HOST_DEVICE constexpr int converted_scale_bytes(int columns) {
  constexpr int block = scale_columns_of<KvElement<Config>>;
  if (!converts_scales<Config>) return 0;
  return block == 0 ? static_cast<int>(sizeof(float)) : columns / (block == 0 ? 1 : block);
}

/// Whether an earlier kernel has upcast 8-bit k and v to q's type.
template <class Config>
concept keys_upcast_ahead = Config::upcast_ahead;

/// Whether k and v have scales.
template <class Config>
// mutate: KeysUpcastAheadUnscaled
inline constexpr bool has_scaled_keys = keys_are_narrow<Config> || keys_upcast_ahead<Config>;

/// Whether each key has scales of its own.
template <class Config>
concept has_token_scales = Config::descale_per == ScaleKind::token;

/// Whether each block of scale_block_rows queries, or keys, has a scale. Blocks are counted from the first row of a
/// batch entry, of all varlen rows, or of a page.
template <class Config>
concept has_block_scales = Config::descale_per == ScaleKind::block;

/// Whether each row, or block of rows, has a scale.
template <class Config>
inline constexpr bool has_row_scales = has_token_scales<Config> || has_block_scales<Config>;
template <class Config>
inline constexpr int rows_of_scale = has_block_scales<Config> ? scale_block_rows : 1;

/// Whether blocks are aligned to tiles, because sequences begin with the first row of a batch entry.
template <class Config>
inline constexpr bool has_block_factors = false;
template <class Config>
requires has_block_scales<Config>
inline constexpr bool has_block_factors<Config> = Config::sequences_q == SequenceKind::dense &&
                                                  Config::sequences_kv == SequenceKind::dense &&
                                                  !Config::sinks;

/// Whether each column of values has a scale of its own.
template <class Config>
concept has_channel_scales = Config::v_descale_per == ScaleKind::channel;

/// Whether a mean of each column has been subtracted from values.
template <class Config>
concept has_value_means = Config::v_mean;

/// Whether the epilogue multiplies or shifts columns of O.
template <class Config>
inline constexpr bool finishes_columns = has_channel_scales<Config> || has_value_means<Config>;

/// Whether a mean of the keys has been subtracted, which shifts LSE.
template <class Config>
concept has_lse_shifts = Config::lse_shift;

/// Whether calls raise the largest score of each head, and of each row.
template <class Config>
concept has_max_logit = Config::max_logit;
template <class Config>
concept has_row_max = Config::row_max;
/// Whether calls write the mean of each row's scores.
template <class Config>
concept has_mean_score = Config::mean_score;
/// Whether calls add their keys to O and running_lse, results over other keys.
template <class Config>
concept has_running_lse = Config::running_lse;
/// Whether kernels keep the largest score of each row.
template <class Config>
inline constexpr bool keeps_largest_scores = has_max_logit<Config> || has_row_max<Config>;

}  // namespace jit
