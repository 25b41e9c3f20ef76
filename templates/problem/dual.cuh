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
  __device__ __forceinline__ Dual(float constant) : value(constant), derivative(0) {}
  __device__ __forceinline__ Dual(float v, float d) : value(v), derivative(d) {}

  friend __device__ __forceinline__ Dual operator+(Dual x) { return x; }
  friend __device__ __forceinline__ Dual operator-(Dual x) { return {-x.value, -x.derivative}; }
  friend __device__ __forceinline__ Dual operator+(Dual x, Dual y) {
    return {x.value + y.value, x.derivative + y.derivative};
  }
  friend __device__ __forceinline__ Dual operator-(Dual x, Dual y) {
    return {x.value - y.value, x.derivative - y.derivative};
  }
  friend __device__ __forceinline__ Dual operator*(Dual x, Dual y) {
    return {x.value * y.value, x.derivative * y.value + x.value * y.derivative};
  }
  // A product with a factor that does not depend on the score, so that an infinite value has a derivative.
  friend __device__ __forceinline__ Dual operator*(Dual x, float y) {
    return {x.value * y, x.derivative * y};
  }
  friend __device__ __forceinline__ Dual operator*(float x, Dual y) { return y * x; }
  friend __device__ __forceinline__ Dual operator/(Dual x, float y) {
    return {x.value / y, x.derivative / y};
  }
  friend __device__ __forceinline__ Dual operator/(Dual x, Dual y) {
    const float quotient = x.value / y.value;
    return {quotient, (x.derivative - quotient * y.derivative) / y.value};
  }
  __device__ __forceinline__ Dual& operator+=(Dual x) { return *this = *this + x; }
  __device__ __forceinline__ Dual& operator-=(Dual x) { return *this = *this - x; }
  __device__ __forceinline__ Dual& operator*=(Dual x) { return *this = *this * x; }
  __device__ __forceinline__ Dual& operator/=(Dual x) { return *this = *this / x; }

  friend __device__ __forceinline__ bool operator==(Dual x, Dual y) { return x.value == y.value; }
  friend __device__ __forceinline__ bool operator!=(Dual x, Dual y) { return x.value != y.value; }
  friend __device__ __forceinline__ bool operator<(Dual x, Dual y) { return x.value < y.value; }
  friend __device__ __forceinline__ bool operator<=(Dual x, Dual y) { return x.value <= y.value; }
  friend __device__ __forceinline__ bool operator>(Dual x, Dual y) { return x.value > y.value; }
  friend __device__ __forceinline__ bool operator>=(Dual x, Dual y) { return x.value >= y.value; }
};

/// The function that texts call to read elements of 16 bits.
__device__ __forceinline__ Dual to_float(Dual x) { return x; }

/// f(x), of which `value` and `slope` are known at x.value.
__device__ __forceinline__ Dual chain(Dual x, float value, float slope) {
  return {value, slope * x.derivative};
}

inline constexpr float ln_10 = 2.3025850929940457f;
inline constexpr float log10_e = 0.4342944819032518f;
inline constexpr float two_over_sqrt_pi = 1.1283791670955126f;

