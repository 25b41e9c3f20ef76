// Fills padding rows of o and LSE of sequences whose lengths are known only on the device: after the queries in use,
// before and between varlen sequences, and after the last one. If a call asks for it, they get the values of a query
// that sees no key, so that a batch padded to a fixed size, as for a captured graph, holds nothing of earlier calls.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// Runs of rows without a query, possibly empty: one after each sequence and, with varlen queries, one before the
/// first.
template <class Config>
class PaddedRows {
  static constexpr bool is_varlen = Config::sequences_q == SequenceKind::varlen;

 public:
  JIT_DEVICE explicit PaddedRows(const AttentionParams& params) : params_(params), sequences_(params) {}

  JIT_DEVICE int count() const { return params_.batch + (is_varlen ? 1 : 0); }
  /// Rows of run `i`; none when there is no such run.
  JIT_DEVICE Sequence rows(int i) const {
    if (i >= count()) return {0, 0};
    const int before = is_varlen ? i - 1 : i;  // sequence before the run
    int begin = 0, end = Config::seqlen_q != 0 ? Config::seqlen_q : params_.seqlen_q;
    if (before >= 0) {
      const Sequence used = sequences_.q(before);
      begin = used.begin + used.length;
    }
    if constexpr (is_varlen) end = i < params_.batch ? sequences_.q(i).begin : params_.sequences.total_q;
    return {begin, maximum(0, end - begin)};
  }
  /// The batch entry that the rows of run `i` lie in.
  static JIT_DEVICE int batch(int i) { return is_varlen ? 0 : i; }

 private:
  const AttentionParams& params_;
  VariableSequences<Config> sequences_;
};

/// Writes zeros to a row of `o`, a tensor like O, for all heads. By a whole warp.
template <class Config>
JIT_DEVICE void write_zeros(const AttentionParams& params, void* o, const TensorStrides& strides, int batch,
                            int row) {
  using Element = OutputElement<Config>;
  constexpr int bytes = maximum<int>(output_alignment<Config>, sizeof(Element)),
                piece = bytes / static_cast<int>(sizeof(Element));
  constexpr int pieces = Config::head_dim_v / piece;
  constexpr unsigned zeros[(bytes + 3) / 4] = {};
  const long long count = static_cast<long long>(params.heads_q) * pieces;
  for (long long i = lane_id(); i < count; i += warp_size) {
    const long long first =
        VariableSequences<Config>::query_offset(strides, batch, static_cast<int>(i / pieces), row);
    store_words<bytes, bytes>(static_cast<Element*>(o) + first + i % pieces * piece, zeros);
  }
}

/// Writes the outputs of one row, for all heads. By a whole warp.
template <class Config>
JIT_DEVICE void write_zero_row(const AttentionParams& params, int batch, int row) {
  write_zeros<Config>(params, params.o, params.o_strides, batch, row);
  if constexpr (requires { typename Config::OutputFunctor; }) {
    if (params.outputs.o_raw != nullptr)
      write_zeros<Config>(params, params.outputs.o_raw, params.outputs.o_raw_strides, batch, row);
  }
  if constexpr (finds_output_scales<Config>) {
    for (int head = lane_id(); head < params.heads_q; head += warp_size)
      params.outputs.o_descale[VariableSequences<Config>::query_offset(params.outputs.o_descale_strides,
                                                                       batch, head, row)] = 1;
  }
  if constexpr (has_mean_score<Config>) {
    for (int head = lane_id(); head < params.heads_q; head += warp_size)
      params.outputs.mean_score[VariableSequences<Config>::query_offset(params.outputs.mean_score_strides,
                                                                        batch, head, row)] = 0;
  }
  if (params.lse == nullptr) return;
  for (int head = lane_id(); head < params.heads_q; head += warp_size)
    params.lse[VariableSequences<Config>::query_offset(params.lse_strides, batch, head, row)] =
        negative_infinity();
}

/// Writes o = 0 and LSE = −inf to padding rows, if the call asks for it: the part of warp `warp` of `warps` warps of
/// all blocks. By whole warps, at any time: no other thread writes these rows.
template <class Config>
JIT_DEVICE void zero_padding(const AttentionParams& params, int warp, int warps) {
  if (params.sequences.zero_padding == 0) return;
  const PaddedRows<Config> padded(params);
#pragma unroll 1
  for (int first = 0; first < padded.count(); first += warp_size) {
    const Sequence own = padded.rows(first + lane_id());
    unsigned left = __ballot_sync(full_warp, own.length > 0);
#pragma unroll 1
    while (left != 0) {
      const int lane = __ffs(static_cast<int>(left)) - 1;
      left &= left - 1;
      const Sequence rows{__shfl_sync(full_warp, own.begin, lane), __shfl_sync(full_warp, own.length, lane)};
      // Short runs begin with different warps.
#pragma unroll 1
      for (long long row = (warp + first + lane) % warps; row < rows.length; row += warps)
        write_zero_row<Config>(params, PaddedRows<Config>::batch(first + lane),
                               rows.begin + static_cast<int>(row));
    }
  }
}

}  // namespace jit
