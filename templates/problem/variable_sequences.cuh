// Row offsets and lengths of sequences that may differ in length: dense, varlen or paged. The only source of both on
// the device.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"
#include "problem/sequences.cuh"
#include "ptx/atomic.cuh"
#include "scheduling/request_kinds.cuh"

namespace jit {

/// Records an invalid element, unless another fault has been recorded.
JIT_DEVICE void record_fault(ArrayFault* recorded, const ArrayFault& fault) {
  if (atomic_cas_relaxed(reinterpret_cast<int*>(&recorded->array), 0, static_cast<int>(fault.array)) != 0)
    return;
  recorded->request = fault.request;
  recorded->index = fault.index;
  recorded->value = fault.value;
  recorded->least = fault.least;
  recorded->most = fault.most;
}

/// Records an element that is out of range.
template <class Config>
JIT_DEVICE void expect_in_range(const AttentionParams& params, const ArrayFault& element) {
  if constexpr (Config::checked) {
    if (element.value < element.least || element.value > element.most)
      record_fault(params.sequences.fault, element);
  }
}

/// Sequences of a batch, described by SequenceParams. Boundaries and lengths are clamped to the tensors.
template <class Config>
class VariableSequences {
  using Element = typename Config::Element;

 public:
  JIT_DEVICE explicit VariableSequences(const AttentionParams& params) : params_(params) {}

  /// The queries of a batch entry. Rows count from the entry's first row in dense tensors, from the first row of all in
  /// varlen ones.
  JIT_DEVICE Sequence q(int batch) const {
    if constexpr (has_key_lists<Config>) {
      constexpr int queries = Config::Lists::queries;
      return {batch * queries, minimum(queries, params_.sequences.total_q - batch * queries)};
    } else {
      return stored_q(batch);
    }
  }
  /// Queries of a sequence, where a batch entry may be a list.
  JIT_DEVICE Sequence stored_q(int batch) const {
    const SequenceParams& given = params_.sequences;
    Sequence rows{0, Config::seqlen_q != 0 ? Config::seqlen_q : params_.seqlen_q};
    if constexpr (Config::sequences_q == SequenceKind::varlen)
      rows = between({SequenceArrayId::cu_seqlens_q, given.cu_seqlens_q}, batch, given.total_q);
    if (given.seqused_q != nullptr)
      rows.length = within({SequenceArrayId::seqused_q, given.seqused_q}, batch, rows.length);
    return rows;
  }

  /// The keys of a batch entry. In pages, rows count from the sequence's first row. Values along the sequence can only
  /// be copied from some rows on: a sequence that begins within another one counts as one without keys.
  JIT_DEVICE Sequence kv(int batch) const {
    if constexpr (has_key_lists<Config>) {
      return {0, Config::Lists::length(params_, batch)};
    } else {
      return stored_kv(batch);
    }
  }
  /// Keys of a sequence, likewise.
  JIT_DEVICE Sequence stored_kv(int batch) const {
    const SequenceParams& given = params_.sequences;
    Sequence rows{0, Config::seqlen_kv != 0 ? Config::seqlen_kv : params_.seqlen_kv};
    if constexpr (has_key_lists<Config>) rows.length = given.max_pages * Config::page_size;
    if constexpr (Config::sequences_kv == SequenceKind::varlen)
      rows = between({SequenceArrayId::cu_seqlens_k, given.cu_seqlens_k}, batch, given.total_k);
    if (given.seqused_k != nullptr)  // mutate: LengthsFromTheBoundariesAlone
      rows.length = within({SequenceArrayId::seqused_k, given.seqused_k}, batch, rows.length);
    if (given.cache_leftpad != nullptr) {
      const int pad = within({SequenceArrayId::cache_leftpad, given.cache_leftpad}, batch, rows.length);
      rows.begin += pad;
      rows.length -= pad;
    }
    return rows;
  }

  /// The first row of varlen queries, and of varlen keys without left padding. The length is read only if arrays are
  /// checked.
  JIT_DEVICE int q_begin(int batch) const {
    if constexpr (Config::checked) return q(batch).begin;
    const SequenceParams& given = params_.sequences;
    return element({SequenceArrayId::cu_seqlens_q, given.cu_seqlens_q}, batch, batch, 0, given.total_q);
  }
  JIT_DEVICE int kv_begin(int batch) const {
    if constexpr (Config::checked) return kv(batch).begin;
    const SequenceParams& given = params_.sequences;
    return element({SequenceArrayId::cu_seqlens_k, given.cu_seqlens_k}, batch, batch, 0, given.total_k);
  }

  /// The page of row `row` of a sequence's keys, which may be any number; 0 without pages.
  JIT_DEVICE int page(int batch, int row) const {
    if constexpr (Config::sequences_kv == SequenceKind::paged) {
      const SequenceParams& given = params_.sequences;
      return given.page_table[batch * given.page_table_stride + row / Config::page_size];
    }
    return 0;
  }

  /// Records a fault if the page does not exist, if arrays are checked. For rows whose key some query sees.
  JIT_DEVICE void expect_page(int batch, int row, int page) const {
    expect_in_range<Config>(params_, {SequenceArrayId::page_table, batch, row / maximum(1, Config::page_size),
                                      page, 0, params_.sequences.pages - 1});
  }

  /// The offset of a row of a query head in q, o or LSE, in elements.
  static JIT_DEVICE long long query_offset(const TensorStrides& strides, int batch, int head, int row) {
    return batch * strides.batch + row * strides.seq + head * strides.head;
  }

 private:
  struct Array {
    SequenceArrayId id;
    const int* data;
  };

  // An element, expected in [least, most], clamped to [0, most].
  JIT_DEVICE int element(const Array& array, int batch, int index, int least, int most) const {
    const int value = array.data[index];
    expect_in_range<Config>(params_, {array.id, batch, index, value, least, most});
    return maximum(0, minimum(value, most));
  }
  JIT_DEVICE int within(const Array& array, int batch, int most) const {
    return element(array, batch, batch, 0, most);
  }
  JIT_DEVICE Sequence between(const Array& array, int batch, int total) const {
    const int begin = element(array, batch, batch, 0, total);
    const int end = element(array, batch, batch + 1, begin, total);
    return {begin, maximum(0, end - begin)};
  }

  const AttentionParams& params_;
};

// The requests of a call that a kernel computes: all, or some, if another kernel computes the others.

/// The requests of a Config; all by default.
template <class Config>
constexpr Requests requests_of() {
  if constexpr (requires { Config::requests; }) return Config::requests;
  return Requests::all;
}

/// The queries of a batch entry; none if another kernel computes them.
template <class Config>
JIT_DEVICE Sequence own_queries(const VariableSequences<Config>& sequences, int batch) {
  if constexpr (requests_of<Config>() == Requests::all) {
    return sequences.q(batch);
  } else {
    Sequence q = sequences.q(batch);
    if (!computes(requests_of<Config>(), q.length)) q.length = 0;
    return q;
  }
}

}  // namespace jit
