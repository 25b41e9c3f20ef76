#include "operations/copies/atomic_update.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "operations/arithmetic/numbers.h"

namespace jit::emulator {
namespace {

using Word = std::uint64_t;

template <class T>
T from_word(Word word) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(word);
  } else {
    return static_cast<T>(word);
  }
}

template <class T>
Word to_word(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

template <class T>
Word add(Word old, Word b, Word) {
  return to_word<T>(static_cast<T>(from_word<T>(old) + from_word<T>(b)));
}

Word add_f32(Word old, Word b, Word) {
  return to_word(canonical(from_word<float>(old) + from_word<float>(b)));
}

Word add_f32_flushed(Word old, Word b, Word) {
  return to_word(canonical(flush(flush(from_word<float>(old)) + flush(from_word<float>(b)))));
}

// 16-bit formats: f32 holds the sum of two with enough bits that rounding it equals rounding the exact sum
// (Figueroa, "When is double rounding innocuous?").
struct Half {
  static float widen(std::uint16_t bits) { return f32_of_f16(bits); }
  static std::uint16_t narrow(float value) { return f16_of_f32(value); }
};
struct BrainFloat {
  static float widen(std::uint16_t bits) { return f32_of_bf16(bits); }
  static std::uint16_t narrow(float value) { return bf16_of_f32(value); }
};

template <class F>
std::uint16_t add_16(std::uint16_t a, std::uint16_t b) {
  return F::narrow(F::widen(a) + F::widen(b));
}

// The number when the other one is NaN; −0 is less than +0.
template <class F, bool smaller>
std::uint16_t extremum_16(std::uint16_t a, std::uint16_t b) {
  const float x = F::widen(a), y = F::widen(b);
  if (x != x) return y != y ? F::narrow(x) : b;
  if (y != y) return a;
  if (x == y) return static_cast<std::uint16_t>(smaller ? a | b : a & b);
  return (x < y) == smaller ? a : b;
}

using Update16 = std::uint16_t (*)(std::uint16_t, std::uint16_t);

template <Update16 f>
Word single(Word old, Word b, Word) {
  return f(static_cast<std::uint16_t>(old), static_cast<std::uint16_t>(b));
}

template <Update16 f>
Word pair(Word old, Word b, Word c) {
  return single<f>(old, b, c) | single<f>(old >> 16, b >> 16, c) << 16;
}

template <class F>
AtomicUpdate find_16(std::string_view operation, bool is_pair) {
  if (operation == "add") return is_pair ? pair<add_16<F>> : single<add_16<F>>;
  if (operation == "min") return is_pair ? pair<extremum_16<F, true>> : single<extremum_16<F, true>>;
  if (operation == "max") return is_pair ? pair<extremum_16<F, false>> : single<extremum_16<F, false>>;
  return nullptr;
}

template <class T>
Word minimum(Word old, Word b, Word) {
  return to_word(std::min(from_word<T>(old), from_word<T>(b)));
}

template <class T>
Word maximum(Word old, Word b, Word) {
  return to_word(std::max(from_word<T>(old), from_word<T>(b)));
}

template <class T>
AtomicUpdate find_integer(std::string_view operation) {
  if (operation == "add") return add<std::make_unsigned_t<T>>;
  if (operation == "min") return minimum<T>;
  if (operation == "max") return maximum<T>;
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    if (operation == "inc") return [](Word old, Word b, Word) -> Word { return old >= b ? 0 : old + 1; };
    if (operation == "dec") {
      return [](Word old, Word b, Word) -> Word { return old == 0 || old > b ? b : old - 1; };
    }
  }
  return nullptr;
}

AtomicUpdate find_bits(std::string_view operation, Type type) {
  if (operation == "cas") return [](Word old, Word b, Word c) -> Word { return old == b ? c : old; };
  if (type == Type::b16) return nullptr;
  if (operation == "exch") return [](Word, Word b, Word) -> Word { return b; };
  if (operation == "and") return [](Word old, Word b, Word) -> Word { return old & b; };
  if (operation == "or") return [](Word old, Word b, Word) -> Word { return old | b; };
  if (operation == "xor") return [](Word old, Word b, Word) -> Word { return old ^ b; };
  return nullptr;
}

}  // namespace

AtomicUpdate find_atomic_update(std::string_view operation, Type type, bool in_shared) {
  switch (type) {
    case Type::b16:
    case Type::b32:
    case Type::b64:
      return find_bits(operation, type);
    case Type::u32:
      return find_integer<std::uint32_t>(operation);
    case Type::s32:
      return find_integer<std::int32_t>(operation);
    case Type::u64:
      return find_integer<std::uint64_t>(operation);
    case Type::s64:
      return find_integer<std::int64_t>(operation);
    case Type::f32:
      return operation == "add" ? in_shared ? add_f32 : add_f32_flushed : nullptr;
    case Type::f64:
      return operation == "add" ? add<double> : nullptr;
    case Type::f16:
    case Type::f16x2:
      return find_16<Half>(operation, type == Type::f16x2);
    case Type::bf16:
    case Type::bf16x2:
      return find_16<BrainFloat>(operation, type == Type::bf16x2);
    default:
      return nullptr;
  }
}

}  // namespace jit::emulator
