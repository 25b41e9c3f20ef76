// Lists of keys: queries see only the keys of their list. The rows of q that share a list, mostly one, are a batch
// entry. Keys are counted along the list, entry after entry; each entry is a block of consecutive keys of the sequence.
//
// Entries may be any numbers, in any order. An entry that is negative or lies after the sequence names no key and is
// skipped; a repeated entry counts twice. Rows that share a list belong to the sequence of the first one; rows after
// its end see nothing.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/rows.cuh"
#include "problem/functor.cuh"
#include "problem/paged_kv.cuh"
#include "problem/seqlen_info.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// The owner of a list, by binary search: rows of a sequence follow one another.
template <class Config>
JIT_DEVICE ListOwner owner_of(const AttentionParams& params, int list) {
  using Lists = typename Config::Lists;
  const VariableSequences<Config> sequences(params);
  const int row = list * Lists::queries, count = params.tensors[Lists::slot].rows;
  int sequence = 0;
#pragma unroll 1
  for (int end = count; end - sequence > 1;) {
    const int middle = (sequence + end) / 2;
    (params.sequences.cu_seqlens_q[middle] <= row ? sequence : end) = middle;
  }
  if (count == 0) return {};
  const Sequence q = sequences.stored_q(sequence);
  const int queries = row < q.begin ? 0 : maximum(0, minimum(q.begin + q.length - row, Lists::queries));
  return {sequence, row - q.begin, queries, q, sequences.stored_kv(sequence)};
}

/// Lists are int32 tensor (lists, KV heads, entries) in slot `slot_lists`; how many entries count is (lists, KV heads) in slot
/// `slot_counts`. Of `shared_by` rows of q that share a list, bit i of an entry of (lists, KV heads, entries) in slot
/// `slot_members` is that of the i-th. An entry is `block_keys` keys; with `by_slots` it says where they lie.
template <int slot_lists, int slot_counts, int slot_members, int shared_by, int block_keys, bool by_slots>
struct KeyLists {
  static constexpr int slot = slot_lists;
  static constexpr int queries = shared_by;
  static constexpr int block = block_keys;
  static constexpr bool has_slots = by_slots;

  /// The queries of a list that see a key along it, a bit for each. Requires: position() is not negative.
  static JIT_DEVICE unsigned members(const FunctorTensor* tensors, int list, int kv_head, int key) {
    if constexpr (queries == 1) return 1;
    const FunctorTensor& members = tensors[slot_members];
    return __ldg(static_cast<const unsigned*>(members.data) + list * members.strides[0] +
                 kv_head * members.strides[1] + key / block);
  }

  /// The number of valid entries of a list.
  static JIT_DEVICE int count(const FunctorTensor* tensors, int list, int kv_head) {
    const FunctorTensor& counts = tensors[slot_counts];
    const int head = counts.last_size > 1 ? kv_head : 0;
    const int count = __ldg(static_cast<const int*>(counts.data) + list * counts.strides[0] + head);
    return maximum(0, minimum(count, tensors[slot].last_size));  // mutate: ListLongerThanItIs
  }

  /// Keys along the longest of the lists of all KV heads.
  static JIT_DEVICE int length(const AttentionParams& params, int list) {
    int most = 0;
#pragma unroll 1
    for (int head = 0; head < params.heads_kv; ++head)
      most = maximum(most, count(params.tensors, list, head));
    return most * block;
  }

  /// Entry `i` of a list with `count` valid entries; negative: it names no key.
  static JIT_DEVICE int entry(const FunctorTensor* tensors, int list, int kv_head, int i, int count) {
    if (i >= count) return -1;  // mutate: EntriesOfOtherHeads
    const FunctorTensor& lists = tensors[slot];
    return __ldg(static_cast<const int*>(lists.data) + list * lists.strides[0] + kv_head * lists.strides[1] +
                 i);
  }
  /// The position in its sequence (or the slot) of key `key` along a list, which belongs to this entry; negative: none.
  template <class Config>
  static JIT_DEVICE int position_in(const AttentionParams& params, const ListOwner& owner, int entry,
                                    int key) {
    constexpr int most_entries = 0x7fffffff / block;
    if (entry < 0 || entry >= most_entries) return -1;  // mutate: NegativeEntries
    const int position = entry * block + key % block;
    return position < keys<Config>(params, owner) ? position : -1;  // mutate: EntriesBehindTheSequence
  }
  template <class Config>
  static JIT_DEVICE int position(const AttentionParams& params, const ListOwner& owner, int list, int kv_head,
                                 int key) {
    const int i = key / block;
    return position_in<Config>(
        params, owner, entry(params.tensors, list, kv_head, i, count(params.tensors, list, kv_head)), key);
  }

  /// The page and row of a key; page −1: none.
  template <class Config>
  static JIT_DEVICE RowPlace place(const AttentionParams& params, const ListOwner& owner, int list,
                                   int kv_head, int key) {
    return place_of<Config>(params, owner, kv_head, position<Config>(params, owner, list, kv_head, key));
  }
  /// The place of a position.
  template <class Config>
  static JIT_DEVICE RowPlace place_of(const AttentionParams& params, const ListOwner& owner, int kv_head,
                                      int at) {
    if (at < 0) return {0, kv_head, -1};
    if constexpr (!has_slots)
      return PagedKv<Config>(params).place(owner.sequence, kv_head, owner.kv.begin + at);
    if constexpr (PagedKv<Config>::has_pages)
      return PagedKv<Config>::place_in(at / Config::page_size, kv_head, at);
    return {at, kv_head, 0};
  }

  /// The place of a key as one number, page · page_size + row of the page, or row of varlen keys; −1: none.
  template <class Config>
  static JIT_DEVICE int flat_place(const AttentionParams& params, const ListOwner& owner, int list,
                                   int kv_head, int key) {
    if constexpr (has_slots) return position<Config>(params, owner, list, kv_head, key);
    const RowPlace at = place<Config>(params, owner, list, kv_head, key);
    if (at.batch < 0 || !PagedKv<Config>(params).exists(at.batch)) return -1;
    return at.batch * Config::page_size + at.seq;
  }

  /// The number of positions, or of slots.
  template <class Config>
  static JIT_DEVICE int keys(const AttentionParams& params, const ListOwner& owner) {
    if constexpr (!has_slots) return owner.kv.length;
    if constexpr (PagedKv<Config>::has_pages) return params.sequences.pages * Config::page_size;
    return params.sequences.total_k;
  }
};

}  // namespace jit
