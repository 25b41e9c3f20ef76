#include "operations/tensor/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "operations/arithmetic/numbers.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

using Result = AccumulationModel::Result;

// 2^exponent.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

// The exponent for an accumulator's alignment; `least` is its format's least one.
int exponent_of(float c, int least) {
  const auto exponent = static_cast<int>((std::bit_cast<std::uint32_t>(c) >> 23) & 255) - 127;
  return std::max(exponent, least);
}
int least_exponent(Result result) { return result == Result::f16 ? -14 : -126; }

// sum · 2^exponent, rounded to the result's format.
float round_sum(std::int64_t sum, int exponent, Result result) {
  if (sum == 0) return 0;
  const auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const int leading = std::bit_width(magnitude) - 1 + exponent;
  const int fraction = result == Result::f32 ? 23 : result == Result::e8m13 ? 13 : 10;
  const int drop = std::max(leading, least_exponent(result)) - fraction - exponent;
  double kept;
  if (drop <= 0) {
    kept = static_cast<double>(magnitude) * power_of_two(exponent);
  } else if (drop > 63) {
    kept = 0;
  } else {
    std::uint64_t whole = magnitude >> drop;
    if (result == Result::f16) {
      const std::uint64_t rest = magnitude - (whole << drop), half = std::uint64_t{1} << (drop - 1);
      whole += rest > half || (rest == half && (whole & 1) != 0);
    }
    kept = static_cast<double>(whole) * power_of_two(exponent + drop);
  }
  if (result == Result::f16 && kept >= 65536.0) kept = HUGE_VAL;
  return static_cast<float>(sum < 0 ? -kept : kept);
}

// Eight columns at a time, in vectors that GCC and clang lower to the target's instructions.
typedef float Floats __attribute__((vector_size(32)));
typedef std::int32_t Ints __attribute__((vector_size(32)));
typedef std::uint32_t Words __attribute__((vector_size(32)));
typedef std::int16_t Shorts __attribute__((vector_size(16)));
constexpr int width = 8;

// Between these exponents, products and scales are normal floats.
constexpr int least_fast = -100, largest_fast = 126;

template <class Vector, class T>
[[gnu::always_inline]] inline void load(Vector& to, const T* from) {
  std::memcpy(&to, from, sizeof(to));
}

[[gnu::always_inline]] inline bool any(const Words& mask) {
  std::uint64_t parts[4];
  std::memcpy(parts, &mask, sizeof(parts));
  return (parts[0] | parts[1] | parts[2] | parts[3]) != 0;
}

struct Job {
  AccumulationModel model;
  int rows, columns, k;
  Factors a, b;
  float* c;
};

// Converts a sum in multiples of `unit` (a power of two) to the result's format.
template <Result result>
[[gnu::always_inline]] inline void round_sums(const Words& sum, const Words& unit, Floats& rounded) {
  const Words sign = reinterpret_cast<Words>(reinterpret_cast<Ints>(sum) >> 31);
  const Words magnitude = (sum ^ sign) - sign;
  // Ones below the kept bits: the sum has at most 31.
  Words dropped = magnitude >> (result == Result::e8m13 ? 14 : 24);
  dropped |= dropped >> 1;
  dropped |= dropped >> 2;
  dropped |= dropped >> 4;
  Words kept = magnitude & ~dropped;
  if constexpr (result == Result::f16) {
    // Round to odd, so that the second rounding below is correct.
    kept |= (magnitude & dropped) != 0u ? dropped + 1u : dropped & 0u;
  }
  Floats value =
      __builtin_convertvector(reinterpret_cast<Ints>(kept), Floats) * reinterpret_cast<Floats>(unit);
  if constexpr (result == Result::f16) {
    // Adds a number whose last place equals the half's.
    Words exponent = reinterpret_cast<Words>(value) >> 23;
    exponent = exponent > 113u ? exponent : exponent * 0u + 113u;
    const Floats grid = reinterpret_cast<Floats>(((exponent + 13u) << 23) | 0x400000u);
    value = (value + grid) - grid;
    const Words infinite = (exponent & 0u) + 0x7f800000u;
    value = reinterpret_cast<Floats>(value >= 65536.0f ? infinite : reinterpret_cast<Words>(value));
  }
  rounded = reinterpret_cast<Floats>(reinterpret_cast<Words>(value) | (sign & 0x80000000u));
}

