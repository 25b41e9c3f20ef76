// Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions").
#include "operations/arithmetic/integer.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;

// Takes ".u16x2" or ".s16x2", if present; not a Type, since no register has that type.
std::string_view take_pair_type(Decoder& decoder) {
  const std::string_view type = decoder.take_any_of({"u16x2", "s16x2"});
  if (!type.empty()) decoder.require_arch(9, 0);
  return type;
}

std::int32_t clamp_to_s32(std::int64_t value) {
  value = value < std::numeric_limits<std::int32_t>::min() ? std::numeric_limits<std::int32_t>::min() : value;
  value = value > std::numeric_limits<std::int32_t>::max() ? std::numeric_limits<std::int32_t>::max() : value;
  return static_cast<std::int32_t>(value);
}

template <bool subtract>
Result decode_sum(Decoder& decoder) {
  if (Result operation = decode_carry(decoder)) return operation;
  const auto sum = [](auto a, auto b) {
    using Wide = Wrapping<decltype(a)>;
    return static_cast<decltype(a)>(subtract ? Wide{a} - Wide{b} : Wide{a} + Wide{b});
  };
  if (!take_pair_type(decoder).empty()) {
    return lanewise<std::uint32_t(std::uint32_t, std::uint32_t)>(decoder, on_halves<std::uint16_t>(sum));
  }
  const bool saturates = decoder.take("sat");
  const Type type = decoder.take_type();
  if (saturates) {
    if (type != Type::s32) decoder.fail(".sat is defined for .s32 only");
    return lanewise<std::int32_t(std::int32_t, std::int32_t)>(
        decoder, [](std::int64_t a, std::int64_t b) { return clamp_to_s32(subtract ? a - b : a + b); });
  }
  return with_unsigned(decoder, type, [&]<class T>(T) { return lanewise<T(T, T)>(decoder, sum); });
}

Result decode_mul(Decoder& decoder) {
  const std::string_view part = decoder.take_one_of({"lo", "hi", "wide"});
  const Type type = decoder.take_type();
  if (part == "lo") {
    return with_unsigned(decoder, type, [&]<class T>(T) {
      return lanewise<T(T, T)>(decoder, [](T a, T b) { return multiply_low(a, b); });
    });
  }
  if (part == "hi") {
    return with_integer(decoder, type, [&]<class T>(T) {
      return lanewise<T(T, T)>(decoder, [](T a, T b) { return multiply_high(a, b); });
    });
  }
  return with_integer(decoder, type, [&]<class T>(T) -> Result {
    if constexpr (sizeof(T) <= 4) {
      using Wide = typename Doubled<T>::type;
      return lanewise<Wide(T, T)>(decoder, [](Wide a, Wide b) { return multiply_low(a, b); });
    } else {
      decoder.fail(".wide is defined for types of 16 and 32 bits");
    }
  });
}

Result decode_mad(Decoder& decoder) {
  if (Result operation = decode_carry(decoder)) return operation;
  const std::string_view part = decoder.take_one_of({"lo", "hi", "wide"});
  const bool saturates = decoder.take("sat");
  const Type type = decoder.take_type();
  if (saturates) {
    if (type != Type::s32 || part != "hi") decoder.fail(".sat is defined for .hi.s32 only");
    using S = std::int32_t;
    return lanewise<S(S, S, S)>(
        decoder, [](S a, S b, S c) { return clamp_to_s32(std::int64_t{multiply_high(a, b)} + c); });
  }
  if (part == "lo") {
    return with_unsigned(decoder, type, [&]<class T>(T) {
      return lanewise<T(T, T, T)>(decoder, [](T a, T b, T c) {
        return static_cast<T>(Wrapping<T>{multiply_low(a, b)} + Wrapping<T>{c});
      });
    });
  }
  if (part == "hi") {
    return with_integer(decoder, type, [&]<class T>(T) {
      using U = std::make_unsigned_t<T>;
      return lanewise<U(T, T, U)>(decoder, [](T a, T b, U c) {
        return static_cast<U>(Wrapping<U>{static_cast<U>(multiply_high(a, b))} + Wrapping<U>{c});
      });
    });
  }
  return with_integer(decoder, type, [&]<class T>(T) -> Result {
    if constexpr (sizeof(T) <= 4) {
      using Wide = typename Doubled<T>::type;
      using U = std::make_unsigned_t<Wide>;
      return lanewise<U(T, T, U)>(decoder,
                                  [](Wide a, Wide b, U c) { return static_cast<U>(multiply_low(a, b)) + c; });
    } else {
      decoder.fail(".wide is defined for types of 16 and 32 bits");
    }
  });
}

