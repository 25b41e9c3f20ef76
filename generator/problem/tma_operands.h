// Which tensors of a call TMA can copy.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

/// Work tiles of one launch: positions in the list are 32-bit, and run past its end by up to the number of
/// blocks.
inline constexpr std::int64_t max_work_tiles = std::numeric_limits<std::int32_t>::max() / 4;

/// Bytes that TMA wants rows to be aligned to.
inline constexpr int tma_alignment = 16;

/// A tensor as TMA is told of it.
struct TmaOperand {
  const char* name;
  const void* data;
  const TensorStrides& strides;
  std::int64_t batch;  ///< of dense sequences; pages; 1 of ragged ones
  std::int64_t seqlen;
  std::int64_t heads;
};

/// q, k, v and o of a call, which outlives them.
std::array<TmaOperand, 4> tma_operands(const AttentionParams& params);

/// do, dk and dv of a backward call.
struct GradientOperands {
  TmaOperand d_o, dk, dv;
};
GradientOperands tma_operands(const AttentionParams& params, const GradientParams& gradients);

/// Whether rows are aligned to tma_alignment, and every stride is positive and below 2^40 bytes where a dimension has more
/// than one element; and of an operand without rows, of which nothing is read.
bool is_mappable(const TmaOperand& operand);

/// Whether a call has no more than max_work_tiles heads · tiles of queries.
bool has_few_tiles(const AttentionParams& params);

/// Whether a kernel with TMA can serve the call: all operands are mappable, tiles are few, and pages come without
/// cache_leftpad. Otherwise one without computes it.
bool can_map(const AttentionParams& params);

/// The same for a backward kernel, which reads do, writes dk and dv, and numbers the places of ragged tiles of 64 rows.
bool can_map(const AttentionParams& params, const GradientParams& gradients);

}  // namespace jit