// `rows` rows, eight columns, one group.
template <Result result, int rows>
[[gnu::always_inline]] inline void multiply_group(const Job& job, int count, Factors a, Factors b,
                                                  Floats (&c)[rows]) {
  const AccumulationModel& model = job.model;
  Shorts highest[rows];
  for (int r = 0; r < rows; ++r) highest[r] = Shorts{} + static_cast<std::int16_t>(2 * zero_exponent);
  for (int i = 0; i < count; ++i) {
    Shorts exponents;
    load(exponents, b.exponents + static_cast<std::ptrdiff_t>(i) * job.columns);
    for (int r = 0; r < rows; ++r) {
      const Shorts sum = exponents + a.exponents[r * job.k + i];
      highest[r] = highest[r] > sum ? highest[r] : sum;
    }
  }

  Floats scale[rows];
  Words unit[rows], unusual[rows], even[rows], odd[rows];
  for (int r = 0; r < rows; ++r) {
    const Words bits = reinterpret_cast<Words>(c[r]);
    Ints top = __builtin_convertvector(highest[r], Ints);
    Ints exponent = reinterpret_cast<Ints>((bits >> 23) & 255u);
    const Ints least = (exponent & 0) + (least_exponent(result) + 127);
    exponent = (exponent > least ? exponent : least) - 127;
    exponent = (bits << 1) != 0u ? exponent : (exponent & 0) + zero_exponent;
    top = top > exponent ? top : exponent;
    unusual[r] = reinterpret_cast<Words>((top > largest_fast) | ((top < least_fast) & (top > zero_product)));
    const Ints bottom = (top & 0) + least_fast, ceiling = (top & 0) + largest_fast;
    top = top > bottom ? top : bottom;
    top = top < ceiling ? top : ceiling;
    scale[r] = reinterpret_cast<Floats>((127 + model.fraction_bits - top) << 23);
    unit[r] = reinterpret_cast<Words>((127 - model.fraction_bits + top) << 23);
    // Conversion to integers truncates.
    even[r] = reinterpret_cast<Words>(__builtin_convertvector(c[r] * scale[r], Ints));
    odd[r] = even[r] & 0u;
  }
  // Each of the two half sums fits 31 bits. Groups have an even number of terms.
  for (int i = 0; i < count; i += 2) {
    Floats first, second;
    load(first, b.values + static_cast<std::ptrdiff_t>(i) * job.columns);
    load(second, b.values + static_cast<std::ptrdiff_t>(i + 1) * job.columns);
    for (int r = 0; r < rows; ++r) {
      const Floats left = first * a.values[r * job.k + i] * scale[r];
      const Floats right = second * a.values[r * job.k + i + 1] * scale[r];
      even[r] += reinterpret_cast<Words>(__builtin_convertvector(left, Ints));
      odd[r] += reinterpret_cast<Words>(__builtin_convertvector(right, Ints));
    }
  }
  for (int r = 0; r < rows; ++r) {
    const Words sum = even[r] + odd[r];
    const Words overflow = (even[r] ^ sum) & (odd[r] ^ sum) & 0x80000000u;
    unusual[r] |= overflow | reinterpret_cast<Words>(sum == 0x80000000u);
    Floats rounded;
    round_sums<result>(sum, unit[r], rounded);
    if (any(unusual[r])) [[unlikely]] {
      for (int lane = 0; lane < width; ++lane) {
        if (unusual[r][lane] == 0) continue;
        rounded[lane] = add_products(model, {a.values + r * job.k, a.exponents + r * job.k},
                                     {b.values + lane, b.exponents + lane}, job.columns, count, c[r][lane]);
      }
    }
    c[r] = rounded;
  }
}

