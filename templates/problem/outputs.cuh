// Output functors: functions of o, normalized and in fp32, that a kernel applies before it writes o; backward evaluates
// them on dual numbers. A functor is a struct with
//   explicit Output(const BlockContext&)
//   Rows                                             rows of its tensors, by Rows(context, q) those of query q
//   Numbers<count>                                   elements that `count` adjacent columns of a row read
//   load<alignment, there>(numbers, rows, d)         loads them from column d on, except those of slot `there`
//   put<slot>(numbers, values)                       sets those of a slot
//   prefetch_columns<columns>(rows, part, parts)           prefetches part `part` of `parts` of a row to L2
//   apply(value, q, d, numbers, i)                   the result for column d + i
//   derive<slot>(value, q, d, numbers, i)            of a dual; the element of slot's tensor has derivative 1
//   for_each_tensor(f)                               f.operator()<Tensor>()
#pragma once

#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "problem/functor.cuh"
#include "ptx/cache_hints.cuh"
#include "ptx/math.cuh"

namespace jit {

/// Names that the text of an output functor may use beside its own.
struct TextOutput {
  int b;  ///< batch entry
  int h;  ///< query head
  int heads_q;
  int seqlen_q;
  const FunctorTensor* tensors;
  __device__ explicit TextOutput(const BlockContext& context)
      : b(context.batch),
        h(context.head),
        heads_q(context.heads_q),
        seqlen_q(context.seqlen_q),
        tensors(context.tensors) {}
};
template <class T>
JIT_DEVICE const T* tensor_data(const TextOutput& output, int slot) {
  return static_cast<const T*>(output.tensors[slot].data);
}

inline constexpr int line_bytes = 128;

/// The row of a tensor that belongs to a row of o.
template <class T>
JIT_DEVICE const T* place_of_row(const BlockContext& context, int slot, int q) {
  const long long* const strides = context.tensors[slot].strides;
  // mutate: GatesOfAnotherRow
  return tensor_data<T>(context, slot) + context.batch * strides[0] + (context.q_begin + q) * strides[1] +
         context.head * strides[2];
}

/// A tensor with an element for each element of o.
template <class T, int tensor_slot>
struct ElementTensor {
  using Element = T;
  static constexpr int slot = tensor_slot;
  static constexpr bool is_of_rows = false;

  template <int alignment, int count>
  static JIT_DEVICE void load(const T* row, int d, float (&values)[count]) {
    load_piece<alignment>(row + d, values);
  }
  template <int columns>
  static JIT_DEVICE void prefetch_columns(const T* row, int part, int parts) {
    constexpr int line_columns = line_bytes / static_cast<int>(sizeof(T));
#pragma unroll 1
    for (int d = part * line_columns; d < columns; d += parts * line_columns) prefetch_l2(row + d);
  }
};

/// A tensor with an element for each row of o.
template <class T, int tensor_slot>
struct RowTensor {
  using Element = T;
  static constexpr int slot = tensor_slot;
  static constexpr bool is_of_rows = true;

  template <int alignment, int count>
  static JIT_DEVICE void load(const T* row, int, float (&values)[count]) {
    const float value = to_float(*row);
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = value;
  }
  template <int columns>
  static JIT_DEVICE void prefetch_columns(const T* row, int part, int) {
    if (part == 0) prefetch_l2(row);
  }
};

/// A row of one tensor.
template <class Tensor>
struct RowOf {
  const typename Tensor::Element* data;
  JIT_DEVICE RowOf(const BlockContext& context, int q)
      : data(place_of_row<typename Tensor::Element>(context, Tensor::slot, q)) {}
};

/// Elements of one tensor for `count` adjacent columns.
template <class Tensor, int count>
struct NumbersOf {
  float values[count];
};

/// A text, and the tensors that it is a function of, in the order of its parameters.
template <class Text, class... Tensors>
class OutputOf {
 public:
  struct Rows : RowOf<Tensors>... {
    JIT_DEVICE Rows([[maybe_unused]] const BlockContext& context, [[maybe_unused]] int q)
        : RowOf<Tensors>(context, q)... {}
  };
  template <int count>
  struct Numbers : NumbersOf<Tensors, count>... {};