// Functions under the names that they have for floats. Where a derivative has two values, at a kink, it is one of
// them.
__device__ __forceinline__ Dual fabsf(Dual x) { return x.value < 0 ? -x : x; }
__device__ __forceinline__ Dual fmaxf(Dual x, Dual y) { return x.value < y.value ? y : x; }
__device__ __forceinline__ Dual fminf(Dual x, Dual y) { return y.value < x.value ? y : x; }
__device__ __forceinline__ Dual fmaf(Dual x, Dual y, Dual z) {
  return {::fmaf(x.value, y.value, z.value), (x * y + z).derivative};
}
__device__ __forceinline__ Dual expf(Dual x) {
  const float y = ::expf(x.value);
  return chain(x, y, y);
}
__device__ __forceinline__ Dual exp2f(Dual x) {
  const float y = ::exp2f(x.value);
  return chain(x, y, ln_2 * y);
}
__device__ __forceinline__ Dual exp10f(Dual x) {
  const float y = ::exp10f(x.value);
  return chain(x, y, ln_10 * y);
}
__device__ __forceinline__ Dual expm1f(Dual x) { return chain(x, ::expm1f(x.value), ::expf(x.value)); }
__device__ __forceinline__ Dual logf(Dual x) { return chain(x, ::logf(x.value), 1 / x.value); }
__device__ __forceinline__ Dual log2f(Dual x) { return chain(x, ::log2f(x.value), log2_e / x.value); }
__device__ __forceinline__ Dual log10f(Dual x) { return chain(x, ::log10f(x.value), log10_e / x.value); }
__device__ __forceinline__ Dual log1pf(Dual x) { return chain(x, ::log1pf(x.value), 1 / (1 + x.value)); }
__device__ __forceinline__ Dual sqrtf(Dual x) {
  const float y = ::sqrtf(x.value);
  return chain(x, y, 0.5f / y);
}
__device__ __forceinline__ Dual rsqrtf(Dual x) {
  const float y = ::rsqrtf(x.value);
  return chain(x, y, -0.5f * y / x.value);
}
__device__ __forceinline__ Dual cbrtf(Dual x) {
  const float y = ::cbrtf(x.value);
  return chain(x, y, 1 / (3 * y * y));
}
__device__ __forceinline__ Dual hypotf(Dual x, Dual y) {
  const float z = ::hypotf(x.value, y.value);
  return {z, z == 0 ? 0 : x.value / z * x.derivative + y.value / z * y.derivative};
}
__device__ __forceinline__ Dual sinf(Dual x) { return chain(x, ::sinf(x.value), ::cosf(x.value)); }
__device__ __forceinline__ Dual cosf(Dual x) { return chain(x, ::cosf(x.value), -::sinf(x.value)); }
__device__ __forceinline__ Dual tanf(Dual x) {
  const float y = ::tanf(x.value);
  return chain(x, y, 1 + y * y);
}
__device__ __forceinline__ Dual asinf(Dual x) {
  return chain(x, ::asinf(x.value), ::rsqrtf((1 - x.value) * (1 + x.value)));
}
__device__ __forceinline__ Dual acosf(Dual x) {
  return chain(x, ::acosf(x.value), -::rsqrtf((1 - x.value) * (1 + x.value)));
}
__device__ __forceinline__ Dual atanf(Dual x) {
  return chain(x, ::atanf(x.value), 1 / (1 + x.value * x.value));
}
__device__ __forceinline__ Dual sinhf(Dual x) { return chain(x, ::sinhf(x.value), ::coshf(x.value)); }
__device__ __forceinline__ Dual coshf(Dual x) { return chain(x, ::coshf(x.value), ::sinhf(x.value)); }
__device__ __forceinline__ Dual tanhf(Dual x) {
  const float y = ::tanhf(x.value);
  return chain(x, y, 1 - y * y);
}
__device__ __forceinline__ Dual asinhf(Dual x) {
  return chain(x, ::asinhf(x.value), ::rsqrtf(x.value * x.value + 1));  // mutate: SlopeOfRsqrt
}
__device__ __forceinline__ Dual acoshf(Dual x) {
  return chain(x, ::acoshf(x.value), ::rsqrtf((x.value - 1) * (x.value + 1)));
}
__device__ __forceinline__ Dual atanhf(Dual x) {
  return chain(x, ::atanhf(x.value), 1 / ((1 - x.value) * (1 + x.value)));
}
__device__ __forceinline__ Dual erff(Dual x) {
  return chain(x, ::erff(x.value), two_over_sqrt_pi * ::expf(-x.value * x.value));
}
__device__ __forceinline__ Dual erfcf(Dual x) {
  return chain(x, ::erfcf(x.value), -two_over_sqrt_pi * ::expf(-x.value * x.value));
}
__device__ __forceinline__ Dual normcdff(Dual x) {
  constexpr float one_over_sqrt_two_pi = 0.3989422804f;
  return chain(x, ::normcdff(x.value), one_over_sqrt_two_pi * ::expf(-0.5f * x.value * x.value));
}
/// x to a power that does not depend on the score. Power 0 makes 1 of 0, too.
__device__ __forceinline__ Dual powf(Dual x, float power) {
  return chain(x, ::powf(x.value, power), power == 0 ? 0 : power * ::powf(x.value, power - 1));
}
/// A power of a base that does not depend on the score. All powers of 0 are 0 from 0 on; of less than 0 some
/// are no numbers, so none has a slope.
__device__ __forceinline__ Dual powf(float base, Dual x) {
  const float y = ::powf(base, x.value);
  return chain(x, y, base == 0 && x.value >= 0 ? 0 : ::logf(base) * y);  // mutate: PowersOfZero
}
/// A base or power that does not depend on the score after all adds nothing, even if its slope is NaN.
__device__ __forceinline__ Dual powf(Dual base, Dual power) {
  return {::powf(base.value, power.value),
          (base.derivative == 0 ? 0 : powf(base, power.value).derivative) +
              (power.derivative == 0 ? 0 : powf(base.value, power).derivative)};
}

