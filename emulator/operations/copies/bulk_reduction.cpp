#include "operations/copies/bulk_reduction.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "operations/arithmetic/numbers.h"

namespace jit::emulator {
namespace {

using Operator = Reduction::Operator;

// Calls combine(old, operand) on the bits of each element.
template <class Bits, class F>
void for_each_element(std::byte* to, const std::byte* from, std::size_t bytes, F combine) {
  for (std::size_t i = 0; i < bytes; i += sizeof(Bits)) {
    Bits operand;
    std::memcpy(&operand, from + i, sizeof(operand));
    std::atomic_ref<Bits> cell(*reinterpret_cast<Bits*>(to + i));
    Bits old = cell.load(std::memory_order_relaxed);
    while (!cell.compare_exchange_weak(old, static_cast<Bits>(combine(old, operand)),
                                       std::memory_order_relaxed)) {
    }
  }
}

template <class Signed, class Bits>
void reduce_integers(Operator op, bool is_signed_type, std::byte* to, const std::byte* from,
                     std::size_t bytes) {
  const auto less = [&](Bits a, Bits b) {
    return is_signed_type ? static_cast<Signed>(a) < static_cast<Signed>(b) : a < b;
  };
  switch (op) {
    case Operator::add:
      return for_each_element<Bits>(to, from, bytes, [](Bits a, Bits b) { return a + b; });
    case Operator::min:
      return for_each_element<Bits>(to, from, bytes, [&](Bits a, Bits b) { return less(b, a) ? b : a; });
    case Operator::max:
      return for_each_element<Bits>(to, from, bytes, [&](Bits a, Bits b) { return less(a, b) ? b : a; });
    case Operator::inc:
      return for_each_element<Bits>(to, from, bytes, [](Bits a, Bits b) { return a >= b ? 0 : a + 1; });
    case Operator::dec:
      return for_each_element<Bits>(to, from, bytes,
                                    [](Bits a, Bits b) { return a == 0 || a > b ? b : a - 1; });
    case Operator::bit_and:
      return for_each_element<Bits>(to, from, bytes, [](Bits a, Bits b) { return a & b; });
    case Operator::bit_or:
      return for_each_element<Bits>(to, from, bytes, [](Bits a, Bits b) { return a | b; });
    case Operator::bit_xor:
      return for_each_element<Bits>(to, from, bytes, [](Bits a, Bits b) { return a ^ b; });
  }
}

// A number wins over NaN, and −0 is less than +0.
float smaller(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

float larger(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// f32 holds the sum of two halves with enough bits that double rounding equals a single one.
template <class ToFloat, class FromFloat>
void reduce_halves(Operator op, ToFloat to_float, FromFloat from_float, std::byte* to, const std::byte* from,
                   std::size_t bytes) {
  for_each_element<std::uint16_t>(to, from, bytes, [&](std::uint16_t a, std::uint16_t b) {
    const float x = to_float(a), y = to_float(b);
    return from_float(op == Operator::add ? x + y : op == Operator::min ? smaller(x, y) : larger(x, y));
  });
}

bool is_bitwise(Operator op) {
  return op == Operator::bit_and || op == Operator::bit_or || op == Operator::bit_xor;
}

}  // namespace

std::optional<Operator> parse_reduction(std::string_view text) {
  if (text == "add") return Operator::add;
  if (text == "min") return Operator::min;
  if (text == "max") return Operator::max;
  if (text == "inc") return Operator::inc;
  if (text == "dec") return Operator::dec;
  if (text == "and") return Operator::bit_and;
  if (text == "or") return Operator::bit_or;
  if (text == "xor") return Operator::bit_xor;
  return {};
}

bool is_legal(const Reduction& reduction, bool to_shared) {
  const Type type = reduction.type;
  const bool is_half = type == Type::f16 || type == Type::bf16;
  switch (reduction.op) {
    case Operator::add:
      if (type == Type::u32 || type == Type::s32 || type == Type::u64) return true;
      return !to_shared && (is_half || type == Type::f32 || type == Type::f64);
    case Operator::min:
    case Operator::max:
      if (type == Type::u32 || type == Type::s32) return true;
      return !to_shared && (is_half || type == Type::u64 || type == Type::s64);
    case Operator::inc:
    case Operator::dec:
      return type == Type::u32;
    default:
      return type == Type::b32 || (!to_shared && type == Type::b64);
  }
}

std::optional<Reduction> tensor_reduction(Operator op, TensorMap::Element element) {
  using Element = TensorMap::Element;
  Type type;
  switch (element) {
    case Element::u32:
      type = is_bitwise(op) ? Type::b32 : Type::u32;
      break;
    case Element::s32:
      type = is_bitwise(op) ? Type::b32 : Type::s32;
      break;
    case Element::u64:
      type = is_bitwise(op) ? Type::b64 : Type::u64;
      break;
    case Element::s64:
      type = is_bitwise(op) ? Type::b64 : op == Operator::add ? Type::u64 : Type::s64;
      break;
    case Element::f16:
      type = Type::f16;
      break;
    case Element::bf16:
      type = Type::bf16;
      break;
    case Element::f32:
    case Element::f32_ftz:
      type = Type::f32;
      break;
    case Element::f64:
      type = Type::f64;
      break;
    default:
      return {};
  }
  const Reduction reduction = {op, type, element == Element::f32_ftz};
  if (!is_legal(reduction, false)) return {};
  return reduction;
}

void reduce(const Reduction& reduction, std::byte* to, const std::byte* from, std::size_t bytes) {
  switch (reduction.type) {
    case Type::f16:
      return reduce_halves(reduction.op, f32_of_f16, f16_of_f32, to, from, bytes);
    case Type::bf16:
      return reduce_halves(reduction.op, f32_of_bf16, bf16_of_f32, to, from, bytes);
    case Type::f32:
      // PTX leaves subnormals open. An H200 keeps them, unless a tensor map has FLOAT32_FTZ.
      return for_each_element<std::uint32_t>(to, from, bytes, [&](std::uint32_t a, std::uint32_t b) {
        const auto kept = [&](float x) { return reduction.flushes ? flush(x) : x; };
        const float sum = kept(std::bit_cast<float>(a)) + kept(std::bit_cast<float>(b));
        return std::bit_cast<std::uint32_t>(canonical(kept(sum)));
      });
    case Type::f64:
      return for_each_element<std::uint64_t>(to, from, bytes, [](std::uint64_t a, std::uint64_t b) {
        return std::bit_cast<std::uint64_t>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
      });
    default:
      if (bits(reduction.type) == 64) {
        return reduce_integers<std::int64_t, std::uint64_t>(reduction.op, is_signed(reduction.type), to, from,
                                                            bytes);
      }
      return reduce_integers<std::int32_t, std::uint32_t>(reduction.op, is_signed(reduction.type), to, from,
                                                          bytes);
  }
}

}  // namespace jit::emulator