  __device__ explicit OutputOf(const BlockContext& context) : text_(context) {}

  template <int alignment, int there = -1, int count>
  static JIT_DEVICE void load(Numbers<count>& numbers, const Rows& rows, int d) {
    const auto load_one = [&]<class Tensor>() {
      if constexpr (Tensor::slot != there) {
        Tensor::template load<alignment>(static_cast<const RowOf<Tensor>&>(rows).data, d,
                                         of<Tensor>(numbers));
      }
    };
    (load_one.template operator()<Tensors>(), ...);
  }
  template <int slot, int count>
  static JIT_DEVICE void put(Numbers<count>& numbers, const float (&values)[count]) {
    const auto put_one = [&]<class Tensor>() {
      if constexpr (Tensor::slot == slot) {
#pragma unroll
        for (int i = 0; i < count; ++i) of<Tensor>(numbers)[i] = values[i];
      }
    };
    (put_one.template operator()<Tensors>(), ...);
  }
  template <int columns>
  static JIT_DEVICE void prefetch_columns(const Rows& rows, int part, int parts) {
    (Tensors::template prefetch_columns<columns>(static_cast<const RowOf<Tensors>&>(rows).data, part, parts),
     ...);
  }
  template <int count>
  JIT_DEVICE float apply(float value, int q, int d, Numbers<count>& numbers, int i) const {
    return text_.text(value, q, d + i, of<Tensors>(numbers)[i]...);
  }
  template <int wanted, class Number, int count>
  JIT_DEVICE Number derive(Number value, int q, int d, Numbers<count>& numbers, int i) const {
    return text_.text(value, q, d + i,
                      Number(of<Tensors>(numbers)[i], Tensors::slot == wanted ? 1.0f : 0.0f)...);
  }
  template <class F>
  static JIT_DEVICE constexpr void for_each_tensor(F f) {
    (f.template operator()<Tensors>(), ...);
  }

 private:
  template <class Tensor, int count>
  static JIT_DEVICE float (&of(NumbersOf<Tensor, count>& numbers))[count] {
    return numbers.values;
  }

  Text text_;
};

/// First A, then B.
template <class A, class B>
class ThenOutput {
 public:
  struct Rows {
    typename A::Rows a;
    typename B::Rows b;
    JIT_DEVICE Rows(const BlockContext& context, int q) : a(context, q), b(context, q) {}
  };
  template <int count>
  struct Numbers {
    typename A::template Numbers<count> a;
    typename B::template Numbers<count> b;
  };

  __device__ explicit ThenOutput(const BlockContext& context) : a_(context), b_(context) {}

  template <int alignment, int there = -1, int count>
  static JIT_DEVICE void load(Numbers<count>& numbers, const Rows& rows, int d) {
    A::template load<alignment, there>(numbers.a, rows.a, d);
    B::template load<alignment, there>(numbers.b, rows.b, d);
  }
  template <int slot, int count>
  static JIT_DEVICE void put(Numbers<count>& numbers, const float (&values)[count]) {
    A::template put<slot>(numbers.a, values);
    B::template put<slot>(numbers.b, values);
  }
  template <int columns>
  static JIT_DEVICE void prefetch_columns(const Rows& rows, int part, int parts) {
    A::template prefetch_columns<columns>(rows.a, part, parts);
    B::template prefetch_columns<columns>(rows.b, part, parts);
  }
  template <int count>
  JIT_DEVICE float apply(float value, int q, int d, Numbers<count>& numbers, int i) const {
    return b_.apply(a_.apply(value, q, d, numbers.a, i), q, d, numbers.b, i);
  }
  template <int wanted, class Number, int count>
  JIT_DEVICE Number derive(Number value, int q, int d, Numbers<count>& numbers, int i) const {
    return b_.template derive<wanted>(a_.template derive<wanted>(value, q, d, numbers.a, i), q, d, numbers.b,
                                      i);
  }
  template <class F>
  static JIT_DEVICE constexpr void for_each_tensor(F f) {
    A::for_each_tensor(f);
    B::for_each_tensor(f);
  }

 private:
  A a_;
  B b_;
};

}  // namespace jit
