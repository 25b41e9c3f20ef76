// Upcasts 8-bit keys and values to 16 bits, once for all blocks of the attention kernel that follows, which reads them as any
// 16-bit tensors. A block has some rows of one head, and neighboring blocks have the neighboring rows of other heads. The
// kernel is bound by memory: each lane loads a few pieces of rows at once.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "jit/options.h"
#include "pipeline/dependent_launch.cuh"
#include "problem/latent_rows.cuh"
#include "problem/paged_kv.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/fp8.cuh"
#include "ptx/stored_numbers.cuh"
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
  /// The place of a row in pages, or of a batch entry.
  JIT_DEVICE RowPlace place(int row) const { return PagedKv<Config>(params_).place(entry_, 0, row); }
  JIT_DEVICE bool exists(const RowPlace& place) const { return PagedKv<Config>(params_).exists(place.batch); }
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

/// Scales of rows, or of blocks of their columns, of k or of v.
struct ScalesOfRows {
  const float* of_tokens;
  TensorStrides token_strides;
  const unsigned char* of_blocks;
  TensorStrides block_strides;
};

/// Whether rows have scales that are applied where they are upcast: no 16-bit reader has a place for them.
template <class Config>
inline constexpr bool applies_scales = has_token_scales<Config> || keys_are_packed<Config>;

/// The scale of eight columns of a row as the row has it: that of the token, or the byte of their block.
template <class Config>
JIT_DEVICE unsigned scale_bits(const StoredRows<Config>& stored, const ScalesOfRows& scales, int kv_head,
                               int row, int column) {
  constexpr int block = scale_columns_of<KvElement<Config>>;
  const TensorStrides& strides = block != 0 ? scales.block_strides : scales.token_strides;
  const long long offset = stored.offset(strides, row);
  if (offset < 0) return 0;
  const long long place = offset + kv_head * strides.head;
  if constexpr (block != 0) return scales.of_blocks[place + column / block];
  return static_cast<unsigned>(__float_as_int(scales.of_tokens[place]));
}

/// Eight numbers of a row, as it is stored, times their scale.
template <class Number, class Stored, int words>
JIT_DEVICE void upcast_scaled(const unsigned (&stored)[words], unsigned scale, unsigned (&wide)[4]) {
  float factor = __int_as_float(static_cast<int>(scale));
  if constexpr (words == 2) {
    halves_of_fp8_word<Stored>(stored[0], wide[0], wide[1]);
    halves_of_fp8_word<Stored>(stored[1], wide[2], wide[3]);
  } else {
    unsigned pairs[4];
    if constexpr (scale_columns_of<Stored> != 0) {
      pairs_of_e2m1(stored[0], pick_bytes(factors_of_scales<Stored>(scale), 0, 0x1010), pairs);
      factor = e2m1_shrinks<Stored>;
    } else {
      pairs_of_int4<fp16>(stored[0], twice(zero_point_of(static_cast<int>(scale))), pairs);
      factor = without_zero_point(static_cast<int>(scale));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)  // numbers i and i + 4 become neighbors
      wide[i] = pick_bytes(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1], i < 2 ? 0x5410 : 0x7632);
  }
#pragma unroll
  for (unsigned& pair : wide) {
    pair = pack<Number>(to_float(fp16{static_cast<unsigned short>(pair)}) * factor,
                        to_float(fp16{static_cast<unsigned short>(pair >> 16)}) * factor);
  }
}

/// Upcasts them, of which a row has so many columns. By all threads of a block.
template <class Config, int columns>
JIT_DEVICE void upcast_rows(const StoredRows<Config>& stored, const RowsOfHead& rows, const void* from,
                            const TensorStrides& from_strides, void* to, const TensorStrides& to_strides,
                            const ScalesOfRows& scales) {
  using Stored = KvElement<Config>;
  using Number = typename Config::Element;
  constexpr int piece = 8;  // what is stored becomes 16 bytes: lanes side by side write whole sectors
  constexpr int bytes = stored_columns<Stored>(piece);
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
    unsigned words[ahead][bytes / 4] = {};  // zeros where there is no page
    unsigned own_scales[ahead] = {};
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (offsets[i] >= 0)
        load_words<bytes, bytes>(source + offsets[i] + item_of(i) % pieces * bytes, words[i]);
      if constexpr (applies_scales<Config>)
        own_scales[i] = scale_bits(stored, scales, rows.kv_head, rows.begin + item_of(i) / pieces,
                                   item_of(i) % pieces * piece);
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      const int item = first + i * upcasting_threads;
      if (item >= count) break;
      unsigned wide[piece / 2];
      if constexpr (applies_scales<Config>) {
        upcast_scaled<Number, Stored>(words[i], own_scales[i], wide);
      } else {
#pragma unroll
        for (int word = 0; word < piece / 4; ++word)
          halves_of_fp8_word<Stored>(words[i][word], wide[2 * word], wide[2 * word + 1]);
#pragma unroll
        for (unsigned& pair : wide) pair = from_halves<Number>(pair);
      }
      const int row = rows.begin + item / pieces;
      store_words<2 * piece, chunk_bytes>(target + row * to_strides.seq + item % pieces * piece, wide);
    }
  }
}

