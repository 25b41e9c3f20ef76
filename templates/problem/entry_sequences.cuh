// The two sequences of one batch entry with their rows, where only the device knows how long they are.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "jit/options.h"
#include "problem/functor.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// What DenseSequences tells of all batch entries, told of one: whoever asks for another one gets what this one has.
/// Arrays are read once.
template <class Config>
class EntrySequences {
  using Element = typename Config::Element;
  static_assert(Config::sequences_kv != SequenceKind::paged, "rows of pages do not lie at equal distances");

 public:
  __device__ __forceinline__ EntrySequences(const AttentionParams& params, int batch) : params_(params) {
    const VariableSequences<Config> all(params);
    q_ = all.q(batch);
    kv_ = all.kv(batch);
  }
  /// The same without reading: as they were told before.
  __device__ __forceinline__ EntrySequences(const AttentionParams& params, const Sequence& q,
                                            const Sequence& kv)
      : params_(params), q_(q), kv_(kv) {}

  __device__ __forceinline__ Sequence q(int /*batch*/) const { return q_; }
  __device__ __forceinline__ Sequence kv(int /*batch*/) const { return kv_; }

  __device__ __forceinline__ int kv_head(int head) const { return head / Config::gqa_ratio; }

  __device__ __forceinline__ BlockContext context(int batch, int head) const {
    // mutate: MasksOfOtherLengths
    return {batch, head, params_.heads_q, q_.length, kv_.length, q_.begin, params_.tensors};
  }

  __device__ __forceinline__ auto query_rows(int batch, int head) const {
    return rows(static_cast<const Element*>(params_.q), params_.q_strides, batch, head).from(q_.begin);
  }
  __device__ __forceinline__ auto key_rows(int batch, int kv_head) const {
    return rows(static_cast<const Element*>(params_.k), params_.k_strides, batch, kv_head).from(kv_.begin);
  }
  __device__ __forceinline__ auto value_rows(int batch, int kv_head) const {
    return rows(static_cast<const Element*>(params_.v), params_.v_strides, batch, kv_head).from(kv_.begin);
  }
  __device__ __forceinline__ auto output_rows(int batch, int head) const {
    return rows(static_cast<OutputElement<Config>*>(params_.o), params_.o_strides, batch, head)
        .from(q_.begin);
  }
  __device__ __forceinline__ auto lse_rows(int batch, int head) const {
    return rows(params_.lse, params_.lse_strides, batch, head).from(q_.begin);
  }

 private:
  template <class T>
  static __device__ __forceinline__ DenseRows<T> rows(T* data, const TensorStrides& strides, int batch,
                                                      int head) {
    return {data + batch * strides.batch + head * strides.head, strides.seq};
  }

  const AttentionParams& params_;
  Sequence q_;
  Sequence kv_;
};

/// Whether only the device knows how long the sequences of a Config are.
template <class Config>
inline constexpr bool has_entry_lengths =
    Config::sequences_q != SequenceKind::dense || Config::sequences_kv != SequenceKind::dense;

namespace detail {
template <class Config, bool on_device = has_entry_lengths<Config>>
struct SequencesOf {
  using all = DenseSequences<Config>;
  using entry = DenseSequences<Config>;
};
template <class Config>
struct SequencesOf<Config, true> {
  using all = VariableSequences<Config>;
  using entry = EntrySequences<Config>;
};
}  // namespace detail
/// The sequences of a batch entry, dense or not.
template <class Config>
using SequencesOf = typename detail::SequencesOf<Config>::entry;
/// Those of all batch entries, of which `entry_of` tells those of one.
template <class Config>
using AllSequences = typename detail::SequencesOf<Config>::all;

template <class Config>
__device__ __forceinline__ const DenseSequences<Config>& entry_of(const DenseSequences<Config>& all,
                                                                  const AttentionParams& /*params*/,
                                                                  int /*batch*/) {
  return all;
}
template <class Config>
__device__ __forceinline__ EntrySequences<Config> entry_of(const VariableSequences<Config>& all,
                                                           const AttentionParams& params, int batch) {
  return {params, all.q(batch), all.kv(batch)};  // mutate: KeysOfAnotherEntry
}

}  // namespace jit
