// Parameters of a quantizer of q, k and v. Compiled by the host and by NVRTC.
#pragma once

#include "base/params.cuh"
#include "base/row_lanes.cuh"

namespace jit {

enum class QkvTensor { q, k, v };

/// Threads of a block. Few, whose pieces of work are small, wait less for one another, but leave the more statistics:
/// where these are of columns it takes longer to add them up (docs/records/notebook.md, "The quantizer whose blocks stay"). Scales
/// of blocks of rows want these whole in a piece of work.
JIT_HOST_DEVICE constexpr int quantize_threads(bool has_column_statistics, bool has_block_scales) {
  return has_column_statistics || has_block_scales ? 256 : 128;
}
/// Threads of a program that keeps rows: its pieces of work are those of the most threads above, so that sums have one
/// order in both.
inline constexpr int resident_threads = 256;
/// As many as shared memory has room for on sm_90.
JIT_HOST_DEVICE constexpr int quantize_blocks_per_sm(int threads) { return 3 * 256 / threads; }
/// Rows that a lane has of a piece of work.
inline constexpr int quantize_steps = 8;

/// Tokens of a head that a piece of work has.
JIT_HOST_DEVICE constexpr int quantize_chunk(const RowLanes& share, int threads) {
  return quantize_steps * threads / share.lanes;
}

/// Shared memory for the rows of a piece of work, as they are read.
JIT_HOST_DEVICE constexpr int quantize_row_bytes(const RowLanes& share, int element_bytes, int threads) {
  const int piece_words = (share.piece * element_bytes + 3) / 4;
  return quantize_steps * share.iterations * threads * 4 * piece_words;
}

/// Bytes of a buffer, where the largest tensor's rows have so many bytes: with lengths, beside them a word of
/// each thread.
JIT_HOST_DEVICE constexpr int quantize_buffer_bytes(int row_bytes, bool has_lengths, int threads) {
  return row_bytes + (has_lengths ? 4 * threads : 0);
}

/// Two, so that the rows of the next piece of work come while a block has its present one; of fp32 in long rows, and others
/// of large pieces, these would leave room for few blocks, which come one after another instead.
JIT_HOST_DEVICE constexpr int quantize_buffers(int row_bytes) { return row_bytes <= 32 * 1024 ? 2 : 1; }

/// Floats that a piece of work leaves of its rows. Of each column its sum where the tensor is centered, and for a scale the
/// largest magnitude, which of a centered one is found from the largest and the least number. For the scale of a head
/// that is not centered, one magnitude of all columns.
JIT_HOST_DEVICE constexpr int statistic_numbers(int columns, bool is_centered, QuantizedScales scales) {
  const bool has_extremes = scales == QuantizedScales::head || scales == QuantizedScales::channel;
  if (scales == QuantizedScales::head && !is_centered) return 1;
  return columns * ((is_centered ? 1 : 0) + (has_extremes ? (is_centered ? 2 : 1) : 0));
}

/// The rotation of rows of q, or of k, as Rotation reads it.
struct RotaryParams {
  const long long* positions;  ///< (batch · seqlen); null: a row's own in its batch entry
  long long positions_stride;  ///< 0: there is one axis
  const void* cos;             ///< (max_pos, rotary_dim / 2)
  const void* sin;
  long long cos_stride;
  long long sin_stride;
  int max_pos;
};

/// One of q, k and v.
struct QuantizeTensor {
  const void* from;  ///< (batch, seqlen, heads, columns)
  void* to;          ///< the same, of 8 bits
  TensorStrides from_strides;
  TensorStrides
      to_strides;  ///< of values along the sequence, where tokens have stride 1, `seq` is that of columns
  /// Read where scales are given, else written: strides of batch, seq and head are 0 along what they do not depend on;
  /// the channels of a head lie side by side.
  float* descale;
  TensorStrides descale_strides;
  float* mean;              ///< (batch, heads_kv, columns), dense; may be null
  float* statistics;        ///< (batch, heads_kv, items, statistic_numbers)
  float* results;           ///< (batch, heads_kv, 2, columns): means, and what elements are multiplied by
  const void* norm_weight;  ///< (columns)
  RotaryParams rotary;
  // Lengths of Config::sequences that are not dense; as the other tensor may have them, both may be null: all
  // rows are a sequence's.
  const int* cu_seqlens;  ///< of varlen rows (sequences + 1), where each sequence begins
  const int* seqused;     ///< (sequences), rows of each, where it has room for more
  int sequences;          ///< of varlen rows
  int seqlen;
  int heads;    ///< that belong to a KV head
  int items;    ///< pieces of work for a KV head: `heads` for each chunk of tokens
  int waiting;  ///< pieces of work that wait for a KV head's results
};

struct QuantizeParams {
  QuantizeTensor q;
  QuantizeTensor k;
  QuantizeTensor v;
  float* lse_shift;  ///< (batch, heads_q, seqlen_q); may be null
  long long lse_shift_batch_stride;
  long long lse_shift_head_stride;
  unsigned signs[8];  ///< bit c % 32 of word c / 32: whether column c changes its sign before the rotation
  int units;          ///< batch · heads_kv
  int heads_kv;
  int pieces;  ///< of work
  int lag;     ///< units whose statistics are collected before the first one is rounded
  float norm_eps;
  unsigned* counters;  ///< a ticket, then three for each unit; all bits are 1 between kernels
};

}  // namespace jit
