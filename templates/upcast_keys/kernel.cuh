// Makes numbers of 16 bits of keys and values of 8, once for all blocks of the attention kernel behind it, which reads
// them as it reads any. A block has some rows of one head, and neighboring blocks have those of the other heads, which
// lie beside them. It is bound by memory: a lane has a few pieces of rows on their way at once.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "jit/options.h"
#include "pipeline/dependent_launch.cuh"
#include "problem/paged_kv.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/fp8.cuh"
#include "upcast_keys/params.cuh"

namespace jit::upcast_keys {

/// The rows of an entry as they are stored.
template <class Config>
class StoredRows {
  static constexpr bool is_varlen = Config::sequences_kv == SequenceKind::varlen;

 public:
  JIT_DEVICE StoredRows(const AttentionParams& params, int entry) : params_(params), entry_(entry) {}

  /// Rows that are some sequence's; all varlen rows.
  JIT_DEVICE Sequence in_use() const {
    if constexpr (is_varlen) return {0, params_.sequences.total_k};
    return VariableSequences<Config>(params_).kv(entry_);
  }
  /// Elements from the first of a head of k or v, whose `strides` these are, to a row; negative where its page, which
  /// may be any number, does not exist.
  JIT_DEVICE long long offset(const TensorStrides& strides, int row) const {
    const PagedKv<Config> paged(params_);
    const RowPlace place = paged.place(entry_, 0, row);
    return paged.exists(place.batch) ? paged.offset(strides, place) : -1;
  }

 private:
  const AttentionParams& params_;
  const int entry_;
};

/// Rows from `begin` to `end` of a head of an entry, of k or of v.
struct RowsOfHead {
  int entry, kv_head;
  int begin, end;
};

/// Upcasts them, of which a row has so many columns. By all threads of a block.
template <class Config, int columns>
JIT_DEVICE void upcast_rows(const StoredRows<Config>& stored, const RowsOfHead& rows, const void* from,
                            const TensorStrides& from_strides, void* to, const TensorStrides& to_strides) {
  using Stored = KvElement<Config>;
  using Number = typename Config::Element;
  constexpr int piece = 8;  // what is stored becomes 16 bytes: lanes side by side write whole sectors
  constexpr int pieces = columns / piece, ahead = 8;
  static_assert(columns % piece == 0, "head dims are multiples of 8");
  const Stored* const source = static_cast<const Stored*>(from) + rows.kv_head * from_strides.head;
  Number* const target =
      static_cast<Number*>(to) + rows.entry * to_strides.batch + rows.kv_head * to_strides.head;
  const int count = (rows.end - rows.begin) * pieces;
#pragma unroll 1
  // mutate: PiecesBehindTheFirstOnesNotUpcast
  for (int first = static_cast<int>(threadIdx.x); first < count; first += ahead * upcasting_threads) {
    // All places first, and of all pieces, also where the last one is read again: reads wait for no other.
    const auto item_of = [&](int i) { return minimum(first + i * upcasting_threads, count - 1); };
    long long offsets[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      offsets[i] = stored.offset(from_strides, rows.begin + item_of(i) / pieces);
    unsigned words[ahead][piece / 4] = {};  // zeros where there is no page
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (offsets[i] >= 0)
        load_words<piece, piece>(source + offsets[i] + item_of(i) % pieces * piece, words[i]);
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int item = first + i * upcasting_threads;
      if (item >= count) break;
      unsigned wide[piece / 2];
#pragma unroll
      for (int word = 0; word < piece / 4; ++word)
        halves_of_fp8_word<Stored>(words[i][word], wide[2 * word], wide[2 * word + 1]);
#pragma unroll
      for (unsigned& pair : wide) pair = from_halves<Number>(pair);
      const int row = rows.begin + item / pieces;
      store_words<2 * piece, chunk_bytes>(target + row * to_strides.seq + item % pieces * piece, wide);
    }
  }
}

/// By a grid of a block for each head of each chunk of each entry, heads first.
template <class Config>
JIT_DEVICE void upcast_keys(const AttentionParams& params, const UpcastKeys& upcast) {
  wait_for_grids_before();  // mutate: UpcastingDoesNotWait
  // The grid behind waits for the end of this one, and finds room when the last blocks of this one are on their way.
  let_next_grid_start();
  const int index = static_cast<int>(blockIdx.x), chunk = index / params.heads_kv;
  const int entry = chunk / upcast.chunks, first = chunk % upcast.chunks * rows_at_once;
  const StoredRows<Config> stored(params, entry);
  const Sequence in_use = stored.in_use();
  const RowsOfHead rows{.entry = entry,
                        .kv_head = index % params.heads_kv,
                        .begin = maximum(first, in_use.begin),
                        // mutate: LastRowOfAChunkNotUpcast
                        .end = minimum(first + rows_at_once, in_use.begin + in_use.length)};
  upcast_rows<Config, Config::head_dim>(stored, rows, params.k, params.k_strides, upcast.k, upcast.k_strides);
  upcast_rows<Config, Config::head_dim_v>(stored, rows, params.v, params.v_strides, upcast.v,
                                          upcast.v_strides);
}

}  // namespace jit::upcast_keys