// x − n · y with whole numbers n that change in steps alone.
__device__ __forceinline__ Dual fmodf(Dual x, Dual y) {
  const float z = ::fmodf(x.value, y.value);
  return {z, x.derivative - (x.value - z) / y.value * y.derivative};
}
__device__ __forceinline__ Dual remainderf(Dual x, Dual y) {
  const float z = ::remainderf(x.value, y.value);
  return {z, x.derivative - (x.value - z) / y.value * y.derivative};
}
/// x or −x.
__device__ __forceinline__ Dual copysignf(Dual x, Dual sign) {
  return ::signbit(x.value) == ::signbit(sign.value) ? x : -x;
}

// Constant but for steps.
__device__ __forceinline__ Dual floorf(Dual x) { return ::floorf(x.value); }
__device__ __forceinline__ Dual ceilf(Dual x) { return ::ceilf(x.value); }
__device__ __forceinline__ Dual roundf(Dual x) { return ::roundf(x.value); }
__device__ __forceinline__ Dual rintf(Dual x) { return ::rintf(x.value); }
__device__ __forceinline__ Dual nearbyintf(Dual x) { return ::nearbyintf(x.value); }
__device__ __forceinline__ Dual truncf(Dual x) { return ::truncf(x.value); }
__device__ __forceinline__ bool isnan(Dual x) { return ::isnan(x.value); }
__device__ __forceinline__ bool isinf(Dual x) { return ::isinf(x.value); }
__device__ __forceinline__ bool isfinite(Dual x) { return ::isfinite(x.value); }
__device__ __forceinline__ bool signbit(Dual x) { return ::signbit(x.value); }

// C++'s own names of the same functions.
__device__ __forceinline__ Dual abs(Dual x) { return fabsf(x); }
__device__ __forceinline__ Dual fabs(Dual x) { return fabsf(x); }
__device__ __forceinline__ Dual exp(Dual x) { return expf(x); }
__device__ __forceinline__ Dual exp2(Dual x) { return exp2f(x); }
__device__ __forceinline__ Dual exp10(Dual x) { return exp10f(x); }
__device__ __forceinline__ Dual expm1(Dual x) { return expm1f(x); }
__device__ __forceinline__ Dual log(Dual x) { return logf(x); }
__device__ __forceinline__ Dual log2(Dual x) { return log2f(x); }
__device__ __forceinline__ Dual log10(Dual x) { return log10f(x); }
__device__ __forceinline__ Dual log1p(Dual x) { return log1pf(x); }
__device__ __forceinline__ Dual sqrt(Dual x) { return sqrtf(x); }
__device__ __forceinline__ Dual rsqrt(Dual x) { return rsqrtf(x); }
__device__ __forceinline__ Dual cbrt(Dual x) { return cbrtf(x); }
__device__ __forceinline__ Dual sin(Dual x) { return sinf(x); }
__device__ __forceinline__ Dual cos(Dual x) { return cosf(x); }
__device__ __forceinline__ Dual tan(Dual x) { return tanf(x); }
__device__ __forceinline__ Dual asin(Dual x) { return asinf(x); }
__device__ __forceinline__ Dual acos(Dual x) { return acosf(x); }
__device__ __forceinline__ Dual atan(Dual x) { return atanf(x); }
__device__ __forceinline__ Dual sinh(Dual x) { return sinhf(x); }
__device__ __forceinline__ Dual cosh(Dual x) { return coshf(x); }
__device__ __forceinline__ Dual tanh(Dual x) { return tanhf(x); }
__device__ __forceinline__ Dual asinh(Dual x) { return asinhf(x); }
__device__ __forceinline__ Dual acosh(Dual x) { return acoshf(x); }
__device__ __forceinline__ Dual atanh(Dual x) { return atanhf(x); }
__device__ __forceinline__ Dual erf(Dual x) { return erff(x); }
__device__ __forceinline__ Dual erfc(Dual x) { return erfcf(x); }
__device__ __forceinline__ Dual normcdf(Dual x) { return normcdff(x); }
__device__ __forceinline__ Dual floor(Dual x) { return floorf(x); }
__device__ __forceinline__ Dual ceil(Dual x) { return ceilf(x); }
__device__ __forceinline__ Dual round(Dual x) { return roundf(x); }
__device__ __forceinline__ Dual rint(Dual x) { return rintf(x); }
__device__ __forceinline__ Dual nearbyint(Dual x) { return nearbyintf(x); }
__device__ __forceinline__ Dual trunc(Dual x) { return truncf(x); }
__device__ __forceinline__ Dual fmax(Dual x, Dual y) { return fmaxf(x, y); }
__device__ __forceinline__ Dual max(Dual x, Dual y) { return fmaxf(x, y); }
__device__ __forceinline__ Dual fmin(Dual x, Dual y) { return fminf(x, y); }
__device__ __forceinline__ Dual min(Dual x, Dual y) { return fminf(x, y); }
__device__ __forceinline__ Dual hypot(Dual x, Dual y) { return hypotf(x, y); }
__device__ __forceinline__ Dual fmod(Dual x, Dual y) { return fmodf(x, y); }
__device__ __forceinline__ Dual remainder(Dual x, Dual y) { return remainderf(x, y); }
__device__ __forceinline__ Dual copysign(Dual x, Dual y) { return copysignf(x, y); }
__device__ __forceinline__ Dual fma(Dual x, Dual y, Dual z) { return fmaf(x, y, z); }
__device__ __forceinline__ Dual pow(Dual x, float power) { return powf(x, power); }
__device__ __forceinline__ Dual pow(float base, Dual x) { return powf(base, x); }
__device__ __forceinline__ Dual pow(Dual base, Dual power) { return powf(base, power); }

