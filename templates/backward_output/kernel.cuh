// The gradients of an output functor f, before those of attention: of what f returns, dY, it makes that of the o that it was
// given, and those of what it read,
//
//     dO = dY ∘ ∂f/∂value        dT = dY ∘ ∂f/∂T,  summed over the columns of a row where T has one number for it
//
// so that each of dY, o and T is read once. Eight lanes have a row. Equal inputs give bitwise identical results.
#pragma once

#include "backward/query_tile.cuh"
#include "backward_output/params.cuh"
#include "base/element.cuh"
#include "base/gradient_params.cuh"
#include "base/row_pieces.cuh"
#include "problem/dual.cuh"
#include "problem/gradients.cuh"
#include "problem/outputs.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_output {

inline constexpr int row_lanes = 8;      ///< that share a row
inline constexpr int piece_columns = 8;  ///< that a lane reads at once
inline constexpr int no_slot = -1;       ///< of a derivative with respect to no tensor

/// Where a gradient has what belongs to a row of o: the last of its dimensions are o's, without columns `of_rows`.
template <class T>
JIT_DEVICE T* gradient_row(const TensorGradient& gradient, bool of_rows, int batch, int row, int head) {
  const long long* const strides = gradient.strides + (of_rows ? 1 : 0);
  // mutate: GradientsOfAnotherRow
  return static_cast<T*>(gradient.data) + batch * strides[0] + row * strides[1] + head * strides[2];
}

/// A piece of a row of a gradient, whose columns may lie apart.
template <class T>
JIT_DEVICE void store_gradients(T* row, long long stride, int column, const float (&values)[piece_columns]) {
  if (stride == 1 && reinterpret_cast<unsigned long long>(row + column) % chunk_bytes == 0)
    return store_piece<chunk_bytes>(row + column, values);
#pragma unroll
  for (int i = 0; i < piece_columns; ++i) {
    const float value[1] = {values[i]};
    store_piece<static_cast<int>(sizeof(T))>(row + (column + i) * stride, value);
  }
}

/// One row, by the lanes of a group, of which some may have no row. `dY` times the derivatives are in fp32, and dO is left
/// rounded in `d_o`.
template <class Config>
class RowGradients {
  using Functor = typename Config::OutputFunctor;
  using Element = typename Config::Element;
  using Numbers = typename Functor::template Numbers<piece_columns>;

 public:
  JIT_DEVICE RowGradients(const BlockContext& context, const GradientParams& gradients, int query)
      : functor_(context), rows_(context, query), context_(context), gradients_(gradients), query_(query) {}

  /// A piece from column `d` on: `y` is dY and becomes dO, `o` is o before the functor.
  JIT_DEVICE void differentiate(float (&y)[piece_columns], const float (&o)[piece_columns], int d) {
    Numbers numbers;
    functor_.template load<Config::alignment>(numbers, rows_, d);
    Functor::for_each_tensor([&]<class Tensor>() {
      const TensorGradient& gradient = gradients_.tensors[Tensor::slot];
      if (gradient.data == nullptr) return;
      float values[piece_columns];
#pragma unroll
      for (int i = 0; i < piece_columns; ++i)
        values[i] = y[i] * functor_.template derive<Tensor::slot>(Dual(o[i]), query_, d, numbers, i).derivative;
      if constexpr (Tensor::is_of_rows) {
        float& sum = sums_[Tensor::slot];
#pragma unroll
        for (int i = 0; i < piece_columns; ++i) sum += values[i];  // mutate: GradientOfAColumn
      } else {
        store_gradients(row_of<Tensor>(gradient), gradient.strides[3], d, values);
      }
    });
#pragma unroll
    for (int i = 0; i < piece_columns; ++i)
      y[i] *= functor_.template derive<no_slot>(Dual(o[i], 1), query_, d, numbers, i).derivative;
  }

  /// Behind the last piece: what belongs to the row. By a whole warp; `exists` is whether the lane has a row.
  JIT_DEVICE void write_sums(bool exists) {
    Functor::for_each_tensor([&]<class Tensor>() {
      if constexpr (Tensor::is_of_rows) {
        const TensorGradient& gradient = gradients_.tensors[Tensor::slot];
        if (gradient.data == nullptr) return;
        float sum = sums_[Tensor::slot];
#pragma unroll
        for (int other = 1; other < row_lanes; other *= 2) sum += __shfl_xor_sync(full_warp, sum, other);
        if (!exists || threadIdx.x % row_lanes != 0) return;
        const float value[1] = {sum};
        store_piece<1>(row_of<Tensor>(gradient), value);
      }
    });
  }

 private:
  template <class Tensor>
  JIT_DEVICE auto* row_of(const TensorGradient& gradient) const {
    using T = typename Tensor::Element;
    const bool is_varlen = Config::sequences_q == SequenceKind::varlen;
    return gradient_row<T>(gradient, Tensor::is_of_rows, is_varlen ? 0 : context_.batch,
                           context_.q_begin + query_, context_.head);
  }

  Functor functor_;
  typename Functor::Rows rows_;
  const BlockContext& context_;
  const GradientParams& gradients_;
  int query_;
  float sums_[max_functor_tensors] = {};
};

/// A block has a tile of queries.
template <class Config, int threads>
JIT_DEVICE void differentiate_output(const AttentionParams& params, const GradientParams& gradient_params,
                                     const RawGradient& raw) {
  using Element = typename Config::Element;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const BlockContext context = sequences.context(batch, head);
  if (has_entry_lengths<Config> && (first_query < 0 || first_query >= context.seqlen_q)) return;
  const auto do_rows = gradients.do_rows(batch, head);
  const auto o_rows = sequences.output_rows(batch, head);
  Element* const d_o = static_cast<Element*>(raw.data) + batch * raw.strides.batch + head * raw.strides.head +
                       context.q_begin * raw.strides.seq;
#pragma unroll 1
  for (int row = threadIdx.x / row_lanes; row < Config::tile_q; row += threads / row_lanes) {
    const int query = first_query + row;
    const bool exists = query < context.seqlen_q;
    RowGradients<Config> own(context, gradient_params, query);
    if (exists) {
#pragma unroll 1
      for (int d = threadIdx.x % row_lanes * piece_columns; d < Config::head_dim_v;
           d += row_lanes * piece_columns) {
        float y[piece_columns], o[piece_columns];
        load_piece<Config::alignment>(do_rows.at(query) + d, y);
        load_piece<Config::alignment>(o_rows.at(query) + d, o);
        own.differentiate(y, o, d);
        store_piece<chunk_bytes>(d_o + query * raw.strides.seq + d, y);
      }
    }
    own.write_sums(exists);
  }
}

}  // namespace jit::backward_output
