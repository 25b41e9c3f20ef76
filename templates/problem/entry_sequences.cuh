// The two sequences of one batch entry with their rows, if lengths are known only on the device.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "jit/options.h"
#include "problem/functor.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// Lengths of one batch entry, read once; the `batch` arguments of its functions are ignored.
template <class Config>
class EntrySeqlens {
 public:
  JIT_DEVICE EntrySeqlens(const AttentionParams& params, int batch) {
    const VariableSequences<Config> all(params);
    seqlens_ = {all.q(batch), all.kv(batch)};
  }
  /// Lengths that have been read before.
  JIT_DEVICE EntrySeqlens(const AttentionParams&, const Sequence& q, const Sequence& kv) : seqlens_{q, kv} {}

  JIT_DEVICE Sequence q(int /*batch*/) const { return seqlens_.q; }
  JIT_DEVICE Sequence kv(int /*batch*/) const { return seqlens_.kv; }

 private:
  SeqlenInfo seqlens_;
};
template <class Config>
using EntrySequences = SequenceRows<Config, EntrySeqlens<Config>>;

/// Whether lengths of sequences are known only on the device.
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
/// Sequences of all batch entries; `entry_of` returns those of one.
template <class Config>
using AllSequences = typename detail::SequencesOf<Config>::all;

template <class Config>
JIT_DEVICE const DenseSequences<Config>& entry_of(const DenseSequences<Config>& all,
                                                  const AttentionParams& /*params*/, int /*batch*/) {
  return all;
}
template <class Config>
JIT_DEVICE EntrySequences<Config> entry_of(const VariableSequences<Config>& all,
                                           const AttentionParams& params, int batch) {
  return {params, all.q(batch), all.kv(batch)};  // mutate: KeysOfAnotherEntry
}

}  // namespace jit
