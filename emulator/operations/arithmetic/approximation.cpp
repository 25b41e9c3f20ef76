// sin, cos, lg2, ex2, tanh (PTX ISA, "Floating-Point Instructions"). Results are rounded from double
// precision: more accurate than hardware, which PTX allows, with the special values of its tables. Only tanh
// has the hardware's error, since that shows in outputs.
#include <cmath>

#include "operations/arithmetic/exponentials.h"
#include "operations/arithmetic/float_arithmetic.h"
#include "operations/arithmetic/tanh_segments.h"

namespace jit::emulator {
namespace {

// The argument in turns, times 2π, reduced as hardware does: multiplied by 1 / (2π), rounded toward zero.
double reduced(double x) {
  constexpr double inverse_of_turn = 0x1.45f306p-3;  // an f32, so that products are exact
  constexpr double turn = 0x1.921fb54442d18p+2;
  const auto bits = static_cast<std::uint32_t>(encode(f32_format, x * inverse_of_turn, Rounding::to_zero));
  return std::remainder(static_cast<double>(std::bit_cast<float>(bits)), 1.0) * turn;
}

// A function of the host's math library.
template <class F>
std::unique_ptr<const Operation> library_function(Decoder& decoder, F f) {
  const bool ftz = decoder.take("ftz");
  if (!decoder.take("f32")) decoder.fail("is defined for .f32");
  return lane_by_lane<float(float)>(decoder, [ftz, f](float x) {
    const auto y = canonical(static_cast<float>(f(static_cast<double>(ftz ? flush(x) : x))));
    return ftz ? flush(y) : y;
  });
}

}  // namespace

std::unique_ptr<const Operation> decode_approximation(Decoder& decoder) {
  if (!decoder.take("approx")) decoder.fail("lacks .approx");
  const std::string_view opcode = decoder.opcode();
  if (opcode == "sin") return library_function(decoder, [](double x) { return std::sin(reduced(x)); });
  if (opcode == "cos") return library_function(decoder, [](double x) { return std::cos(reduced(x)); });
  if (opcode == "lg2") return library_function(decoder, [](double x) { return std::log2(x); });
  if (opcode == "ex2") {
    return single_approximation<1>(decoder, [](float x) {
      const auto power = static_cast<float>(exp2_of(static_cast<double>(x)));
      return x != x ? x : power;
    });
  }
  if (decoder.has("ftz")) decoder.fail(".ftz is not defined for tanh");
  if (!decoder.take("f32")) decoder.fail("is defined for .f32");
  return lane_by_lane<float(float)>(decoder, [](float x) { return canonical(silicon_tanh(x)); });
}

}  // namespace jit::emulator
