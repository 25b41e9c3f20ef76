// Applies an output functor to normalized values of o before they are written, and writes o before the functor if a
// call requests both. All kernels compute the same bits: programs with such a functor are compiled without contraction.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/variable_sequences.cuh"
#include "steps/softmax.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Whether an output functor is applied to o.
template <class Config>
concept has_output_functor = requires {
  typename Config::OutputFunctor;
};

/// The row of o_raw, o before the functor; null if not requested. `query` counts in the sequence.
template <class Config>
JIT_DEVICE OutputElement<Config>* raw_row(const AttentionParams& params, const BlockContext& context,
                                          int query) {
  if (keys_are_narrow<Config> || quantizes_output<Config> || params.outputs.o_raw == nullptr) return nullptr;
  const TensorStrides& strides = params.outputs.o_raw_strides;
  return static_cast<OutputElement<Config>*>(params.outputs.o_raw) + context.batch * strides.batch +
         (context.q_begin + query) * strides.seq + context.head * strides.head;
}

/// Applies the functor to adjacent columns of a row, from `column` on.
template <class Config, class Functor, int count>
JIT_DEVICE void apply_output(const Functor& functor, const typename Functor::Rows& rows,
                             float (&values)[count], int query, int column) {
  typename Functor::template Numbers<count> numbers;
  functor.template load<Config::alignment>(numbers, rows, column);
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = functor.apply(values[i], query, column, numbers, i);
}

/// Calls f<count>(n, i, column) for the lane's columns in a row of a product: values i, …, i + count − 1 of column
/// block n, which are adjacent from `column` on.
template <class Config, class Product, class F>
JIT_DEVICE void for_neighbors(int first_column, F f) {
  using Layout = typename Product::Layout;
  constexpr int count = Layout::neighbors == Product::pair ? Product::pair : 1;
  const int lane_column = first_column + Layout::lane_column(reread_thread_index());
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n) {
#pragma unroll
    for (int i = 0; i < Product::pair; i += count) {
      const int column = lane_column + Layout::column(0, n, i);
      if (column >= Config::head_dim_v) continue;  // mutate: GatesBehindTheLastColumn
      f.template operator()<count>(n, i, column);
    }
  }
}

/// Writes the lane's values of row `r` of a product, which belongs to `query` of the sequence, before the functor.
/// `first_column` is the product's first column.
template <class Config, class Product>
JIT_DEVICE void store_raw_row(const AttentionParams& params, const BlockContext& context,
                              const Product& output, int r, int query, int first_column = 0) {
  if (auto* const raw = raw_row<Config>(params, context, query); raw != nullptr) {
    for_neighbors<Config, Product>(first_column, [&]<int count>(int n, int i, int column) {
      float values[count];
#pragma unroll
      for (int j = 0; j < count; ++j) values[j] = output.at(r, n, i + j);
      store_piece<Config::alignment>(raw + column, values);
    });
  }
}

/// Writes the lane's values of a row to o_raw, then applies the functor to them; addresses of both at once would not
/// fit the registers. Not for rows that do not exist.
template <class Config, class Product>
JIT_DEVICE void finish_product_row(const AttentionParams& params, const BlockContext& context,
                                   Product& output, int r, int query, int first_column = 0) {
  store_raw_row<Config>(params, context, output, r, query, first_column);
  const typename Config::OutputFunctor functor(context);
  const typename Config::OutputFunctor::Rows rows(context, query);
  for_neighbors<Config, Product>(first_column, [&]<int count>(int n, int i, int column) {
    float values[count];
#pragma unroll
    for (int j = 0; j < count; ++j) values[j] = output.at(r, n, i + j);
    apply_output<Config>(functor, rows, values, query, column);
#pragma unroll
    for (int j = 0; j < count; ++j) output.at(r, n, i + j) = values[j];
  });
}

/// Clears a row without keys, whose `inverse` is inverse_without_keys. Sets `inverse` to 1, since the functor may turn
/// 0 into something else.
template <class Product>
JIT_DEVICE void clear_row_without_keys(Product& output, int r, float& inverse) {
  if (inverse > 0.5f * inverse_without_keys) {
#pragma unroll
    for (int n = 0; n < Product::column_blocks; ++n) output.at(r, n, 0) = output.at(r, n, 1) = 0;
  }
  inverse = 1;
}

/// Applies the functor, if any, to all rows of a product; the first row is query `first_row`. `inverse` is the factor
/// that normalized the rows.
template <class Config, class Product>
JIT_DEVICE void finish_output(const AttentionParams& params, const BlockContext& context, Product& output,
                              int first_row, float (&inverse)[Product::rows], int first_column = 0) {
  using Layout = typename Product::Layout;
  Product::for_each_row(first_row + Layout::lane_row(lane_id()), [&](int r, int query) {
    clear_row_without_keys(output, r, inverse[r]);
    if constexpr (has_output_functor<Config>) {
      if (query >= context.seqlen_q) return;  // mutate: GatesOfRowsThatAreNone
      finish_product_row<Config>(params, context, output, r, query, first_column);
    }
  });
}

}  // namespace jit
