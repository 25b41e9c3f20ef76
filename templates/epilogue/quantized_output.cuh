// 8-bit O: rows are quantized when they are written, by a scale that is given or computed from their values.
//
// A maximum does not depend on the order of values, and a scale and a quotient do not depend on the thread that
// computes them. So all families write equal bytes for equal rows.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "epilogue/output_functor.cuh"
#include "problem/functor.cuh"
#include "ptx/fp8.cuh"
#include "ptx/math.cuh"
#include "ptx/stored_numbers.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Whether the epilogue changes values of O in fp32 before they are written.
template <class Config>
inline constexpr bool finishes_output = has_output_functor<Config> || quantizes_output<Config>;

/// The offset of a row of a head, for strides of (batch, seq, head).
JIT_DEVICE long long place_of_row(const BlockContext& context, const TensorStrides& strides, int query) {
  return context.batch * strides.batch + (context.q_begin + query) * strides.seq +
         context.head * strides.head;
}

/// The larger magnitude of two values; NaN is ignored.
JIT_DEVICE float larger_magnitude(float x, float y) { return fmaxf(fabsf(x), fabsf(y)); }

/// The factor of a row's values before quantization. If scales are computed, `magnitude` is the largest one of the row,
/// and the thread with `writes` stores the scale.
template <class Config>
JIT_DEVICE float output_factor(const AttentionParams& params, const BlockContext& context, int query,
                               float magnitude, bool writes) {
  float* const place =
      params.outputs.o_descale + place_of_row(context, params.outputs.o_descale_strides, query);
  if constexpr (finds_output_scales<Config>) {
    const float scale = scale_of<OutputElement<Config>>(fmaxf(magnitude, 0));
    if (writes) *place = scale;
    return __fdiv_rn(1.0f, scale);
  }
  return __fdiv_rn(1.0f, *place);
}

/// Writes four neighbors of a row, times its factor.
template <class Config>
JIT_DEVICE void store_quantized_four(OutputElement<Config>* target, const float4& values, float factor) {
  using Element = OutputElement<Config>;
  const unsigned words[1] = {pack_fp8<Element>(values.x * factor, values.y * factor) |
                             pack_fp8<Element>(values.z * factor, values.w * factor) << 16};
  store_words<4, output_alignment<Config>>(target, words);
}

/// The factor of row `r` of a product, which belongs to `query`. Computes and writes its scale, or reads it, if the row
/// exists. By a whole warp.
template <class Config, class Product>
JIT_DEVICE float factor_of_row(const AttentionParams& params, const BlockContext& context,
                               const Product& output, int r, int query, bool exists) {
  using Layout = typename Product::Layout;
  float magnitude = 0;
  if constexpr (finds_output_scales<Config>)
    magnitude = output.reduce_row(r, larger_magnitude);  // mutate: ScaleOfSomeColumns
  const bool writes = Layout::is_row_leader(reread_thread_index() % warp_size);
  return exists ? output_factor<Config>(params, context, query, magnitude, writes) : 1;
}

/// Calls f(column, words) for quantized pieces of 16 columns of row `r` of a product. A quad of lanes has 8 columns in
/// 4 pairs of bytes; after a transpose each lane has whole pieces. By a whole warp.
template <class Element, class Product, class F>
JIT_DEVICE void for_each_quantized_piece(const Product& output, int r, float factor, const F& f) {
  using Layout = typename Product::Layout;
  static_assert(is_same<Layout, MmaLayout>, "a quad of lanes shares a row");
  const auto pair = [&](int n) -> unsigned {
    if (n >= Product::column_blocks) return 0;
    return pack_fp8<Element>(output.at(r, n, 0) * factor, output.at(r, n, 1) * factor);
  };
#pragma unroll
  for (int d = 0; d < Product::column_blocks; d += 8) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pair(d + 2 * i) | pair(d + 2 * i + 1) << 16;
    transpose_quad(words);  // mutate: BytesAreNotTransposed
    const unsigned piece[4] = {pick_bytes(words[0], words[1], 0x5410), pick_bytes(words[2], words[3], 0x5410),
                               pick_bytes(words[0], words[1], 0x7632),
                               pick_bytes(words[2], words[3], 0x7632)};
    f(d * Layout::block_columns + reread_thread_index() % 4 * 16, piece);
  }
}

/// Writes the lane's values of row `r` of a product from column `first_column` on, if it exists. By a whole warp.
template <class Config, class Product>
JIT_DEVICE void store_quantized_row(const AttentionParams& params, const BlockContext& context,
                                    const Product& output, int r, int query, bool exists,
                                    int first_column = 0) {
  using Element = OutputElement<Config>;
  const float factor = factor_of_row<Config>(params, context, output, r, query, exists);
  Element* const row =
      static_cast<Element*>(params.o) + place_of_row(context, params.o_strides, query) + first_column;
  const int columns = Config::head_dim_v - first_column;
  for_each_quantized_piece<Element>(output, r, factor, [&](int column, const unsigned(&piece)[4]) {
    if (!exists || column >= columns) return;  // mutate: BytesOfRowsThatAreNone
    if constexpr (Config::head_dim_v % 16 == 0) {
      store_words<16, output_alignment<Config>>(row + column, piece);
    } else {
      const unsigned first[2] = {piece[0], piece[1]}, second[2] = {piece[2], piece[3]};
      store_words<8, output_alignment<Config>>(row + column, first);
      // mutate: BytesBehindTheLastColumn
      if (column + 8 < columns) store_words<8, output_alignment<Config>>(row + column + 8, second);
    }
  });
}

/// Writes all rows of a warp's product; the first row is query `first_row`.
template <class Config, class Product>
JIT_DEVICE void store_quantized_rows(const AttentionParams& params, const BlockContext& context,
                                     const Product& output, int first_row, int first_column = 0) {
  Product::for_each_row(first_row + Product::Layout::lane_row(lane_id()), [&](int r, int query) {
    store_quantized_row<Config>(params, context, output, r, query, query < context.seqlen_q, first_column);
  });
}

/// Writes all rows to a tile in shared memory, from its row `tile_row` on, for TMA to store.
template <class Config, class Tile, class Product>
JIT_DEVICE void put_quantized_rows(const AttentionParams& params, const BlockContext& context,
                                   const Product& output, int first_row, unsigned tile, int tile_row) {
  const int lane_row = Product::Layout::lane_row(reread_thread_index());
  Product::for_each_row(lane_row, [&](int r, int row) {
    const int query = first_row + row;
    const float factor = factor_of_row<Config>(params, context, output, r, query, query < context.seqlen_q);
    for_each_quantized_piece<OutputElement<Config>>(
        output, r, factor, [&](int column, const unsigned(&piece)[4]) {
          if (Config::head_dim_v % 64 != 0 && column >= Config::head_dim_v) return;
          const unsigned address = Tile::chunk_address(tile, tile_row + row, column / chunk_bytes);
          store_shared(address, piece);
        });
  });
}

}  // namespace jit
