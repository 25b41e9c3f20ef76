// Exact numbers, the counterpart of intervals (problem/interval.cuh): a functor's text evaluated for one query. The
// host compiles this file, too.
//
// Operations mean what they mean in C++. If C++ defines none, the result is any number, without harm: subexpressions
// under a condition are always evaluated here.
#pragma once

#include "base/host_device.cuh"
#include "problem/interval.cuh"

namespace jit {

template <class T>
struct Exact {
  T value;

  JIT_HOST_DEVICE constexpr Exact(T x) : value(x) {}
};

namespace exact {

/// The unsigned type of the same width, whose arithmetic wraps.
template <class T>
struct WithoutSign {
  using type = T;
};
template <>
struct WithoutSign<int> {
  using type = unsigned;
};
template <>
struct WithoutSign<long long> {
  using type = unsigned long long;
};
template <class T>
JIT_HOST_DEVICE constexpr auto bits(Exact<T> x) {
  return static_cast<typename WithoutSign<T>::type>(x.value);
}
template <class T, class Bits>
JIT_HOST_DEVICE constexpr Exact<T> of_bits(Bits bits) {
  return static_cast<T>(bits);
}

template <class T>
JIT_HOST_DEVICE constexpr bool is_minus_one(Exact<T> x) {
  return NumberRange<T>::is_signed && x.value == T(-1);  // mutate: NumbersWithoutASignAreMinusOne
}
template <class T>
JIT_HOST_DEVICE constexpr bool moves_within(Exact<int> by) {
  return by.value >= 0 && by.value < 8 * static_cast<int>(sizeof(T));
}

}  // namespace exact

/// Defines an operator by that of the underlying type.
#define JIT_EXACT(operation, Result)                                                   \
  template <class T>                                                                   \
  JIT_HOST_DEVICE constexpr Exact<Result> operator operation(Exact<T> x, Exact<T> y) { \
    return x.value operation y.value;                                                  \
  }
JIT_EXACT(&, T)
JIT_EXACT(|, T)
JIT_EXACT(^, T)
JIT_EXACT(<, bool)
JIT_EXACT(<=, bool)
JIT_EXACT(==, bool)
JIT_EXACT(!=, bool)
#undef JIT_EXACT

// Arithmetic.
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator+(Exact<T> x, Exact<T> y) {
  return exact::of_bits<T>(exact::bits(x) + exact::bits(y));
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator-(Exact<T> x, Exact<T> y) {
  return exact::of_bits<T>(exact::bits(x) - exact::bits(y));
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator*(Exact<T> x, Exact<T> y) {
  return exact::of_bits<T>(exact::bits(x) * exact::bits(y));
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator-(Exact<T> x) {
  return Exact<T>(0) - x;
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator/(Exact<T> x, Exact<T> y) {
  if (y.value == 0) return T(0);
  return exact::is_minus_one(y) ? -x : Exact<T>(x.value / y.value);
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator%(Exact<T> x, Exact<T> y) {
  if (y.value == 0 || exact::is_minus_one(y)) return T(0);
  return x.value % y.value;
}

// Bits, of whole numbers.
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator<<(Exact<T> x, Exact<int> by) {
  return exact::moves_within<T>(by) ? exact::of_bits<T>(exact::bits(x) << by.value) : Exact<T>(0);
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator>>(Exact<T> x, Exact<int> by) {
  return exact::moves_within<T>(by) ? Exact<T>(x.value >> by.value) : Exact<T>(0);
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> operator~(Exact<T> x) {
  return ~x.value;
}

// Truths. Both operands are computed: neither has an effect.
JIT_HOST_DEVICE constexpr Exact<bool> operator&&(Exact<bool> x, Exact<bool> y) { return x.value && y.value; }
JIT_HOST_DEVICE constexpr Exact<bool> operator||(Exact<bool> x, Exact<bool> y) { return x.value || y.value; }
JIT_HOST_DEVICE constexpr Exact<bool> operator!(Exact<bool> x) { return !x.value; }

/// `condition ? x : y`
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> choose(Exact<bool> condition, Exact<T> x, Exact<T> y) {
  return condition.value ? x.value : y.value;  // mutate: ConditionsChooseTheOther
}

// Functions.
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> least(Exact<T> x, Exact<T> y) {
  return y.value < x.value ? y.value : x.value;
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> most(Exact<T> x, Exact<T> y) {
  return x.value < y.value ? y.value : x.value;
}
template <class T>
JIT_HOST_DEVICE constexpr Exact<T> magnitude(Exact<T> x) {
  return interval::is_negative(x.value) ? -x : x;
}

/// `static_cast<To>(x)`
template <class To, class From>
JIT_HOST_DEVICE constexpr Exact<To> convert(Exact<From> x) {
  return static_cast<To>(x.value);
}

}  // namespace jit
