// Dual numbers, which carry a derivative: a score functor applied to one yields the functor's derivative, so that no
// functor, nor text, states derivatives ("Evaluating Derivatives", Griewank and Walther).
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"

namespace jit {

/// A number and its derivative with respect to the raw score. A float converts to a constant. There is no conversion
/// back, since it would lose the derivative.
struct Dual {
  float value;
  float derivative;

  Dual() = default;
  JIT_DEVICE Dual(float constant) : value(constant), derivative(0) {}
  JIT_DEVICE Dual(float v, float d) : value(v), derivative(d) {}

  friend JIT_DEVICE Dual operator+(Dual x) { return x; }
  friend JIT_DEVICE Dual operator-(Dual x) { return {-x.value, -x.derivative}; }
  friend JIT_DEVICE Dual operator+(Dual x, Dual y) {
    return {x.value + y.value, x.derivative + y.derivative};
  }
  friend JIT_DEVICE Dual operator-(Dual x, Dual y) {
    return {x.value - y.value, x.derivative - y.derivative};
  }
  friend JIT_DEVICE Dual operator*(Dual x, Dual y) {
    return {x.value * y.value, x.derivative * y.value + x.value * y.derivative};
  }
  // Products with a constant factor, so that an infinite value still has a derivative.
  friend JIT_DEVICE Dual operator*(Dual x, float y) { return {x.value * y, x.derivative * y}; }
  friend JIT_DEVICE Dual operator*(float x, Dual y) { return y * x; }
  friend JIT_DEVICE Dual operator/(Dual x, float y) { return {x.value / y, x.derivative / y}; }
  friend JIT_DEVICE Dual operator/(Dual x, Dual y) {
    const float quotient = x.value / y.value;
    return {quotient, (x.derivative - quotient * y.derivative) / y.value};
  }
  JIT_DEVICE Dual& operator+=(Dual x) { return *this = *this + x; }
  JIT_DEVICE Dual& operator-=(Dual x) { return *this = *this - x; }
  JIT_DEVICE Dual& operator*=(Dual x) { return *this = *this * x; }
  JIT_DEVICE Dual& operator/=(Dual x) { return *this = *this / x; }

