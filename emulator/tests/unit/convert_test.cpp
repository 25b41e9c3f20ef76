#include <algorithm>
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/support/small_floats.h"
#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S8 = std::int8_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;
__extension__ using Int128 = __int128;

template <class T>
std::string name() {
  if (std::is_floating_point_v<T>) return fmt::format("f{}", 8 * sizeof(T));
  return fmt::format("{}{}", std::is_signed_v<T> ? 's' : 'u', 8 * sizeof(T));
}

template <class T>
T clamped(Int128 x) {
  return static_cast<T>(std::clamp<Int128>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

float of_bits(U32 bits) { return std::bit_cast<float>(bits); }
float canonical(float x) { return std::isnan(x) ? of_bits(0x7fffffff) : x; }
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

template <class To, class From>
void expect_integers() {
  expect_values<To, From>("cvt." + name<To>() + "." + name<From>() + " %d, %a;",
                          [](From x) { return static_cast<To>(x); });
  expect_values<To, From>("cvt.sat." + name<To>() + "." + name<From>() + " %d, %a;",
                          [](From x) { return clamped<To>(x); });
}

template <class To>
void expect_to_integer() {
  expect_integers<To, U8>();
  expect_integers<To, U16>();
  expect_integers<To, U32>();
  expect_integers<To, U64>();
  expect_integers<To, S8>();
  expect_integers<To, S16>();
  expect_integers<To, S32>();
  expect_integers<To, S64>();
}

TEST(Convert, BetweenIntegers) {
  expect_to_integer<U8>();
  expect_to_integer<U16>();
  expect_to_integer<U32>();
  expect_to_integer<U64>();
  expect_to_integer<S8>();
  expect_to_integer<S16>();
  expect_to_integer<S32>();
  expect_to_integer<S64>();
}

// A register may be wider than the type: what is written is extended to all of it, what is read is cut off.
TEST(Convert, RegistersWiderThanTheType) {
  expect_values<U32, S32>("cvt.s8.s32 %d, %a;",
                          [](S32 x) { return static_cast<U32>(S32{static_cast<S8>(x)}); });
  expect_values<U32, S32>("cvt.u8.s32 %d, %a;", [](S32 x) { return U32{static_cast<U8>(x)}; });
  expect_values<U64, S32>("cvt.s16.s32 %d, %a;",
                          [](S32 x) { return static_cast<U64>(S64{static_cast<S16>(x)}); });
  expect_values<U32, U64>("cvt.u32.u8 %d, %a;", [](U64 x) { return U32{static_cast<U8>(x)}; });
  expect_values<U32, U64>("cvt.s32.s16 %d, %a;",
                          [](U64 x) { return static_cast<U32>(S32{static_cast<S16>(x)}); });
  expect_values<U32, float>("cvt.rzi.s8.f32 %d, %a;", [](float x) {
    return std::isnan(x) ? 0u
                         : static_cast<U32>(S32{static_cast<S8>(std::clamp(std::trunc(x), -128.0f, 127.0f))});
  });
  expect_values<float, U64>("cvt.rn.f32.s32 %d, %a;",
                            [](U64 x) { return static_cast<float>(static_cast<S32>(x)); });
}

double to_whole(double x, const std::string& rounding) {
  if (rounding == "rni") return std::nearbyint(x);
  if (rounding == "rzi") return std::trunc(x);
  return rounding == "rmi" ? std::floor(x) : std::ceil(x);
}

template <class To>
To to_integer(double x, const std::string& rounding, bool from_double) {
  constexpr int width = 8 * sizeof(To);
  if (std::isnan(x)) return from_double || width == 64 ? static_cast<To>(U64{1} << (width - 1)) : To{0};
  const double whole = to_whole(x, rounding);
  if (whole < -0x1p100) return std::numeric_limits<To>::min();
  if (whole > 0x1p100) return std::numeric_limits<To>::max();
  return clamped<To>(static_cast<Int128>(whole));
}

template <class To>
void expect_floats_to_integer() {
  for (const std::string rounding : {"rni", "rzi", "rmi", "rpi"}) {
    const auto instruction = [&](const char* from) {
      return "cvt." + rounding + "." + name<To>() + from + " %d, %a;";
    };
    expect_values<To, float>(instruction(".f32"),
                             [=](float x) { return to_integer<To>(x, rounding, false); });
    expect_values<To, float>("cvt." + rounding + ".ftz." + name<To>() + ".f32 %d, %a;",
                             [=](float x) { return to_integer<To>(flushed(x), rounding, false); });
    expect_values<To, double>(instruction(".f64"),
                              [=](double x) { return to_integer<To>(x, rounding, true); });
    expect_values<To, U16>(instruction(".f16"),
                           [=](U16 x) { return to_integer<To>(f16.value(x), rounding, false); });
    expect_values<To, U16>(instruction(".bf16"),
                           [=](U16 x) { return to_integer<To>(bf16.value(x), rounding, false); });
  }
}

TEST(Convert, FloatsToIntegers) {
  expect_floats_to_integer<U8>();
  expect_floats_to_integer<S8>();
  expect_floats_to_integer<U16>();
  expect_floats_to_integer<S16>();
  expect_floats_to_integer<U32>();
  expect_floats_to_integer<S32>();
  expect_floats_to_integer<U64>();
  expect_floats_to_integer<S64>();
}

// The neighbor of `nearest` on the side where a directed rounding of `exact` lies.
template <class T>
T directed(Quad exact, T nearest, const std::string& rounding) {
  const bool up = rounding == "rp" || (rounding == "rz" && exact < 0);
  constexpr T infinity = std::numeric_limits<T>::infinity();
  if (rounding == "rn" || exact == nearest) return nearest;
  if (up) return nearest < exact ? std::nextafter(nearest, infinity) : nearest;
  return nearest > exact ? std::nextafter(nearest, -infinity) : nearest;
}

template <class From>
void expect_integer_to_floats() {
  for (const std::string rounding : {"rn", "rz", "rm", "rp"}) {
    const auto instruction = [&](const char* to) {
      return "cvt." + rounding + to + name<From>() + " %d, %a;";
    };
    expect_values<float, From>(instruction(".f32."),
                               [=](From x) { return directed(Quad(x), static_cast<float>(x), rounding); });
    expect_values<double, From>(instruction(".f64."),
                                [=](From x) { return directed(Quad(x), static_cast<double>(x), rounding); });
  }
  expect_values<U16, From>("cvt.rn.f16." + name<From>() + " %d, %a;",
                           [](From x) { return static_cast<U16>(f16.nearest(Quad(x))); });
  expect_values<U16, From>("cvt.rn.bf16." + name<From>() + " %d, %a;",
                           [](From x) { return static_cast<U16>(bf16.nearest(Quad(x))); });
}

TEST(Convert, IntegersToFloats) {
  expect_integer_to_floats<U8>();
  expect_integer_to_floats<S8>();
  expect_integer_to_floats<U16>();
  expect_integer_to_floats<S16>();
  expect_integer_to_floats<U32>();
  expect_integer_to_floats<S32>();
  expect_integer_to_floats<U64>();
  expect_integer_to_floats<S64>();
  expect_values<float, S32>("cvt.rn.sat.f32.s32 %d, %a;", [](S32 x) { return x > 0 ? 1.0f : 0.0f; });
}

// Codes of 16 bits, rounded from what is exact in a Quad.
U16 rounded(const SmallFormat& format, double x, const std::string& rounding) {
  const U32 nearest = format.nearest(x, std::signbit(x));
  if (std::isnan(x) || std::isinf(x) || rounding == "rn") return static_cast<U16>(nearest);
  const U32 sign = nearest & format.sign_bit();
  const U32 magnitude = nearest & ~sign;
  // Codes order as magnitudes do; the one behind the largest stands for what would come next.
  const double step = 2 * format.value(format.largest) - format.value(format.largest - 1);
  const double value = magnitude > format.largest ? step : format.value(magnitude);
  const bool outward = rounding == "rz" ? false : (rounding == "rp") == (sign == 0);
  if (outward)
    return static_cast<U16>(
        sign | (value < std::fabs(x) && magnitude <= format.largest ? magnitude + 1 : magnitude));
  if (magnitude > format.largest) return static_cast<U16>(sign | format.largest);
  return static_cast<U16>(sign | (value > std::fabs(x) ? magnitude - 1 : magnitude));
}

// The NaN of a double keeps its sign and the first bits of its payload.
U16 narrowed_nan(const SmallFormat& format, double nan) {
  const U64 bits = std::bit_cast<U64>(nan) | 0x0008000000000000;
  const U64 payload = (bits & 0x000fffffffffffff) >> (52 - format.fraction_bits);
  return static_cast<U16>((format.largest + 1) | payload | (bits >> 63 != 0 ? format.sign_bit() : 0));
}

TEST(Convert, ToHalf) {
  for (const SmallFormat& format : {f16, bf16}) {
    const auto to = std::string(format.name);
    for (const std::string rounding : {"rn", "rz", "rm", "rp"}) {
      expect_values<U16, float>("cvt." + rounding + "." + to + ".f32 %d, %a;",
                                [&](float x) { return rounded(format, x, rounding); });
      expect_values<U16, double>("cvt." + rounding + "." + to + ".f64 %d, %a;", [&](double x) {
        return std::isnan(x) ? narrowed_nan(format, x) : rounded(format, x, rounding);
      });
    }
    // Close to the format's own numbers, where ties and subnormals are.
    std::vector<float> close;
    std::mt19937 random(3);
    for (U32 code = 0; code < 0x10000; code += 3) {
      const auto value = static_cast<float>(format.value(code));
      close.push_back(of_bits(std::bit_cast<U32>(value) + (random() % 2 != 0 ? 0x1000 : random() & 0x1ffff)));
    }
    expect_lanes<U16>(
        "cvt.rn." + to + ".f32 %d, %a;", [&](float x) { return rounded(format, x, "rn"); }, close);
    expect_lanes<U16>(
        "cvt.rn.relu." + to + ".f32 %d, %a;", [&](float x) { return rounded(format, x <= 0 ? 0 : x, "rn"); },
        close);
    expect_lanes<U16>(
        "cvt.rn.satfinite." + to + ".f32 %d, %a;",
        [&](float x) {
          const U16 code = rounded(format, x, "rn");
          return (code & 0x7fff) == format.largest + 1 ? static_cast<U16>(code - 1) : code;
        },
        close);
  }
}

TEST(Convert, FromHalf) {
  std::vector<U16> all(0x10000);
  for (U32 i = 0; i < all.size(); ++i) all[i] = static_cast<U16>(i);
  expect_lanes<float>(
      "cvt.f32.f16 %d, %a;", [](U16 x) { return canonical(static_cast<float>(f16.value(x))); }, all);
  expect_lanes<U32>(
      "cvt.f32.bf16 %d, %a;", [](U16 x) { return U32{x} << 16; }, all);
  expect_lanes<double>(
      "setp.nan.f16 %p1, %a, %a;\n  cvt.f64.f16 %d, %a;\n  @%p1 mov.f64 %d, 0d0000000000000000;",
      [](U16 x) { return f16.is_nan(x) ? 0.0 : f16.value(x); }, all);
  expect_lanes<U16>(
      "cvt.rn.bf16.f16 %d, %a;", [](U16 x) { return rounded(bf16, f16.value(x), "rn"); }, all);
}

TEST(Convert, BetweenSinglesAndDoubles) {
  for (const std::string rounding : {"rn", "rz", "rm", "rp"}) {
    expect_values<float, double>("cvt." + rounding + ".f32.f64 %d, %a;", [=](double x) {
      // The host, too, keeps the sign and the first bits of a NaN.
      return std::isnan(x) || std::isinf(x) ? static_cast<float>(x)
                                            : directed(Quad{x}, static_cast<float>(x), rounding);
    });
  }
  expect_values<float, double>("cvt.rn.ftz.sat.f32.f64 %d, %a;", [](double x) {
    const auto y = flushed(static_cast<float>(x));
    return std::isnan(y) || y <= 0 ? 0.0f : std::min(y, 1.0f);
  });
  expect_values<double, float>(
      "setp.nan.f32 %p1, %a, %a;\n  cvt.f64.f32 %d, %a;\n  @%p1 mov.f64 %d, 0d0000000000000000;",
      [](float x) { return std::isnan(x) ? 0.0 : double{x}; });
  expect_values<double, float>(
      "setp.nan.f32 %p1, %a, %a;\n  cvt.ftz.f64.f32 %d, %a;\n  @%p1 mov.f64 %d, 0d0000000000000000;",
      [](float x) { return std::isnan(x) ? 0.0 : double{flushed(x)}; });
}

TEST(Convert, ToWholeNumbers) {
  for (const std::string rounding : {"rni", "rzi", "rmi", "rpi"}) {
    expect_values<float, float>("cvt." + rounding + ".f32.f32 %d, %a;", [=](float x) {
      return canonical(static_cast<float>(to_whole(x, rounding)));
    });
    expect_values<float, float>("cvt." + rounding + ".ftz.f32.f32 %d, %a;", [=](float x) {
      return canonical(static_cast<float>(to_whole(flushed(x), rounding)));
    });
    expect_values<U16, U16>("cvt." + rounding + ".f16.f16 %d, %a;", [=](U16 x) {
      const double y = to_whole(f16.value(x), rounding);
      return static_cast<U16>(f16.nearest(y, std::signbit(y)));
    });
  }
  expect_values<float, float>("cvt.sat.f32.f32 %d, %a;",
                              [](float x) { return std::isnan(x) || x <= 0 ? 0.0f : std::min(x, 1.0f); });
}

U32 pair(U32 high, U32 low) { return high << 16 | low; }

TEST(Convert, PairsOfHalves) {
  for (const SmallFormat& format : {f16, bf16}) {
    const auto to = std::string(format.name) + "x2.f32 %d, %a, %b;";
    for (const std::string rounding : {"rn", "rz"}) {
      expect_pairs<U32, float>("cvt." + rounding + "." + to, [&](float a, float b) {
        return pair(rounded(format, a, rounding), rounded(format, b, rounding));
      });
      const auto positive = [](float x) { return x <= 0 ? 0.0f : x; };
      expect_pairs<U32, float>("cvt." + rounding + ".relu." + to, [&](float a, float b) {
        return pair(rounded(format, positive(a), rounding), rounded(format, positive(b), rounding));
      });
    }
    const auto finite = [&format](float x) {
      const U16 code = rounded(format, x, "rn");
      return (code & 0x7fff) == format.largest + 1 ? static_cast<U16>(code - 1) : code;
    };
    expect_pairs<U32, float>("cvt.rn.satfinite." + to,
                             [=](float a, float b) { return pair(finite(a), finite(b)); });
  }
}

// An 8-bit number: what is too large becomes the largest number.
U32 byte(const SmallFormat& format, double x) {
  const U32 code = format.nearest(x, std::signbit(x));
  return (code & 0x7f) == format.largest + 1 && !std::isnan(x) ? code - 1 : code;
}

TEST(Convert, PairsOfBytes) {
  for (const SmallFormat& format : {e4m3, e5m2}) {
    const auto to = std::string(format.name) + "x2";
    const auto both = [&format](double a, double b) {
      return static_cast<U16>(byte(format, a) << 8 | byte(format, b));
    };
    expect_pairs<U16, float>("cvt.rn.satfinite." + to + ".f32 %d, %a, %b;", both);
    std::vector<float> close, same;
    std::mt19937 random(5);
    for (int i = 0; i < 20000; ++i) {
      // Around the format's numbers, ties among them.
      const double value = format.value(random() % (format.largest + 1));
      const double next = format.value(random() % (format.largest + 1));
      close.push_back(static_cast<float>(random() % 2 != 0 ? (value + next) / 2 : value * (1 + next * 1e-4)));
      same.push_back(-close.back());
    }
    expect_lanes<U16>("cvt.rn.satfinite." + to + ".f32 %d, %a, %b;", both, close, same);
    expect_lanes<U16>(
        "cvt.rn.satfinite.relu." + to + ".f32 %d, %a, %b;",
        [&](float a, float b) { return both(a <= 0 ? 0 : a, b <= 0 ? 0 : b); }, close, same);
    expect_values<U16, U32>("cvt.rn.satfinite." + to + ".f16x2 %d, %a;",
                            [&](U32 x) { return both(f16.value(x >> 16), f16.value(x & 0xffff)); });
    const auto half = [&format](U32 code) {
      const double x = format.value(code);
      return f16.nearest(x, std::signbit(x));
    };
    std::vector<U16> all(0x10000);
    for (U32 i = 0; i < all.size(); ++i) all[i] = static_cast<U16>(i);
    expect_lanes<U32>(
        "cvt.rn.f16x2." + to + " %d, %a;", [=](U16 x) { return pair(half(x >> 8), half(x & 0xff)); }, all);
    const auto positive = [=, &format](U32 code) { return format.value(code) <= 0 ? 0 : half(code); };
    expect_lanes<U32>(
        "cvt.rn.relu.f16x2." + to + " %d, %a;",
        [=](U16 x) { return pair(positive(x >> 8), positive(x & 0xff)); }, all);
  }
}

TEST(Convert, Tf32) {
  // The significand of a finite number scaled to a whole number, rounded, and scaled back.
  // A NaN that is rounded away from zero is cut off like a number.
  const auto reference = [](const std::string& rounding, bool relu) {
    return [=](float x) -> float {
      if (std::isnan(x)) return of_bits(rounding == "rna" ? std::bit_cast<U32>(x) & 0xffffe000 : 0x7fffe000);
      if (relu && x <= 0) return 0;
      if (std::isinf(x)) return x;
      const int exponent = std::max(x == 0 ? -126 : std::ilogb(x), -126) - 10;
      const double scaled = std::ldexp(double{x}, -exponent);
      const double whole = rounding == "rn"   ? std::nearbyint(scaled)
                           : rounding == "rz" ? std::trunc(scaled)
                                              : std::round(scaled);
      return static_cast<float>(std::ldexp(whole, exponent));
    };
  };
  for (const std::string rounding : {"rn", "rz", "rna"}) {
    expect_values<float, float>("cvt." + rounding + ".tf32.f32 %d, %a;", reference(rounding, false));
  }
  expect_values<float, float>("cvt.rn.relu.tf32.f32 %d, %a;", reference("rn", true));
  expect_values<float, float>("cvt.rna.satfinite.tf32.f32 %d, %a;", [&](float x) {
    if (std::isnan(x)) return of_bits(0x7fffe000);
    const float y = reference("rna", false)(x);
    return std::isinf(y) ? std::copysign(of_bits(0x7f7fe000), y) : y;
  });
}

TEST(Convert, PackedIntegers) {
  expect_pairs<U32, S32>("cvt.pack.sat.u16.s32 %d, %a, %b;",
                         [](S32 a, S32 b) { return pair(clamped<U16>(a), clamped<U16>(b)); });
  expect_pairs<U32, S32>("cvt.pack.sat.s16.s32 %d, %a, %b;", [](S32 a, S32 b) {
    return pair(static_cast<U16>(clamped<S16>(a)), static_cast<U16>(clamped<S16>(b)));
  });
  const auto packed = [](int width, int least, int most) {
    return [=](S32 a, S32 b, U32 c) {
      const U32 mask = (1u << width) - 1;
      return c << (2 * width) | (static_cast<U32>(std::clamp(a, least, most)) & mask) << width |
             (static_cast<U32>(std::clamp(b, least, most)) & mask);
    };
  };
  expect_triples<U32, S32, S32, U32>("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", packed(8, 0, 255));
  expect_triples<U32, S32, S32, U32>("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", packed(8, -128, 127));
  expect_triples<U32, S32, S32, U32>("cvt.pack.sat.s4.s32.b32 %d, %a, %b, %c;", packed(4, -8, 7));
  expect_triples<U32, S32, S32, U32>("cvt.pack.sat.u2.s32.b32 %d, %a, %b, %c;", packed(2, 0, 3));
}

TEST(Convert, WrongFormsAreRefused) {
  for (const char* instruction :
       {"cvt.f16.f32 %h1, %f1;", "cvt.s32.f32 %r1, %f1;", "cvt.f32.s32 %f1, %r1;", "cvt.rn.u32.u16 %r1, %h1;",
        "cvt.rni.f32.f64 %f1, %fd1;", "cvt.rn.e4m3x2.f32 %h1, %f1, %f2;", "cvt.rna.f16.f32 %h1, %f1;",
        "cvt.rn.satfinite.f32.f64 %f1, %fd1;", "cvt.pack.u16.s32 %r1, %r2, %r3;", "cvt.u64.u32 %r1, %r2;",
        "cvt.rn.ftz.f16.f64 %h1, %fd1;"}) {
    EXPECT_THROW(Module(kernel_of(std::string("  ") + instruction), {9, 0, 'a'}), PtxError) << instruction;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
