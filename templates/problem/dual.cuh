// Numbers that carry their derivative along: what a score functor makes of one has the functor's derivative, so that
// nobody writes derivatives, of texts neither (dual numbers; "Evaluating Derivatives", Griewank and Walther).
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"

namespace jit {

/// A number that depends on the raw score, and its derivative with respect to that. Other numbers become one that
/// does not depend on it. There is no way back to a float: the derivative would be lost.
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
  // A product with a factor that does not depend on the score, so that an infinite value has a derivative.
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

/// f(x), of which `value` and `slope` are known at x.value.
JIT_DEVICE Dual chain(Dual x, float value, float slope) { return {value, slope * x.derivative}; }

inline constexpr float ln_10 = 2.3025850929940457f;
inline constexpr float log10_e = 0.4342944819032518f;
inline constexpr float two_over_sqrt_pi = 1.1283791670955126f;

// Functions under the names that they have for floats. Where a derivative has two values, at a kink, it is one of
// them.
JIT_DEVICE Dual fabsf(Dual x) { return x.value < 0 ? -x : x; }
JIT_DEVICE Dual fmaxf(Dual x, Dual y) { return x.value < y.value ? y : x; }
JIT_DEVICE Dual fminf(Dual x, Dual y) { return y.value < x.value ? y : x; }
JIT_DEVICE Dual fmaf(Dual x, Dual y, Dual z) {
  return {::fmaf(x.value, y.value, z.value), (x * y + z).derivative};
}
JIT_DEVICE Dual expf(Dual x) {
  const float y = ::expf(x.value);
  return chain(x, y, y);
}
JIT_DEVICE Dual exp2f(Dual x) {
  const float y = ::exp2f(x.value);
  return chain(x, y, ln_2 * y);
}
JIT_DEVICE Dual exp10f(Dual x) {
  const float y = ::exp10f(x.value);
  return chain(x, y, ln_10 * y);
}
JIT_DEVICE Dual expm1f(Dual x) { return chain(x, ::expm1f(x.value), ::expf(x.value)); }
JIT_DEVICE Dual logf(Dual x) { return chain(x, ::logf(x.value), 1 / x.value); }
JIT_DEVICE Dual log2f(Dual x) { return chain(x, ::log2f(x.value), log2_e / x.value); }
JIT_DEVICE Dual log10f(Dual x) { return chain(x, ::log10f(x.value), log10_e / x.value); }
JIT_DEVICE Dual log1pf(Dual x) { return chain(x, ::log1pf(x.value), 1 / (1 + x.value)); }
JIT_DEVICE Dual sqrtf(Dual x) {
  const float y = ::sqrtf(x.value);
  return chain(x, y, 0.5f / y);
}
JIT_DEVICE Dual rsqrtf(Dual x) {
  const float y = ::rsqrtf(x.value);
  return chain(x, y, -0.5f * y / x.value);
}
JIT_DEVICE Dual cbrtf(Dual x) {
  const float y = ::cbrtf(x.value);
  return chain(x, y, 1 / (3 * y * y));
}
JIT_DEVICE Dual hypotf(Dual x, Dual y) {
  const float z = ::hypotf(x.value, y.value);
  return {z, z == 0 ? 0 : x.value / z * x.derivative + y.value / z * y.derivative};
}
JIT_DEVICE Dual sinf(Dual x) { return chain(x, ::sinf(x.value), ::cosf(x.value)); }
JIT_DEVICE Dual cosf(Dual x) { return chain(x, ::cosf(x.value), -::sinf(x.value)); }
JIT_DEVICE Dual tanf(Dual x) {
  const float y = ::tanf(x.value);
  return chain(x, y, 1 + y * y);
}
JIT_DEVICE Dual asinf(Dual x) { return chain(x, ::asinf(x.value), ::rsqrtf((1 - x.value) * (1 + x.value))); }
JIT_DEVICE Dual acosf(Dual x) { return chain(x, ::acosf(x.value), -::rsqrtf((1 - x.value) * (1 + x.value))); }
JIT_DEVICE Dual atanf(Dual x) { return chain(x, ::atanf(x.value), 1 / (1 + x.value * x.value)); }
JIT_DEVICE Dual sinhf(Dual x) { return chain(x, ::sinhf(x.value), ::coshf(x.value)); }
JIT_DEVICE Dual coshf(Dual x) { return chain(x, ::coshf(x.value), ::sinhf(x.value)); }
JIT_DEVICE Dual tanhf(Dual x) {
  const float y = ::tanhf(x.value);
  return chain(x, y, 1 - y * y);
}
JIT_DEVICE Dual asinhf(Dual x) {
  return chain(x, ::asinhf(x.value), ::rsqrtf(x.value * x.value + 1));  // mutate: SlopeOfRsqrt
}
JIT_DEVICE Dual acoshf(Dual x) {
  return chain(x, ::acoshf(x.value), ::rsqrtf((x.value - 1) * (x.value + 1)));
}
JIT_DEVICE Dual atanhf(Dual x) { return chain(x, ::atanhf(x.value), 1 / ((1 - x.value) * (1 + x.value))); }
JIT_DEVICE Dual erff(Dual x) {
  return chain(x, ::erff(x.value), two_over_sqrt_pi * ::expf(-x.value * x.value));
}
JIT_DEVICE Dual erfcf(Dual x) {
  return chain(x, ::erfcf(x.value), -two_over_sqrt_pi * ::expf(-x.value * x.value));
}
JIT_DEVICE Dual normcdff(Dual x) {
  constexpr float one_over_sqrt_two_pi = 0.3989422804f;
  return chain(x, ::normcdff(x.value), one_over_sqrt_two_pi * ::expf(-0.5f * x.value * x.value));
}
/// x to a power that does not depend on the score. Power 0 makes 1 of 0, too.
JIT_DEVICE Dual powf(Dual x, float power) {
  return chain(x, ::powf(x.value, power), power == 0 ? 0 : power * ::powf(x.value, power - 1));
}
/// A power of a base that does not depend on the score. All powers of 0 are 0 from 0 on; of less than 0 some
/// are no numbers, so none has a slope.
JIT_DEVICE Dual powf(float base, Dual x) {
  const float y = ::powf(base, x.value);
  return chain(x, y, base == 0 && x.value >= 0 ? 0 : ::logf(base) * y);  // mutate: PowersOfZero
}
/// A base or power that does not depend on the score after all adds nothing, even if its slope is NaN.
JIT_DEVICE Dual powf(Dual base, Dual power) {
  return {::powf(base.value, power.value),
          (base.derivative == 0 ? 0 : powf(base, power.value).derivative) +
              (power.derivative == 0 ? 0 : powf(base.value, power).derivative)};
}

// x − n · y with whole numbers n that change in steps alone.
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

// Constant but for steps.
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
JIT_DEVICE Dual exp(Dual x) { return expf(x); }
JIT_DEVICE Dual exp2(Dual x) { return exp2f(x); }
JIT_DEVICE Dual exp10(Dual x) { return exp10f(x); }
JIT_DEVICE Dual expm1(Dual x) { return expm1f(x); }
JIT_DEVICE Dual log(Dual x) { return logf(x); }
JIT_DEVICE Dual log2(Dual x) { return log2f(x); }
JIT_DEVICE Dual log10(Dual x) { return log10f(x); }
JIT_DEVICE Dual log1p(Dual x) { return log1pf(x); }
JIT_DEVICE Dual sqrt(Dual x) { return sqrtf(x); }
JIT_DEVICE Dual rsqrt(Dual x) { return rsqrtf(x); }
JIT_DEVICE Dual cbrt(Dual x) { return cbrtf(x); }
JIT_DEVICE Dual sin(Dual x) { return sinf(x); }
JIT_DEVICE Dual cos(Dual x) { return cosf(x); }
JIT_DEVICE Dual tan(Dual x) { return tanf(x); }
JIT_DEVICE Dual asin(Dual x) { return asinf(x); }
JIT_DEVICE Dual acos(Dual x) { return acosf(x); }
JIT_DEVICE Dual atan(Dual x) { return atanf(x); }
JIT_DEVICE Dual sinh(Dual x) { return sinhf(x); }
JIT_DEVICE Dual cosh(Dual x) { return coshf(x); }
JIT_DEVICE Dual tanh(Dual x) { return tanhf(x); }
JIT_DEVICE Dual asinh(Dual x) { return asinhf(x); }
JIT_DEVICE Dual acosh(Dual x) { return acoshf(x); }
JIT_DEVICE Dual atanh(Dual x) { return atanhf(x); }
JIT_DEVICE Dual erf(Dual x) { return erff(x); }
JIT_DEVICE Dual erfc(Dual x) { return erfcf(x); }
JIT_DEVICE Dual normcdf(Dual x) { return normcdff(x); }
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

// CUDA's own ones, less exact than those above.
JIT_DEVICE Dual __expf(Dual x) {
  const float y = ::__expf(x.value);
  return chain(x, y, y);
}
JIT_DEVICE Dual __exp10f(Dual x) {
  const float y = ::__exp10f(x.value);
  return chain(x, y, ln_10 * y);
}
JIT_DEVICE Dual __logf(Dual x) { return chain(x, ::__logf(x.value), rcp(x.value)); }
JIT_DEVICE Dual __log2f(Dual x) { return chain(x, ::__log2f(x.value), log2_e * rcp(x.value)); }
JIT_DEVICE Dual __log10f(Dual x) { return chain(x, ::__log10f(x.value), log10_e * rcp(x.value)); }
JIT_DEVICE Dual __sinf(Dual x) { return chain(x, ::__sinf(x.value), ::__cosf(x.value)); }
JIT_DEVICE Dual __cosf(Dual x) { return chain(x, ::__cosf(x.value), -::__sinf(x.value)); }
JIT_DEVICE Dual __tanf(Dual x) {
  const float y = ::__tanf(x.value);
  return chain(x, y, 1 + y * y);
}
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
JIT_DEVICE Dual __frcp_rn(Dual x) {
  const float y = ::__frcp_rn(x.value);
  return chain(x, y, -y * y);
}
JIT_DEVICE Dual __fsqrt_rn(Dual x) { return sqrtf(x); }
JIT_DEVICE Dual __saturatef(Dual x) {
  return chain(x, ::__saturatef(x.value), x.value >= 0 && x.value <= 1 ? 1 : 0);
}

// Functions of templates/ptx/math.cuh.
JIT_DEVICE Dual ex2(Dual x) {
  const float y = ex2(x.value);
  return chain(x, y, ln_2 * y);
}
JIT_DEVICE Dual lg2(Dual x) { return chain(x, lg2(x.value), log2_e * rcp(x.value)); }
JIT_DEVICE Dual rcp(Dual x) {
  const float y = rcp(x.value);
  return chain(x, y, -y * y);
}
JIT_DEVICE Dual tanh_approx(Dual x) {
  const float y = tanh_approx(x.value);
  return chain(x, y, 1 - y * y);  // mutate: WrongDerivativeOfTanh
}

}  // namespace jit
