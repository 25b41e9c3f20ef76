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

/// Lengths of one batch entry; the entry in a question is ignored. Arrays are read once.
template <class Config>
class EntrySeqlens {
 public:
  JIT_DEVICE EntrySeqlens(const AttentionParams& params, int batch) {
    const VariableSequences<Config> all(params);
    seqlens_ = {all.q(batch), all.kv(batch)};
  }
  /// Lengths without reading: as they were told before.
  JIT_DEVICE EntrySeqlens(const AttentionParams&, const Sequence& q, const Sequence& kv) : seqlens_{q, kv} {}

  JIT_DEVICE Sequence q(int /*batch*/) const { return seqlens_.q; }
  JIT_DEVICE Sequence kv(int /*batch*/) const { return seqlens_.kv; }

 private:
  SeqlenInfo seqlens_;
};
template <class Config>
using EntrySequences = SequenceRows<Config, EntrySeqlens<Config>>;

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
/// Sequences of all batch entries, of which `entry_of` tells those of one.
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