  friend JIT_DEVICE bool operator==(Dual x, Dual y) { return x.value == y.value; }
  friend JIT_DEVICE bool operator!=(Dual x, Dual y) { return x.value != y.value; }
  friend JIT_DEVICE bool operator<(Dual x, Dual y) { return x.value < y.value; }
  friend JIT_DEVICE bool operator<=(Dual x, Dual y) { return x.value <= y.value; }
  friend JIT_DEVICE bool operator>(Dual x, Dual y) { return x.value > y.value; }
  friend JIT_DEVICE bool operator>=(Dual x, Dual y) { return x.value >= y.value; }
};

/// The function that texts call to read elements of 16 bits.
JIT_DEVICE Dual to_float(Dual x) { return x; }

/// The chain rule: f(x) with f(x.value) = value and f′(x.value) = slope.
JIT_DEVICE Dual chain(Dual x, float value, float slope) { return {value, slope * x.derivative}; }

inline constexpr float ln_10 = 2.3025850929940457f;
inline constexpr float log10_e = 0.4342944819032518f;
inline constexpr float two_over_sqrt_pi = 1.1283791670955126f;
inline constexpr float one_over_sqrt_two_pi = 0.3989422804f;

/// Defines a function of one number under its float and its C++ name. `slope = …` is an expression of x and y = f(x);
/// at a kink it is one of the two derivatives.
#define JIT_DUAL(name, of_x, slope_of_it) \
  JIT_DEVICE Dual name(Dual dual) {       \
    const float x = dual.value, y = of_x; \
    const float slope_of_it;              \
    return {y, slope * dual.derivative};  \
  }
#define JIT_DUAL_OF_FLOATS(name, slope_of_it)  \
  JIT_DUAL(name##f, ::name##f(x), slope_of_it) \
  JIT_DEVICE Dual name(Dual x) { return name##f(x); }

JIT_DUAL_OF_FLOATS(exp, slope = y)
JIT_DUAL_OF_FLOATS(exp2, slope = ln_2 * y)
JIT_DUAL_OF_FLOATS(exp10, slope = ln_10 * y)
JIT_DUAL_OF_FLOATS(expm1, slope = ::expf(x))
JIT_DUAL_OF_FLOATS(log, slope = 1 / x)
JIT_DUAL_OF_FLOATS(log2, slope = log2_e / x)
JIT_DUAL_OF_FLOATS(log10, slope = log10_e / x)
JIT_DUAL_OF_FLOATS(log1p, slope = 1 / (1 + x))
JIT_DUAL_OF_FLOATS(sqrt, slope = 0.5f / y)
JIT_DUAL_OF_FLOATS(rsqrt, slope = -0.5f * y / x)
JIT_DUAL_OF_FLOATS(cbrt, slope = 1 / (3 * y * y))
JIT_DUAL_OF_FLOATS(sin, slope = ::cosf(x))
JIT_DUAL_OF_FLOATS(cos, slope = -::sinf(x))
JIT_DUAL_OF_FLOATS(tan, slope = 1 + y * y)
JIT_DUAL_OF_FLOATS(asin, slope = ::rsqrtf((1 - x) * (1 + x)))
JIT_DUAL_OF_FLOATS(acos, slope = -::rsqrtf((1 - x) * (1 + x)))
JIT_DUAL_OF_FLOATS(atan, slope = 1 / (1 + x * x))
JIT_DUAL_OF_FLOATS(sinh, slope = ::coshf(x))
JIT_DUAL_OF_FLOATS(cosh, slope = ::sinhf(x))
JIT_DUAL_OF_FLOATS(tanh, slope = 1 - y * y)
JIT_DUAL_OF_FLOATS(asinh, slope = ::rsqrtf(x * x + 1))  // mutate: SlopeOfRsqrt
JIT_DUAL_OF_FLOATS(acosh, slope = ::rsqrtf((x - 1) * (x + 1)))
JIT_DUAL_OF_FLOATS(atanh, slope = 1 / ((1 - x) * (1 + x)))
JIT_DUAL_OF_FLOATS(erf, slope = two_over_sqrt_pi * ::expf(-x * x))
JIT_DUAL_OF_FLOATS(erfc, slope = -two_over_sqrt_pi * ::expf(-x * x))
JIT_DUAL_OF_FLOATS(normcdf, slope = one_over_sqrt_two_pi * ::expf(-0.5f * x * x))

// CUDA's own ones, less exact than those above.
JIT_DUAL(__expf, ::__expf(x), slope = y)
JIT_DUAL(__exp10f, ::__exp10f(x), slope = ln_10 * y)
JIT_DUAL(__logf, ::__logf(x), slope = rcp(x))
JIT_DUAL(__log2f, ::__log2f(x), slope = log2_e * rcp(x))
JIT_DUAL(__log10f, ::__log10f(x), slope = log10_e * rcp(x))
JIT_DUAL(__sinf, ::__sinf(x), slope = ::__cosf(x))
JIT_DUAL(__cosf, ::__cosf(x), slope = -::__sinf(x))
JIT_DUAL(__tanf, ::__tanf(x), slope = 1 + y * y)
JIT_DUAL(__frcp_rn, ::__frcp_rn(x), slope = -y * y)
JIT_DUAL(__saturatef, ::__saturatef(x), slope = x >= 0 && x <= 1 ? 1 : 0)

// Functions of templates/ptx/math.cuh.
JIT_DUAL(ex2, ex2(x), slope = ln_2 * y)
JIT_DUAL(lg2, lg2(x), slope = log2_e * rcp(x))
JIT_DUAL(rcp, rcp(x), slope = -y * y)
JIT_DUAL(sigmoid, sigmoid(x), slope = y * (1 - y))
JIT_DUAL(tanh_approx, tanh_approx(x), slope = 1 - y * y)  // mutate: WrongDerivativeOfTanh

#undef JIT_DUAL_OF_FLOATS
#undef JIT_DUAL

JIT_DEVICE Dual fabsf(Dual x) { return x.value < 0 ? -x : x; }
JIT_DEVICE Dual fmaxf(Dual x, Dual y) { return x.value < y.value ? y : x; }
JIT_DEVICE Dual fminf(Dual x, Dual y) { return y.value < x.value ? y : x; }
JIT_DEVICE Dual fmaf(Dual x, Dual y, Dual z) {
  return {::fmaf(x.value, y.value, z.value), (x * y + z).derivative};
}
JIT_DEVICE Dual hypotf(Dual x, Dual y) {
  const float z = ::hypotf(x.value, y.value);
  return {z, z == 0 ? 0 : x.value / z * x.derivative + y.value / z * y.derivative};
}
/// x to a constant power. Power 0 yields 1 for 0, too.
JIT_DEVICE Dual powf(Dual x, float power) {
  return chain(x, ::powf(x.value, power), power == 0 ? 0 : power * ::powf(x.value, power - 1));
}
/// A power of a constant base. For base 0 and exponents from 0 on the slope is 0.
JIT_DEVICE Dual powf(float base, Dual x) {
  const float y = ::powf(base, x.value);
  return chain(x, y, base == 0 && x.value >= 0 ? 0 : ::logf(base) * y);  // mutate: PowersOfZero
}
/// A base or power with derivative 0 contributes nothing, even if its slope is NaN.
JIT_DEVICE Dual powf(Dual base, Dual power) {
  return {::powf(base.value, power.value),
          (base.derivative == 0 ? 0 : powf(base, power.value).derivative) +
              (power.derivative == 0 ? 0 : powf(base.value, power).derivative)};
}

// x − n · y, where the integer n is piecewise constant.
JIT_DEVICE Dual fmodf(Dual x, Dual y) {
  const float z = ::fmodf(x.value, y.value);
  return {z, x.derivative - (x.value - z) / y.value * y.derivative};
}
JIT_DEVICE Dual remainderf(Dual x, Dual y) {
  const float z = ::remainderf(x.value, y.value);
  return {z, x.derivative - (x.value - z) / y.value * y.derivative};
}
/// x or −x.
JIT_DEVICE Dual copysignf(Dual x, Dual sign) { return ::signbit(x.value) == ::signbit(sign.value) ? x : -x; }

// Piecewise constant functions.
JIT_DEVICE Dual floorf(Dual x) { return ::floorf(x.value); }
JIT_DEVICE Dual ceilf(Dual x) { return ::ceilf(x.value); }
JIT_DEVICE Dual roundf(Dual x) { return ::roundf(x.value); }
JIT_DEVICE Dual rintf(Dual x) { return ::rintf(x.value); }
JIT_DEVICE Dual nearbyintf(Dual x) { return ::nearbyintf(x.value); }
JIT_DEVICE Dual truncf(Dual x) { return ::truncf(x.value); }
JIT_DEVICE bool isnan(Dual x) { return ::isnan(x.value); }
JIT_DEVICE bool isinf(Dual x) { return ::isinf(x.value); }
JIT_DEVICE bool isfinite(Dual x) { return ::isfinite(x.value); }
JIT_DEVICE bool signbit(Dual x) { return ::signbit(x.value); }

// C++'s own names of the same functions.
JIT_DEVICE Dual abs(Dual x) { return fabsf(x); }
JIT_DEVICE Dual fabs(Dual x) { return fabsf(x); }
JIT_DEVICE Dual floor(Dual x) { return floorf(x); }
JIT_DEVICE Dual ceil(Dual x) { return ceilf(x); }
JIT_DEVICE Dual round(Dual x) { return roundf(x); }
JIT_DEVICE Dual rint(Dual x) { return rintf(x); }
JIT_DEVICE Dual nearbyint(Dual x) { return nearbyintf(x); }
JIT_DEVICE Dual trunc(Dual x) { return truncf(x); }
JIT_DEVICE Dual fmax(Dual x, Dual y) { return fmaxf(x, y); }
JIT_DEVICE Dual max(Dual x, Dual y) { return fmaxf(x, y); }
JIT_DEVICE Dual fmin(Dual x, Dual y) { return fminf(x, y); }
JIT_DEVICE Dual min(Dual x, Dual y) { return fminf(x, y); }
JIT_DEVICE Dual hypot(Dual x, Dual y) { return hypotf(x, y); }
JIT_DEVICE Dual fmod(Dual x, Dual y) { return fmodf(x, y); }
JIT_DEVICE Dual remainder(Dual x, Dual y) { return remainderf(x, y); }
JIT_DEVICE Dual copysign(Dual x, Dual y) { return copysignf(x, y); }
JIT_DEVICE Dual fma(Dual x, Dual y, Dual z) { return fmaf(x, y, z); }
JIT_DEVICE Dual pow(Dual x, float power) { return powf(x, power); }
JIT_DEVICE Dual pow(float base, Dual x) { return powf(base, x); }
JIT_DEVICE Dual pow(Dual base, Dual power) { return powf(base, power); }

// Others of CUDA.
JIT_DEVICE Dual __powf(Dual x, float power) {
  return chain(x, ::__powf(x.value, power), power == 0 ? 0 : power * ::__powf(x.value, power - 1));
}
JIT_DEVICE Dual __fdividef(Dual x, float y) {
  return {::__fdividef(x.value, y), ::__fdividef(x.derivative, y)};
}
JIT_DEVICE Dual __fdividef(Dual x, Dual y) {
  const float z = ::__fdividef(x.value, y.value);
  return {z, ::__fdividef(x.derivative - z * y.derivative, y.value)};
}
JIT_DEVICE Dual fdividef(Dual x, float y) { return x / y; }
JIT_DEVICE Dual fdividef(Dual x, Dual y) { return x / y; }
JIT_DEVICE Dual __fsqrt_rn(Dual x) { return sqrtf(x); }

}  // namespace jit
