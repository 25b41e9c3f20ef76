// Intervals (Moore, "Interval Analysis"): a functor's text evaluated for all queries and keys of a tile at once. The
// host compiles this file, too.
//
// Operations mean what they mean in C++. A result contains the results for all numbers within the bounds; if those may
// overflow or are undefined, it contains every number. Bounds of reals are wider than rounding errors, so that a
// compiler may contract, flush and approximate. An interval that may hold NaN reaches from −inf to +inf; no other
// interval holds NaN, and one may be a single infinity.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The range of a number type, and the error bound of inexact results.
template <class T>
struct NumberRange;
template <>
struct NumberRange<bool> {
  static constexpr bool is_real = false, is_signed = false;
  static constexpr bool lowest = false, highest = true;
};
template <>
struct NumberRange<int> {
  static constexpr bool is_real = false, is_signed = true;
  static constexpr int lowest = -2147483647 - 1, highest = 2147483647;
};
template <>
struct NumberRange<unsigned> {
  static constexpr bool is_real = false, is_signed = false;
  static constexpr unsigned lowest = 0, highest = 4294967295u;
};
template <>
struct NumberRange<long long> {
  static constexpr bool is_real = false, is_signed = true;
  static constexpr long long lowest = -9223372036854775807ll - 1, highest = 9223372036854775807ll;
};
template <>
struct NumberRange<float> {
  static constexpr bool is_real = true, is_signed = true;
  static constexpr float highest = __builtin_bit_cast(float, 0x7f800000), lowest = -highest;
  static constexpr float relative_error = 0x1p-20f, least_error = 0x1p-125f;
};
template <>
struct NumberRange<double> {
  static constexpr bool is_real = true, is_signed = true;
  static constexpr double highest = __builtin_bit_cast(double, 0x7ff0000000000000), lowest = -highest;
  static constexpr double relative_error = 0x1p-48, least_error = 0x1p-1020;
};

/// All numbers from `low` to `high`. For bool: certainly true, and possibly true.
template <class T>
struct Interval {
  T low;
  T high;

  JIT_HOST_DEVICE constexpr Interval(T only) : low(only), high(only) {}
  JIT_HOST_DEVICE constexpr Interval(T lowest, T highest) : low(lowest), high(highest) {}

  JIT_HOST_DEVICE constexpr bool is_exact() const { return low == high; }
  JIT_HOST_DEVICE constexpr bool holds(T x) const { return low <= x && x <= high; }
};

/// The interval of all numbers.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> any() {
  return {NumberRange<T>::lowest, NumberRange<T>::highest};
}

/// The interval of a number that was read; for NaN that of all numbers.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> exactly(T x) {
  return x == x ? Interval<T>(x) : any<T>();
}

namespace interval {

template <class A, class B>
inline constexpr bool same = false;
template <class A>
inline constexpr bool same<A, A> = true;

/// Types without negative numbers have nothing to compare.
template <class T>
JIT_HOST_DEVICE constexpr bool is_negative(T x) {
  if constexpr (NumberRange<T>::is_signed) {
    return x < 0;
  } else {
    return false;
  }
}
/// The magnitude of a number, which must not be the lowest one of a signed type.
template <class T>
JIT_HOST_DEVICE constexpr T distance(T x) {
  if constexpr (NumberRange<T>::is_signed) {
    return x < 0 ? -x : x;
  } else {
    return x;
  }
}

template <class T>
JIT_HOST_DEVICE constexpr T lesser(T x, T y) {
  return y < x ? y : x;
}
template <class T>
JIT_HOST_DEVICE constexpr T greater(T x, T y) {
  return x < y ? y : x;
}

template <class T>
JIT_HOST_DEVICE constexpr bool is_bounded(Interval<T> x) {
  // mutate: RealsThatAreNotBounded
  return x.low > NumberRange<T>::lowest && x.high < NumberRange<T>::highest;
}

template <class T>
JIT_HOST_DEVICE constexpr bool may_be_no_number(Interval<T> x) {
  return NumberRange<T>::is_real && x.low == NumberRange<T>::lowest && x.high == NumberRange<T>::highest;
}

/// The interval of computed integer bounds, or of all numbers if the type does not hold them.
template <class T, class Wide>
JIT_HOST_DEVICE constexpr Interval<T> within(Wide low, Wide high) {
  const bool fits =
      // mutate: BoundsThatFitBelow
      low >= static_cast<Wide>(NumberRange<T>::lowest) && high <= static_cast<Wide>(NumberRange<T>::highest);
  // mutate: BoundsThatDoNotFit
  return fits ? Interval<T>(static_cast<T>(low), static_cast<T>(high)) : any<T>();
}

/// The interval of computed real bounds, moved apart by the rounding error.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> rounded(T low, T high) {
  using Range = NumberRange<T>;
  low -= distance(low) * Range::relative_error + Range::least_error;
  high += distance(high) * Range::relative_error + Range::least_error;
  // mutate: RealsBeyondTheirType
  return low > Range::lowest && high < Range::highest ? Interval<T>(low, high) : any<T>();
}

