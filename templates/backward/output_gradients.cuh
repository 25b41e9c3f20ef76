// Gradients of an output functor f. From dY, the gradient of its result, the first kernel that reads dY computes the
// gradient of its argument o, and those of the tensors T that it reads,
//
//     dO = dY ∘ ∂f/∂value        dT = dY ∘ ∂f/∂T,  summed over the columns of a row where T has one number for it
//
// so that each of dY, o and T is read once. Equal inputs give bitwise identical results.
#pragma once

#include "base/element.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "base/row_pieces.cuh"
#include "problem/dual.cuh"
#include "problem/functor.cuh"
#include "problem/outputs.cuh"

namespace jit {

inline constexpr int row_lanes = 8;      ///< lanes that share a row
inline constexpr int piece_columns = 8;  ///< columns that a lane reads at once
inline constexpr int no_slot = -1;       ///< slot for the derivative with respect to the value

/// Whether an output functor was applied to o.
template <class Config>
concept differentiates_output = requires {
  typename Config::OutputFunctor;
};

/// The row of a gradient for a row of o. Its last dimensions are those of o, without columns if `of_rows`.
template <class T>
JIT_DEVICE T* gradient_row(const TensorGradient& gradient, bool of_rows, int batch, int row, int head) {
  const long long* const strides = gradient.strides + (of_rows ? 1 : 0);
  // mutate: GradientsOfAnotherRow
  return static_cast<T*>(gradient.data) + batch * strides[0] + row * strides[1] + head * strides[2];
}

/// Stores a piece of a row of a gradient, whose columns may be strided.
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

/// Gradients of one row, by a group of lanes; some groups of a warp may have no row. Gradients of tensors are computed
/// in fp32.
template <class Config>
class RowGradients {
  using Functor = typename Config::OutputFunctor;
  using Element = typename Config::Element;
  using Numbers = typename Functor::template Numbers<piece_columns>;

 public:
  JIT_DEVICE RowGradients(const BlockContext& context, const GradientParams& gradients, int query)
      : functor_(context), rows_(context, query), context_(context), gradients_(gradients), query_(query) {}

  /// The inputs of a piece.
  struct Piece {
    float y[piece_columns];  ///< dY, which becomes dO
    float o[piece_columns];  ///< o before the functor
    Numbers numbers;
  };
  template <class T, class U>
  JIT_DEVICE void load(Piece& piece, const T* y, const U* o, int d) const {
    load_piece<Config::alignment>(y + d, piece.y);
    load_piece<Config::alignment>(o + d, piece.o);
    functor_.template load<Config::alignment>(piece.numbers, rows_, d);
  }

  /// A piece from column `d` on.
  JIT_DEVICE void differentiate(Piece& piece, int d) {
    auto& [y, o, numbers] = piece;
    unsigned seen = 0;  // a derivative includes all functors of a chain that read the tensor
    Functor::for_each_tensor([&]<class Tensor>() {
      const TensorGradient& gradient = gradients_.tensors[Tensor::slot];
      if (gradient.data == nullptr || (seen >> Tensor::slot & 1) != 0) return;
      seen |= 1u << Tensor::slot;
      float values[piece_columns];
#pragma unroll
      for (int i = 0; i < piece_columns; ++i)
        values[i] =
            y[i] * functor_.template derive<Tensor::slot>(Dual(o[i]), query_, d, numbers, i).derivative;
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

  /// Writes the sums of the row, after its last piece. By a whole warp; `exists`: whether the lane has a row.
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

/// Calls f(piece, d) for the lane's pieces of a row, loading two at once, since stores of f delay later loads.
template <class Config, class T, class U, class F>
JIT_DEVICE void for_pieces(const RowGradients<Config>& row, const T* y, const U* o, F f) {
  constexpr int at_once = 2, step = row_lanes * piece_columns;
  using Piece = typename RowGradients<Config>::Piece;
#pragma unroll 1
  for (int first = threadIdx.x % row_lanes * piece_columns; first < Config::head_dim_v;
       first += at_once * step) {
    Piece pieces[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (first + i * step < Config::head_dim_v) row.load(pieces[i], y, o, first + i * step);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (first + i * step < Config::head_dim_v) f(pieces[i], first + i * step);
    }
  }
}

/// Rows of the gradient of o before the functor, of a sequence and head.
template <class Config>
JIT_DEVICE typename Config::Element* raw_gradient_rows(const RawGradient& raw, const BlockContext& context) {
  const int batch = Config::sequences_q == SequenceKind::varlen ? 0 : context.batch;
  return static_cast<typename Config::Element*>(raw.data) + batch * raw.strides.batch +
         context.head * raw.strides.head + context.q_begin * raw.strides.seq;
}

/// Rounds a piece, stores it to `target`, and replaces `values` by the rounded ones.
template <class Element>
JIT_DEVICE void leave_rounded(Element* target, float (&values)[piece_columns]) {
  unsigned words[piece_columns * sizeof(Element) / 4];
#pragma unroll
  for (int i = 0; i < piece_columns; i += 2) words[i / 2] = pack<Element>(values[i], values[i + 1]);
  store_words<static_cast<int>(sizeof words), chunk_bytes>(target, words);
  upcast_words<Element>(words, values);
}

}  // namespace jit
