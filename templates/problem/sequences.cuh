// Rows of q, k, v, o and lse, and lengths of sequences: the only source of both on the device.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "jit/options.h"
#include "problem/functor.cuh"
#include "problem/seqlen_info.cuh"
#include "tiles/bounded_box.cuh"

namespace jit {

/// Rows of sequences in tensors (batch, seqlen, heads, head_dim) with constant strides. `Seqlens` returns their
/// lengths: q(batch) and kv(batch).
template <class Config, class Seqlens>
class SequenceRows : public Seqlens {
  using Element = typename Config::Element;

 public:
  using Seqlens::kv;
  using Seqlens::q;

  template <class... Known>
  JIT_DEVICE SequenceRows(const AttentionParams& params, const Known&... known)
      : Seqlens(params, known...), params_(params) {}

  /// The KV head of a query head.
  JIT_DEVICE int kv_head(int head) const { return head / Config::gqa_ratio; }

  /// The context of functors for a query head of a batch entry.
  JIT_DEVICE BlockContext context(int batch, int head) const {
    const Sequence queries = q(batch);
    // mutate: MasksOfOtherLengths
    return {batch, head, params_.heads_q, queries.length, kv(batch).length, queries.begin, params_.tensors};
  }

  /// Row r is that of query, or key, r of the sequence.
  JIT_DEVICE auto query_rows(int batch, int head) const {
    return rows(static_cast<const Element*>(params_.q), params_.q_strides, batch, head, q(batch));
  }
  JIT_DEVICE auto key_rows(int batch, int kv_head) const {
    static_assert(Config::sequences_kv != SequenceKind::paged, "rows of pages do not lie at equal distances");
    return rows(static_cast<const KvElement<Config>*>(params_.k), params_.k_strides, batch, kv_head,
                kv(batch));
  }
  JIT_DEVICE auto value_rows(int batch, int kv_head) const {
    static_assert(Config::sequences_kv != SequenceKind::paged, "rows of pages do not lie at equal distances");
    return rows(static_cast<const KvElement<Config>*>(params_.v), params_.v_strides, batch, kv_head,
                kv(batch));
  }
  JIT_DEVICE auto output_rows(int batch, int head) const {
    return rows(static_cast<OutputElement<Config>*>(params_.o), params_.o_strides, batch, head, q(batch));
  }
  JIT_DEVICE auto lse_rows(int batch, int head) const {
    return rows(params_.lse, params_.lse_strides, batch, head, q(batch));
  }
  JIT_DEVICE auto mean_rows(int batch, int head) const {
    return rows(params_.outputs.mean_score, params_.outputs.mean_score_strides, batch, head, q(batch));
  }
  JIT_DEVICE auto row_max_rows(int batch, int head) const {
    return rows(params_.outputs.row_max, params_.outputs.row_max_strides, batch, head, q(batch));
  }

 private:
  template <class T>
  static JIT_DEVICE DenseRows<T> rows(T* data, const TensorStrides& strides, int batch, int head,
                                      const Sequence& sequence) {
    const DenseRows<T> all{data + batch * strides.batch + head * strides.head, strides.seq};
    return all.from(sequence.begin);
  }

  const AttentionParams& params_;
};

/// Sequences of one length: the compiled one, else that of the call.
template <class Config>
class DenseSeqlens {
 public:
  /// `batch` is ignored, as all entries have one length.
  JIT_DEVICE explicit DenseSeqlens(const AttentionParams& params, int /*batch*/ = 0)
      : seqlen_q_(longest_q(params)), seqlen_kv_(longest_kv(params)) {}

  JIT_DEVICE Sequence q(int /*batch*/) const { return {0, seqlen_q_}; }
  JIT_DEVICE Sequence kv(int /*batch*/) const { return {0, seqlen_kv_}; }
  /// Lengths of the longest of all batch entries.
  static JIT_DEVICE int longest_q(const AttentionParams& params) {
    return Config::seqlen_q != 0 ? Config::seqlen_q : params.seqlen_q;
  }
  static JIT_DEVICE int longest_kv(const AttentionParams& params) {
    return Config::seqlen_kv != 0 ? Config::seqlen_kv : params.seqlen_kv;
  }

  /// TMA coordinates of rows of q and o, and of k and v.
  static JIT_DEVICE RowPlace query_place(int batch, int head, int row) { return {row, head, batch}; }
  static JIT_DEVICE RowPlace key_place(int batch, int kv_head, int row) { return {row, kv_head, batch}; }

 private:
  int seqlen_q_;
  int seqlen_kv_;
};
template <class Config>
using DenseSequences = SequenceRows<Config, DenseSeqlens<Config>>;

}  // namespace jit
