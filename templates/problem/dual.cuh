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
  // Of factors that do not depend on the score, so that an infinite value has a derivative.
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

/// What texts call to read elements of 16 bits.
__device__ __forceinline__ Dual to_float(Dual x) { return x; }

/// f(x), of which `value` and `slope` are known at x.value.
__device__ __forceinline__ Dual chain(Dual x, float value, float slope) {
  return {value, slope * x.derivative};
}

// Functions under the names that they have for floats. Where a derivative has two values, at a kink, it is one of
// them.
__device__ __forceinline__ Dual fabsf(Dual x) { return x.value < 0 ? -x : x; }
__device__ __forceinline__ Dual fmaxf(Dual x, Dual y) { return x.value < y.value ? y : x; }
__device__ __forceinline__ Dual fminf(Dual x, Dual y) { return y.value < x.value ? y : x; }
__device__ __forceinline__ Dual fmaf(Dual x, Dual y, Dual z) { return x * y + z; }
__device__ __forceinline__ Dual expf(Dual x) {
  const float y = ::expf(x.value);
  return chain(x, y, y);
}
__device__ __forceinline__ Dual exp2f(Dual x) {
  const float y = ::exp2f(x.value);
  return chain(x, y, ln_2 * y);
}
__device__ __forceinline__ Dual logf(Dual x) { return chain(x, ::logf(x.value), 1 / x.value); }
__device__ __forceinline__ Dual log2f(Dual x) { return chain(x, ::log2f(x.value), log2_e / x.value); }
__device__ __forceinline__ Dual log1pf(Dual x) { return chain(x, ::log1pf(x.value), 1 / (1 + x.value)); }
__device__ __forceinline__ Dual sqrtf(Dual x) {
  const float y = ::sqrtf(x.value);
  return chain(x, y, 0.5f / y);
}
__device__ __forceinline__ Dual rsqrtf(Dual x) {
  const float y = ::rsqrtf(x.value);
  return chain(x, y, -0.5f * y / x.value);
}
__device__ __forceinline__ Dual tanhf(Dual x) {
  const float y = ::tanhf(x.value);
  return chain(x, y, 1 - y * y);
}
__device__ __forceinline__ Dual sinf(Dual x) { return chain(x, ::sinf(x.value), ::cosf(x.value)); }
__device__ __forceinline__ Dual cosf(Dual x) { return chain(x, ::cosf(x.value), -::sinf(x.value)); }
__device__ __forceinline__ Dual erff(Dual x) {
  constexpr float two_over_sqrt_pi = 1.1283791671f;
  return chain(x, ::erff(x.value), two_over_sqrt_pi * ::expf(-x.value * x.value));
}
/// Of a power that does not depend on the score.
__device__ __forceinline__ Dual powf(Dual x, float power) {
  return chain(x, ::powf(x.value, power), power * ::powf(x.value, power - 1));
}

// C++'s own names of the same functions.
__device__ __forceinline__ Dual abs(Dual x) { return fabsf(x); }
__device__ __forceinline__ Dual fabs(Dual x) { return fabsf(x); }
__device__ __forceinline__ Dual fmax(Dual x, Dual y) { return fmaxf(x, y); }
__device__ __forceinline__ Dual max(Dual x, Dual y) { return fmaxf(x, y); }
__device__ __forceinline__ Dual fmin(Dual x, Dual y) { return fminf(x, y); }
__device__ __forceinline__ Dual min(Dual x, Dual y) { return fminf(x, y); }
__device__ __forceinline__ Dual exp(Dual x) { return expf(x); }
__device__ __forceinline__ Dual exp2(Dual x) { return exp2f(x); }
__device__ __forceinline__ Dual log(Dual x) { return logf(x); }
__device__ __forceinline__ Dual log2(Dual x) { return log2f(x); }
__device__ __forceinline__ Dual sqrt(Dual x) { return sqrtf(x); }
__device__ __forceinline__ Dual rsqrt(Dual x) { return rsqrtf(x); }
__device__ __forceinline__ Dual tanh(Dual x) { return tanhf(x); }
__device__ __forceinline__ Dual sin(Dual x) { return sinf(x); }
__device__ __forceinline__ Dual cos(Dual x) { return cosf(x); }
__device__ __forceinline__ Dual erf(Dual x) { return erff(x); }
__device__ __forceinline__ Dual pow(Dual x, float power) { return powf(x, power); }

// Those of templates/ptx/math.cuh.
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
  return chain(x, y, 1 - y * y);
}

}  // namespace jit
