// Tensors of a call that TMA can map.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

/// The most work tiles per launch: list indices are 32-bit and may exceed the end by the number of blocks.
inline constexpr std::int64_t max_work_tiles = std::numeric_limits<std::int32_t>::max() / 4;

/// Alignment of rows that TMA requires, in bytes.
inline constexpr int tma_alignment = 16;
inline constexpr std::int64_t tma_stride_limit = std::int64_t{1} << 40;  ///< limit, exclusive
inline constexpr int fewest_tile_rows = 64;  ///< smallest tile of queries in TMA kernels

/// A tensor as TMA maps it.
struct TmaOperand {
  const char* name;
  const void* data;
  const TensorStrides& strides;
  std::int64_t batch;  ///< pages of paged, 1 of varlen sequences
  std::int64_t seqlen;
  std::int64_t heads;
};

/// q, k, v and o of a call, which must outlive them. Inline, since every call uses it.
inline std::array<TmaOperand, 4> tma_operands(const AttentionParams& params) {
  const SequenceParams& sequences = params.sequences;
  std::int64_t batch_q = params.batch, batch_kv = params.batch;
  std::int64_t rows_q = params.seqlen_q, rows_kv = params.seqlen_kv;
  if (sequences.cu_seqlens_q != nullptr) {
    batch_q = 1;
    rows_q = sequences.total_q;
  }
  if (sequences.cu_seqlens_k != nullptr) {
    batch_kv = 1;
    rows_kv = sequences.total_k;
  } else if (sequences.page_table != nullptr) {
    batch_kv = sequences.pages;
    rows_kv = params.seqlen_kv / std::max(1, sequences.max_pages);
  }
  return {{{"q", params.q, params.q_strides, batch_q, rows_q, params.heads_q},
           {"k", params.k, params.k_strides, batch_kv, rows_kv, params.heads_kv},
           {"v", params.v, params.v_strides, batch_kv, rows_kv, params.heads_kv},
           {"o", params.o, params.o_strides, batch_q, rows_q, params.heads_q}}};
}

/// do, dk and dv of a backward call.
struct GradientOperands {
  TmaOperand d_o, dk, dv;
};
GradientOperands tma_operands(const AttentionParams& params, const GradientParams& gradients);

/// Whether TMA can map an operand: rows are aligned to tma_alignment, and strides of dimensions with several
/// elements are positive and below 2^40 bytes. True without rows, since nothing is read.
inline bool is_mappable(const TmaOperand& operand) {
  if (operand.seqlen == 0 || operand.batch == 0) return true;  // without keys nothing is read
  // Rows of 16-bit elements with this alignment are sufficient for 8-bit ones, too.
  constexpr int element_size = 2;
  const auto is_legal = [](std::int64_t size, std::int64_t stride) {
    const std::int64_t bytes = stride * element_size;
    return size <= 1 || (bytes > 0 && bytes < tma_stride_limit && bytes % tma_alignment == 0);
  };
  return reinterpret_cast<std::uintptr_t>(operand.data) % tma_alignment == 0 &&
         is_legal(operand.batch, operand.strides.batch) && is_legal(operand.seqlen, operand.strides.seq) &&
         is_legal(operand.heads, operand.strides.head);
}

/// Whether heads · tiles of queries is within max_work_tiles.
inline bool has_few_tiles(const AttentionParams& params) {
  const std::int64_t tiles = (std::int64_t{params.seqlen_q} + fewest_tile_rows - 1) / fewest_tile_rows;
  return params.heads_q == 0 || tiles <= max_work_tiles / params.heads_q;
}

/// Whether TMA kernels can serve the call: all operands are mappable, tiles are few, and paged calls have no
/// cache_leftpad. Otherwise a kernel without TMA computes it.
bool can_map(const AttentionParams& params);

/// Whether TMA backward kernels can serve the call: they read do, write dk and dv, and number varlen tiles of
/// 64 rows.
bool can_map(const AttentionParams& params, const GradientParams& gradients);

}  // namespace jit