// The 48-bit product of the low 24 bits.
template <class T>
std::int64_t product24(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  const auto low24 = [](T x) { return Wide{static_cast<T>(static_cast<T>(std::uint32_t(x) << 8) >> 8)}; };
  return static_cast<std::int64_t>(low24(a) * low24(b));
}

template <class F>
Result with_word(Decoder& decoder, F f) {
  const Type type = decoder.take_type();
  if (type == Type::u32) return f(std::uint32_t{});
  if (type == Type::s32) return f(std::int32_t{});
  decoder.fail(fmt::format("type .{} is neither .u32 nor .s32", to_string(type)));
}

Result decode_mul24(Decoder& decoder) {
  const int shift = decoder.take_one_of({"lo", "hi"}) == "hi" ? 16 : 0;
  return with_word(decoder, [&]<class T>(T) {
    return lanewise<T(T, T)>(decoder, [shift](T a, T b) { return static_cast<T>(product24(a, b) >> shift); });
  });
}

Result decode_mad24(Decoder& decoder) {
  const int shift = decoder.take_one_of({"lo", "hi"}) == "hi" ? 16 : 0;
  const bool saturates = decoder.take("sat");
  return with_word(decoder, [&]<class T>(T) -> Result {
    if (saturates) {
      if (shift == 0 || !std::is_signed_v<T>) decoder.fail(".sat is defined for .hi.s32 only");
      return lanewise<std::int32_t(T, T, std::int32_t)>(
          decoder, [](T a, T b, std::int32_t c) { return clamp_to_s32((product24(a, b) >> 16) + c); });
    }
    return lanewise<std::uint32_t(T, T, std::uint32_t)>(decoder, [shift](T a, T b, std::uint32_t c) {
      return static_cast<std::uint32_t>(product24(a, b) >> shift) + c;
    });
  });
}

Result decode_sad(Decoder& decoder) {
  return with_integer(decoder, decoder.take_type(), [&]<class T>(T) {
    using U = std::make_unsigned_t<T>;
    return lanewise<U(T, T, U)>(decoder, [](T a, T b, U c) {
      const auto difference =
          static_cast<Wrapping<U>>(a < b ? b : a) - static_cast<Wrapping<U>>(a < b ? a : b);
      return static_cast<U>(Wrapping<U>{c} + difference);
    });
  });
}

template <class T>
struct Division final : Operation {
  Operands<T(T, T)> operands;
  bool wants_remainder = false;

  Flow execute(Warp& warp) const override {
    Unit<T>* const to = lanes<T>(warp, operands.to);
    for_each_lane(warp.exec, [&](int lane) {
      const T a = value_of<T>(lanes<T>(warp, operands.from[0])[lane]);
      const T b = value_of<T>(lanes<T>(warp, operands.from[1])[lane]);
      to[lane] = unit_of<T>(divide(warp, lane, a, b));
    });
    return Flow::next;
  }

 private:
  T divide(const Warp& warp, int lane, T a, T b) const {
    if (b == 0) {
      warp.report(FindingKind::illegal_instruction, lane, "division by zero: PTX leaves the result open");
      return static_cast<T>(-1);
    }
    if constexpr (std::is_signed_v<T>) {
      // The quotient of the least integer by −1 wraps around; the host would trap.
      if (b == -1) return wants_remainder ? T{0} : static_cast<T>(0 - static_cast<Wrapping<T>>(a));
    }
    return static_cast<T>(wants_remainder ? a % b : a / b);
  }
};

template <bool wants_remainder>
Result decode_division(Decoder& decoder) {
  return with_integer(decoder, decoder.take_type(), [&]<class T>(T) -> Result {
    auto operation = std::make_unique<Division<T>>();
    operation->operands = take_operands(decoder, std::type_identity<T(T, T)>());
    operation->wants_remainder = wants_remainder;
    return operation;
  });
}

template <bool absolute>
Result decode_sign(Decoder& decoder) {
  return with_integer(decoder, decoder.take_type(), [&]<class T>(T) -> Result {
    if constexpr (std::is_signed_v<T>) {
      return lanewise<T(T)>(decoder, [](T a) {
        const auto negative = static_cast<T>(0 - static_cast<Wrapping<T>>(a));
        return absolute && a >= 0 ? a : negative;
      });
    } else {
      decoder.fail("is defined for .s16, .s32 and .s64");
    }
  });
}