template <Result result>
[[gnu::always_inline]] inline void multiply_all(const Job& job) {
  constexpr int rows = 4;
  for (int row = 0; row < job.rows; row += rows) {
    for (int column = 0; column < job.columns; column += width) {
      float* const to = job.c + static_cast<std::ptrdiff_t>(row) * job.columns + column;
      Floats c[rows];
      for (int r = 0; r < rows; ++r) load(c[r], to + static_cast<std::ptrdiff_t>(r) * job.columns);
      for (int first = 0; first < job.k; first += job.model.group) {
        const Factors a{job.a.values + row * job.k + first, job.a.exponents + row * job.k + first};
        const std::ptrdiff_t skip = static_cast<std::ptrdiff_t>(first) * job.columns + column;
        const Factors b{job.b.values + skip, job.b.exponents + skip};
        // Constant trip counts for the common loops.
        const int count = std::min(job.model.group, job.k - first);
        if (count == 16) {
          multiply_group<result, rows>(job, 16, a, b, c);
        } else if (count == 8) {
          multiply_group<result, rows>(job, 8, a, b, c);
        } else {
          multiply_group<result, rows>(job, count, a, b, c);
        }
      }
      for (int r = 0; r < rows; ++r) {
        std::memcpy(to + static_cast<std::ptrdiff_t>(r) * job.columns, &c[r], sizeof(c[r]));
      }
    }
  }
}

[[gnu::always_inline]] inline void multiply_any(const Job& job) {
  switch (job.model.result) {
    case Result::f32:
      return multiply_all<Result::f32>(job);
    case Result::e8m13:
      return multiply_all<Result::e8m13>(job);
    case Result::f16:
      return multiply_all<Result::f16>(job);
  }
}

}  // namespace

AccumulationModel accumulation_model(TargetArch arch, TensorUnit unit, Type factor, Type accumulator, int k) {
  AccumulationModel model;
  const bool bytes = element_bytes(factor) == 1;
  model.group = (arch.major >= 9 ? 32 : 16) / element_bytes(factor);
  model.fraction_bits = arch.major >= 9 ? 25 : 24;
  model.result = accumulator == Type::f16 ? Result::f16 : Result::f32;
  if (bytes && (unit == TensorUnit::wgmma || arch.major < 9)) {
    model.fraction_bits = 13;
    if (model.result == Result::f32) model.result = Result::e8m13;
  }
  if (bytes && unit == TensorUnit::mma && arch.major >= 9 && arch.major < 12) {
    model.through_f16 = true;
    model.group = 16;
  }
  model.group = std::min(model.group, model.through_f16 ? k / 2 : k);
  return model;
}

float add_products(const AccumulationModel& model, Factors a, Factors b, int stride, int count, float c,
                   int scale) {
  const float nan = std::bit_cast<float>(f32_nan);
  // Without NaN, an infinity decides the sum.
  float infinite = std::isinf(c) ? c : 0;
  if (std::isnan(c)) return nan;
  for (int i = 0; i < count; ++i) {
    const float product = a.values[i] * b.values[i * stride];
    if (a.exponents[i] < special_exponent && b.exponents[i * stride] < special_exponent) continue;
    if (std::isnan(product) || (std::isinf(infinite) && product != infinite)) return nan;
    infinite = product;
  }
  if (std::isinf(infinite)) return infinite;

  const int least = least_exponent(model.result);
  int top = -126;
  if (c != 0) top = std::max(top, exponent_of(c, least));
  for (int i = 0; i < count; ++i) top = std::max<int>(top, a.exponents[i] + b.exponents[i * stride] + scale);
  // value · 2^more as integer · 2^-point, truncated below 2^(top − fraction_bits).
  const auto aligned = [&](double value, int exponent, int point, int more) {
    const auto integer = static_cast<std::int64_t>(value * power_of_two(point - exponent));
    const int shift = exponent + more - top + model.fraction_bits - point;
    const std::uint64_t magnitude = static_cast<std::uint64_t>(integer < 0 ? -integer : integer);
    const auto cut = static_cast<std::int64_t>(shift >= 0    ? magnitude << shift
                                               : shift > -64 ? magnitude >> -shift
                                                             : 0);
    return integer < 0 ? -cut : cut;
  };
  std::int64_t sum = c == 0 ? 0 : aligned(c, exponent_of(c, least), 23, 0);
  for (int i = 0; i < count; ++i) {
    const int exponent = a.exponents[i] + b.exponents[i * stride];
    if (exponent < zero_product) continue;
    // Factors have at most 10 fraction bits.
    sum += aligned(static_cast<double>(a.values[i]) * b.values[i * stride], exponent, 20, scale);
  }
  return round_sum(sum, top - model.fraction_bits, model.result);
}

void multiply_add(const AccumulationModel& model, int rows, int columns, int k, Factors a, Factors b,
                  float* c) {
  const Job job{model, rows, columns, k, a, b, c};
  vectorized([](const Job* work) { multiply_any(*work); }, &job);
}

}  // namespace jit::emulator