/// Rows of a tile of the kernel that reads latents by TMA: the rows of a sequence's last tile are written, as zeros, where
/// they are not its own.
inline constexpr int latent_tile_rows = 64;

/// Upcasts rows of latents to 16-bit numbers, a lane eight columns at once; zeros from row `rows_end` on. By all threads
/// of a block.
template <class Config>
JIT_DEVICE void upcast_latents(const StoredRows<Config>& stored, const RowsOfHead& rows, int rows_end,
                               const void* from, const TensorStrides& from_strides, void* to,
                               const TensorStrides& to_strides) {
  using Latent = KvElement<Config>;
  using Number = typename Config::Element;
  constexpr int piece = latent_piece, pieces = Config::head_dim / piece;
  static_assert(Latent::columns % piece == 0, "a lane has columns of one kind");
  const auto* const source = static_cast<const unsigned char*>(from);
  Number* const target = static_cast<Number*>(to) + rows.entry * to_strides.batch;
  const int count = (rows.end - rows.begin) * pieces;
#pragma unroll 4
  for (int item = static_cast<int>(threadIdx.x); item < count; item += upcasting_threads) {
    const int row = rows.begin + item / pieces, column = item % pieces * piece;
    const RowPlace place = stored.place(minimum(row, rows_end - 1));
    unsigned wide[piece / 2] = {};  // zeros where there is no page
    if (row < rows_end && stored.exists(place)) {
      const unsigned char* const start = source + PagedKv<Config>::offset(from_strides, place);
      if (column < Latent::columns) {
        unsigned words[2];
        load_words<piece, piece>(start + column, words);
        halves_of_latents(words, wide);
        const unsigned char* const scales =
            scales_of_row<Latent>(start, place.seq, maximum(1, Config::page_size));
        const float scale = group_scale<Latent>(scales, column / Latent::group);
        scale_latents<Number>(scale, wide);
      } else {
        load_words<2 * piece, piece>(start + Latent::rotated_begin + (column - Latent::columns) * 2, wide);
        convert_rotated<Number>(wide);
      }
    }
    store_words<2 * piece, chunk_bytes>(target + row * to_strides.seq + column, wide);
  }
}

/// By a grid of a block for each head of each chunk of each entry, heads first.
template <class Config>
JIT_DEVICE void upcast_keys(const AttentionParams& params, const UpcastKeys& upcast) {
  wait_on_dependent_grids();  // mutate: UpcastingDoesNotWait
  // The grid behind waits for the end of this one, and finds room when the last blocks of this one are on their way.
  launch_dependent_grids();
  const int index = static_cast<int>(blockIdx.x), chunk = index / params.heads_kv;
  const int entry = chunk / upcast.chunks, first = chunk % upcast.chunks * rows_at_once;
  const StoredRows<Config> stored(params, entry);
  const Sequence in_use = stored.in_use();
  const RowsOfHead rows{.entry = entry,
                        .kv_head = index % params.heads_kv,
                        .begin = maximum(first, in_use.begin),
                        // mutate: LastRowOfAChunkNotUpcast
                        .end = minimum(first + rows_at_once, in_use.begin + in_use.length)};
  if constexpr (is_latent<KvElement<Config>>) {
    const int rows_end = in_use.begin + in_use.length;
    const int tiles = (in_use.length + latent_tile_rows - 1) / latent_tile_rows;
    const int written = minimum(in_use.begin + tiles * latent_tile_rows, upcast.rows);
    RowsOfHead own = rows;
    own.end = minimum(first + rows_at_once, written);
    return upcast_latents<Config>(stored, own, rows_end, params.k, params.k_strides, upcast.k,
                                  upcast.k_strides);
  } else {
    const DescaleParams& descale = params.descale;
    upcast_rows<Config, Config::head_dim>(
        stored, rows, params.k, params.k_strides, upcast.k, upcast.k_strides,
        {descale.k, descale.k_strides, descale.k_blocks, descale.k_blocks_strides});
    upcast_rows<Config, Config::head_dim_v>(
        stored, rows, params.v, params.v_strides, upcast.v, upcast.v_strides,
        {descale.v, descale.v_strides, descale.v_blocks, descale.v_blocks_strides});
  }
}

}  // namespace jit::upcast_keys