template <bool largest>
Result decode_extremum(Decoder& decoder) {
  const auto extremum = [](auto a, auto b) { return largest ? (a < b ? b : a) : (b < a ? b : a); };
  const auto rectified = [extremum](auto a, auto b) {
    const auto chosen = extremum(a, b);
    return chosen < 0 ? decltype(chosen){0} : chosen;
  };
  using U = std::uint32_t;
  const bool rectifies = decoder.take("relu");
  if (rectifies) decoder.require_arch(9, 0);
  if (const std::string_view pair = take_pair_type(decoder); !pair.empty()) {
    if (pair == "u16x2") {
      if (rectifies) decoder.fail(".relu is defined for .s32 and .s16x2");
      return lanewise<U(U, U)>(decoder, on_halves<std::uint16_t>(extremum));
    }
    if (rectifies) return lanewise<U(U, U)>(decoder, on_halves<std::int16_t>(rectified));
    return lanewise<U(U, U)>(decoder, on_halves<std::int16_t>(extremum));
  }
  const Type type = decoder.take_type();
  if (rectifies) {
    if (type != Type::s32) decoder.fail(".relu is defined for .s32 and .s16x2");
    return lanewise<std::int32_t(std::int32_t, std::int32_t)>(decoder, rectified);
  }
  return with_integer(decoder, type, [&]<class T>(T) { return lanewise<T(T, T)>(decoder, extremum); });
}

// Byte or half `index` of a word.
template <int width>
std::int64_t part_of(std::uint32_t word, int index, bool is_signed) {
  const auto part = word >> (width * index) & ((1u << width) - 1);
  return is_signed && (part >> (width - 1)) != 0 ? std::int64_t{part} - (1 << width) : std::int64_t{part};
}

// Whether the next type modifier is .s32 rather than .u32.
bool take_signedness(Decoder& decoder) {
  const Type type = decoder.take_type();
  if (type != Type::s32 && type != Type::u32) {
    decoder.fail(fmt::format("type .{} is neither .u32 nor .s32", to_string(type)));
  }
  return type == Type::s32;
}

Result decode_dp4a(Decoder& decoder) {
  const bool a_signed = take_signedness(decoder);
  const bool b_signed = take_signedness(decoder);
  using U = std::uint32_t;
  return lanewise<U(U, U, U)>(decoder, [a_signed, b_signed](U a, U b, U c) {
    std::int64_t sum = c;
    for (int i = 0; i < 4; ++i) sum += part_of<8>(a, i, a_signed) * part_of<8>(b, i, b_signed);
    return static_cast<U>(sum);
  });
}

Result decode_dp2a(Decoder& decoder) {
  const int first = decoder.take_one_of({"lo", "hi"}) == "hi" ? 2 : 0;
  const bool a_signed = take_signedness(decoder);
  const bool b_signed = take_signedness(decoder);
  using U = std::uint32_t;
  return lanewise<U(U, U, U)>(decoder, [first, a_signed, b_signed](U a, U b, U c) {
    std::int64_t sum = c;
    for (int i = 0; i < 2; ++i) sum += part_of<16>(a, i, a_signed) * part_of<8>(b, first + i, b_signed);
    return static_cast<U>(sum);
  });
}

}  // namespace

std::unique_ptr<const Operation> decode_integer(Decoder& decoder) {
  static const std::unordered_map<std::string_view, Result (*)(Decoder&)> by_opcode = {
      {"add", decode_sum<false>},
      {"addc", decode_carry},
      {"sub", decode_sum<true>},
      {"subc", decode_carry},
      {"mul", decode_mul},
      {"mad", decode_mad},
      {"madc", decode_carry},
      {"mul24", decode_mul24},
      {"mad24", decode_mad24},
      {"sad", decode_sad},
      {"div", decode_division<false>},
      {"rem", decode_division<true>},
      {"abs", decode_sign<true>},
      {"neg", decode_sign<false>},
      {"min", decode_extremum<false>},
      {"max", decode_extremum<true>},
      {"dp4a", decode_dp4a},
      {"dp2a", decode_dp2a},
  };
  if (const auto type = last_type(decoder); type && (is_float(*type) || *type == Type::pred)) return nullptr;
  const auto found = by_opcode.find(decoder.opcode());
  Result operation = found == by_opcode.end() ? decode_bits(decoder) : found->second(decoder);
  if (operation) decoder.set_class(InstructionClass::integer);
  return operation;
}

}  // namespace jit::emulator