// CUDA's own ones, less exact than those above.
__device__ __forceinline__ Dual __expf(Dual x) {
  const float y = ::__expf(x.value);
  return chain(x, y, y);
}
__device__ __forceinline__ Dual __exp10f(Dual x) {
  const float y = ::__exp10f(x.value);
  return chain(x, y, ln_10 * y);
}
__device__ __forceinline__ Dual __logf(Dual x) { return chain(x, ::__logf(x.value), rcp(x.value)); }
__device__ __forceinline__ Dual __log2f(Dual x) {
  return chain(x, ::__log2f(x.value), log2_e * rcp(x.value));
}
__device__ __forceinline__ Dual __log10f(Dual x) {
  return chain(x, ::__log10f(x.value), log10_e * rcp(x.value));
}
__device__ __forceinline__ Dual __sinf(Dual x) { return chain(x, ::__sinf(x.value), ::__cosf(x.value)); }
__device__ __forceinline__ Dual __cosf(Dual x) { return chain(x, ::__cosf(x.value), -::__sinf(x.value)); }
__device__ __forceinline__ Dual __tanf(Dual x) {
  const float y = ::__tanf(x.value);
  return chain(x, y, 1 + y * y);
}
__device__ __forceinline__ Dual __powf(Dual x, float power) {
  return chain(x, ::__powf(x.value, power), power == 0 ? 0 : power * ::__powf(x.value, power - 1));
}
__device__ __forceinline__ Dual __fdividef(Dual x, float y) {
  return {::__fdividef(x.value, y), ::__fdividef(x.derivative, y)};
}
__device__ __forceinline__ Dual __fdividef(Dual x, Dual y) {
  const float z = ::__fdividef(x.value, y.value);
  return {z, ::__fdividef(x.derivative - z * y.derivative, y.value)};
}
__device__ __forceinline__ Dual fdividef(Dual x, float y) { return x / y; }
__device__ __forceinline__ Dual fdividef(Dual x, Dual y) { return x / y; }
__device__ __forceinline__ Dual __frcp_rn(Dual x) {
  const float y = ::__frcp_rn(x.value);
  return chain(x, y, -y * y);
}
__device__ __forceinline__ Dual __fsqrt_rn(Dual x) { return sqrtf(x); }
__device__ __forceinline__ Dual __saturatef(Dual x) {
  return chain(x, ::__saturatef(x.value), x.value >= 0 && x.value <= 1 ? 1 : 0);
}

// Functions of templates/ptx/math.cuh.
__device__ __forceinline__ Dual ex2(Dual x) {
  const float y = ex2(x.value);
  return chain(x, y, ln_2 * y);
}
__device__ __forceinline__ Dual lg2(Dual x) { return chain(x, lg2(x.value), log2_e * rcp(x.value)); }
__device__ __forceinline__ Dual rcp(Dual x) {
  const float y = rcp(x.value);
  return chain(x, y, -y * y);
}
__device__ __forceinline__ Dual tanh_approx(Dual x) {
  const float y = tanh_approx(x.value);
  return chain(x, y, 1 - y * y);  // mutate: WrongDerivativeOfTanh
}

}  // namespace jit
