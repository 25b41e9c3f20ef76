// O of 8 bits: rows are rounded where they are written, relative to a scale that is given, or that is found from their values.
//
// A maximum does not depend on the order of values, and neither a scale nor what is divided by it on who divides. So all
// families write equal bytes of equal rows.
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

namespace jit {

/// Whether values of O become others, as floats, before they are written.
template <class Config>
inline constexpr bool finishes_output = has_output_functor<Config> || quantizes_output<Config>;

/// The place of what belongs to a row of a head, where strides are those of LSE.
JIT_DEVICE long long place_of_row(const BlockContext& context, const TensorStrides& strides, int query) {
  return context.batch * strides.batch + (context.q_begin + query) * strides.seq + context.head * strides.head;
}

/// The larger magnitude. What is not a number has none.
JIT_DEVICE float larger_magnitude(float x, float y) { return fmaxf(fabsf(x), fabsf(y)); }

/// What values of a row are multiplied by before they are rounded. `magnitude` is the largest of the row, where scales are found;
/// then one of those who ask `writes` the scale.
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

/// Writes the lane's values of row `r` of a product, which is that of `query` of the sequence, from column `first_column` on, if
/// it exists. By a whole warp. A quad of lanes has each 8 columns of a row as 4 pairs of bytes: transposed, a lane writes 16
/// columns.
template <class Config, class Product>
JIT_DEVICE void store_quantized_row(const AttentionParams& params, const BlockContext& context,
                                    const Product& output, int r, int query, bool exists,
                                    int first_column = 0) {
  using Element = OutputElement<Config>;
  using Layout = typename Product::Layout;
  static_assert(is_same<Layout, MmaLayout>, "a quad of lanes shares a row");
  float magnitude = 0;
  if constexpr (finds_output_scales<Config>)
    magnitude = output.reduce_row(r, larger_magnitude);  // mutate: ScaleOfSomeColumns
  const int lane = reread_thread_index() % warp_size;
  const float factor = exists ? output_factor<Config>(params, context, query, magnitude,
                                                      Layout::speaks_for_rows(lane))
                              : 1;
  const TensorStrides& strides = params.o_strides;
  Element* const row =
      static_cast<Element*>(params.o) + place_of_row(context, strides, query) + first_column;
  const int columns = Config::head_dim_v - first_column, piece = lane % 4;
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
    const int column = (d + 2 * piece) * Layout::block_columns;
    if (!exists || column >= columns) continue;  // mutate: BytesOfRowsThatAreNone
    const unsigned first[2] = {pick_bytes(words[0], words[1], 0x5410), pick_bytes(words[2], words[3], 0x5410)};
    const unsigned second[2] = {pick_bytes(words[0], words[1], 0x7632), pick_bytes(words[2], words[3], 0x7632)};
    if constexpr (Config::head_dim_v % 16 == 0) {
      const unsigned both[4] = {first[0], first[1], second[0], second[1]};
      store_words<16, output_alignment<Config>>(row + column, both);
    } else {
      store_words<8, output_alignment<Config>>(row + column, first);
      // mutate: BytesBehindTheLastColumn
      if (column + 8 < columns) store_words<8, output_alignment<Config>>(row + column + 8, second);
    }
  }
}

/// Does so for all rows of a warp's product, the first of which is that of `first_row`.
template <class Config, class Product>
JIT_DEVICE void store_quantized_rows(const AttentionParams& params, const BlockContext& context,
                                     const Product& output, int first_row, int first_column = 0) {
  Product::for_each_row(first_row + Product::Layout::lane_row(lane_id()), [&](int r, int query) {
    store_quantized_row<Config>(params, context, output, r, query, query < context.seqlen_q, first_column);
  });
}

}  // namespace jit