/// The bounds of f at all corners: exact if f is monotonic in each argument.
template <class Result, class T, class F>
JIT_HOST_DEVICE constexpr Interval<Result> of_corners(Interval<T> x, Interval<T> y, F f) {
  const Result a = f(x.low, y.low), b = f(x.low, y.high), c = f(x.high, y.low), d = f(x.high, y.high);
  // mutate: ProductsOfTwoCorners
  return {lesser(lesser(a, b), lesser(c, d)), greater(greater(a, b), greater(c, d))};
}

/// Whether 64-bit numbers can be added and multiplied without overflow.
JIT_HOST_DEVICE constexpr bool are_small(Interval<long long> x, Interval<long long> y) {
  constexpr long long most = 2147483648ll;  // mutate: SmallNumbersAreLarge
  return x.low >= -most && x.high <= most && y.low >= -most && y.high <= most;  // mutate: AreSmall
}

template <class T>
JIT_HOST_DEVICE constexpr Interval<long long> upcast(Interval<T> x) {
  return {static_cast<long long>(x.low), static_cast<long long>(x.high)};
}

}  // namespace interval

// Arithmetic.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator+(Interval<T> x, Interval<T> y) {
  if constexpr (NumberRange<T>::is_real) {
    if (!interval::is_bounded(x) || !interval::is_bounded(y)) return any<T>();
    return interval::rounded(x.low + y.low, x.high + y.high);  // mutate: SumsOfRealsThatMayBeNone
  } else {
    const Interval<long long> a = interval::upcast(x), b = interval::upcast(y);
    if (sizeof(T) == 8 && !interval::are_small(a, b)) return any<T>();  // mutate: SumsWrap
    return interval::within<T>(a.low + b.low, a.high + b.high);         // mutate: SumsOfTheLowEnds
  }
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator-(Interval<T> x, Interval<T> y) {
  if constexpr (NumberRange<T>::is_real) {
    if (!interval::is_bounded(x) || !interval::is_bounded(y)) return any<T>();
    return interval::rounded(x.low - y.high, x.high - y.low);  // mutate: DifferencesOfRealsOfTheSameEnds
  } else {
    const Interval<long long> a = interval::upcast(x), b = interval::upcast(y);
    if (sizeof(T) == 8 && !interval::are_small(a, b)) return any<T>();  // mutate: DifferencesWrap
    return interval::within<T>(a.low - b.high, a.high - b.low);         // mutate: DifferencesOfTheSameEnds
  }
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator-(Interval<T> x) {
  if constexpr (NumberRange<T>::is_real) {
    return {-x.high, -x.low};  // mutate: NegatedRealsKeepTheirOrder
  } else {
    return Interval<T>(0) - x;  // mutate: NegatedWholeNumbersStay
  }
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator*(Interval<T> x, Interval<T> y) {
  if constexpr (NumberRange<T>::is_real) {
    if (!interval::is_bounded(x) || !interval::is_bounded(y)) return any<T>();
    const Interval<T> product = interval::of_corners<T>(x, y, [](T a, T b) { return a * b; });
    return interval::rounded(product.low, product.high);  // mutate: ProductsWithoutRounding
  } else {
    const Interval<long long> a = interval::upcast(x), b = interval::upcast(y);
    // mutate: ProductsWrap
    if ((sizeof(T) == 8 || !NumberRange<T>::is_signed) && !interval::are_small(a, b)) return any<T>();
    const Interval<long long> product =
        interval::of_corners<long long>(a, b, [](long long u, long long v) { return u * v; });
    return interval::within<T>(product.low, product.high);
  }
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator/(Interval<T> x, Interval<T> y) {
  if (y.holds(0)) return any<T>();  // mutate: QuotientsByZero
  const auto quotient = [&] { return interval::of_corners<T>(x, y, [](T a, T b) { return a / b; }); };
  if constexpr (NumberRange<T>::is_real) {
    if (!interval::is_bounded(x) || !interval::is_bounded(y)) return any<T>();
    const Interval<T> exact = quotient();
    return interval::rounded(exact.low, exact.high);  // mutate: QuotientsOfReals
  } else {
    const bool may_overflow = NumberRange<T>::is_signed && x.holds(NumberRange<T>::lowest);
    return may_overflow && y.holds(T(-1)) ? any<T>() : quotient();  // mutate: QuotientsThatOverflow
  }
}
/// The remainder has the sign of the dividend.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator%(Interval<T> x, Interval<T> y) {
  constexpr T lowest = NumberRange<T>::lowest;
  // mutate: RemaindersByTheLowest
  if (y.holds(0) || (NumberRange<T>::is_signed && (x.low == lowest || y.low == lowest))) return any<T>();
  // mutate: Remainders
  if (y.is_exact() && x.low / y.low == x.high / y.low) return {x.low % y.low, x.high % y.low};
  // mutate: RemaindersOfTheLesserDivisor
  const T largest = interval::greater(interval::distance(y.low), interval::distance(y.high)) - 1;
  // mutate: RemaindersHaveNoSign
  return {interval::is_negative(x.low) ? interval::greater<T>(x.low, T(0) - largest) : T(0),
          // mutate: RemaindersOfNegativeNumbers
          interval::is_negative(x.high) ? T(0) : interval::lesser(x.high, largest)};
}

// Bits, of whole numbers.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator<<(Interval<T> x, Interval<int> by) {
  if (by.low < 0 || by.high > 30) return any<T>();
  return x * Interval<T>(T(1) << by.low, T(1) << by.high);  // mutate: ShiftsLeftByTheLeast
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator>>(Interval<T> x, Interval<int> by) {
  if (by.low < 0 || by.high >= 8 * static_cast<int>(sizeof(T))) return any<T>();
  // mutate: ShiftsRightByTheLeast
  const T a = x.low >> by.low, b = x.low >> by.high, c = x.high >> by.low, d = x.high >> by.high;
  return {interval::lesser(a, b), interval::greater(c, d)};  // mutate: ShiftsRightInOrder
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator~(Interval<T> x) {
  return {~x.high, ~x.low};  // mutate: BitsTurnedInOrder
}

namespace interval {

/// `x & bits`, where `bits` is a run of the lowest bits, or all but such a run.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> masked(Interval<T> x, T bits) {
  if ((bits & (bits + 1)) == 0) {
    // mutate: LowBitsOfSeveralBlocks
    if ((x.low & ~bits) == (x.high & ~bits)) return {x.low & bits, x.high & bits};
    return {0, bits};
  }
  return {x.low & bits, x.high & bits};
}
template <class T>
JIT_HOST_DEVICE constexpr bool is_run_of_bits(T bits) {
  if (bits == NumberRange<T>::lowest || bits == NumberRange<T>::highest) return false;
  return (bits & (bits + 1)) == 0 || (~bits & (~bits + 1)) == 0;  // mutate: BitsThatAreNoRun
}

/// The least number 2^n − 1 that is at least x; x is not negative.
template <class T>
JIT_HOST_DEVICE constexpr T filled(T x) {
  // mutate: OneOfTheBitsFilled
  for (int shift = 1; shift < 8 * static_cast<int>(sizeof(T)); shift *= 2) x |= x >> shift;
  return x;
}

}  // namespace interval

template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator&(Interval<T> x, Interval<T> y) {
  if (y.is_exact() && interval::is_run_of_bits(y.low)) return interval::masked(x, y.low);
  if (x.is_exact() && interval::is_run_of_bits(x.low)) return interval::masked(y, x.low);
  if (x.is_exact() && y.is_exact()) return x.low & y.low;
  const bool x_is_natural = !interval::is_negative(x.low), y_is_natural = !interval::is_negative(y.low);
  if (!x_is_natural && !y_is_natural) return any<T>();  // mutate: BitsOfNegativeNumbers
  if (!x_is_natural) return {0, y.high};                // mutate: BitsOfTheLesserNumber
  if (!y_is_natural) return {0, x.high};                // mutate: BitsOfTheOtherNumber
  return {0, interval::lesser(x.high, y.high)};         // mutate: BitsOfBoth
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator|(Interval<T> x, Interval<T> y) {
  if (x.is_exact() && y.is_exact()) return x.low | y.low;
  if (interval::is_negative(x.low) || interval::is_negative(y.low)) return any<T>();
  // mutate: EitherBit
  return {interval::greater(x.low, y.low), interval::filled(static_cast<T>(x.high | y.high))};
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> operator^(Interval<T> x, Interval<T> y) {
  if (x.is_exact() && y.is_exact()) return x.low ^ y.low;
  if (interval::is_negative(x.low) || interval::is_negative(y.low)) return any<T>();
  return {0, interval::filled(static_cast<T>(x.high | y.high))};  // mutate: DifferentBitsOfTheFirst
}

// Comparisons: `x > y` of a text is `y < x`.
template <class T>
JIT_HOST_DEVICE constexpr Interval<bool> operator<(Interval<T> x, Interval<T> y) {
  return {x.high < y.low, x.low < y.high};  // mutate: Less
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<bool> operator<=(Interval<T> x, Interval<T> y) {
  // mutate: AtMost
  return {x.high <= y.low && !interval::may_be_no_number(x) && !interval::may_be_no_number(y),
          x.low <= y.high};  // mutate: AtMostOnlyIfLess
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<bool> operator==(Interval<T> x, Interval<T> y) {
  // mutate: Equal
  return {x.is_exact() && y.is_exact() && x.low == y.low, x.low <= y.high && y.low <= x.high};
}

// Truths. Both operands are computed: neither has an effect.
JIT_HOST_DEVICE constexpr Interval<bool> operator&&(Interval<bool> x, Interval<bool> y) {
  return {x.low && y.low, x.high && y.high};  // mutate: Both
}
JIT_HOST_DEVICE constexpr Interval<bool> operator||(Interval<bool> x, Interval<bool> y) {
  return {x.low || y.low, x.high || y.high};  // mutate: Either
}
// mutate: NotInOrder
JIT_HOST_DEVICE constexpr Interval<bool> operator!(Interval<bool> x) { return {!x.high, !x.low}; }
template <class T>
JIT_HOST_DEVICE constexpr Interval<bool> operator!=(Interval<T> x, Interval<T> y) {
  return !(x == y);  // mutate: DifferentIfNotEqual
}

/// `condition ? x : y`
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> choose(Interval<bool> condition, Interval<T> x, Interval<T> y) {
  if (condition.low) return x;    // mutate: OpenConditionsChooseTheFirst
  if (!condition.high) return y;  // mutate: OpenConditionsChooseTheSecond
  // mutate: ChoicesOfTheSecondEnd
  return {interval::lesser(x.low, y.low), interval::greater(x.high, y.high)};
}

// Functions. Some return a number if one argument is NaN, others do not.
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> least(Interval<T> x, Interval<T> y) {
  // mutate: LeastOfNoNumber
  if (interval::may_be_no_number(x) || interval::may_be_no_number(y)) return any<T>();
  return {interval::lesser(x.low, y.low), interval::lesser(x.high, y.high)};  // mutate: LeastOfTheFirst
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> most(Interval<T> x, Interval<T> y) {
  // mutate: MostOfNoNumber
  if (interval::may_be_no_number(x) || interval::may_be_no_number(y)) return any<T>();
  // mutate: MostOfTheLesserHighEnd
  return {interval::greater(x.low, y.low), interval::greater(x.high, y.high)};
}
template <class T>
JIT_HOST_DEVICE constexpr Interval<T> magnitude(Interval<T> x) {
  // mutate: MagnitudesOfTheLowest
  if (NumberRange<T>::is_real ? !interval::is_bounded(x) : x.low == NumberRange<T>::lowest) return any<T>();
  if (!interval::is_negative(x.low)) return x;
  if (x.high <= 0) return {-x.high, -x.low};      // mutate: MagnitudesOfNegativeNumbers
  return {0, interval::greater(-x.low, x.high)};  // mutate: Magnitudes
}

/// `static_cast<To>(x)`
template <class To, class From>
JIT_HOST_DEVICE constexpr Interval<To> convert(Interval<From> x) {
  using Range = NumberRange<To>;
  if constexpr (interval::same<To, From>) {
    return x;
  } else if constexpr (interval::same<To, bool>) {
    return x != Interval<From>(From(0));  // mutate: TruthOfTheLowEnd
  } else if constexpr (interval::same<From, bool>) {
    return {static_cast<To>(x.low), static_cast<To>(x.high)};
  } else if constexpr (Range::is_real) {
    // Rounding keeps the order of numbers.
    // mutate: RealsOfTheLowEnd
    const Interval<To> bounds = {static_cast<To>(x.low), static_cast<To>(x.high)};
    return interval::is_bounded(bounds) ? bounds : any<To>();
  } else if constexpr (NumberRange<From>::is_real) {
    // One above and below what the type holds is exact in any real type.
    const From end = static_cast<From>(Range::highest / 2 + 1) * 2;
    const bool fits = x.high < end && (Range::lowest == 0 ? x.low > -1 : x.low >= -end);
    // mutate: WholeNumbersOfRealsThatDoNotFit
    return fits ? Interval<To>(static_cast<To>(x.low), static_cast<To>(x.high)) : any<To>();
  } else {
    const Interval<long long> wide = interval::upcast(x);
    return interval::within<To>(wide.low, wide.high);  // mutate: OtherWholeNumbersOfTheLowEnd
  }
}

}  // namespace jit
