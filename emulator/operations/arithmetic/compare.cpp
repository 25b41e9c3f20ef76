// Comparisons and selections (PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison
// Instructions", "testp").
#include <cmath>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "operations/arithmetic/compare.h"
#include "operations/arithmetic/numbers.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

using Result = std::unique_ptr<const Operation>;

enum class Relation { equal, less, less_or_equal, less_or_greater, ordered };

// A comparison operator as a relation, possibly with swapped operands or an inverted result. Unordered
// operators invert ordered ones.
struct Operator {
  Relation relation;
  bool swapped = false;
  bool inverted = false;
};

Operator take_integer_operator(Decoder& decoder, Type type) {
  const bool has_order = bits(type) > 1 && type != Type::b16 && type != Type::b32 && type != Type::b64;
  const bool is_unsigned = has_order && !is_signed(type);
  if (decoder.take("eq")) return {Relation::equal};
  if (decoder.take("ne")) return {Relation::equal, false, true};
  if (!has_order) decoder.fail(fmt::format("type .{} is compared by .eq and .ne only", to_string(type)));
  if (decoder.take("lt") || (is_unsigned && decoder.take("lo"))) return {Relation::less};
  if (decoder.take("le") || (is_unsigned && decoder.take("ls"))) return {Relation::less_or_equal};
  if (decoder.take("gt") || (is_unsigned && decoder.take("hi"))) return {Relation::less, true};
  if (decoder.take("ge") || (is_unsigned && decoder.take("hs"))) return {Relation::less_or_equal, true};
  decoder.fail(fmt::format("lacks a comparison that .{} has", to_string(type)));
}

Operator take_float_operator(Decoder& decoder) {
  static const std::unordered_map<std::string_view, Operator> operators = {
      {"eq", {Relation::equal}},
      {"ne", {Relation::less_or_greater}},
      {"lt", {Relation::less}},
      {"le", {Relation::less_or_equal}},
      {"gt", {Relation::less, true}},
      {"ge", {Relation::less_or_equal, true}},
      {"equ", {Relation::less_or_greater, false, true}},
      {"neu", {Relation::equal, false, true}},
      {"ltu", {Relation::less_or_equal, true, true}},
      {"leu", {Relation::less, true, true}},
      {"gtu", {Relation::less_or_equal, false, true}},
      {"geu", {Relation::less, false, true}},
      {"num", {Relation::ordered}},
      {"nan", {Relation::ordered, false, true}},
  };
  return operators.at(decoder.take_one_of(
      {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}));
}

// The outcome of a comparison.
struct Outcome {
  std::string_view combine = {};  // "and", "or", "xor" with `other`; empty: nothing
  Decoder::PredicateSource other{};
  bool is_value = false;
  std::optional<Predicate> p, q;
  Slot to = 0;
  std::uint32_t true_value = 0;

  std::uint32_t combined(Warp& warp, std::uint32_t mask) const {
    if (combine.empty()) return mask;
    const std::uint32_t c = warp.predicate(other.predicate) ^ (other.negated ? all_lanes : 0);
    return combine == "and" ? mask & c : combine == "or" ? mask | c : mask ^ c;
  }
};

// Writes `value` to the lanes of `mask` and 0 to the other lanes.
void write_values(Warp& warp, Slot to, std::uint32_t mask, std::uint32_t value) {
  const auto loop = [](std::uint32_t chosen, std::uint32_t exec, std::uint32_t true_value,
                       std::uint32_t* out) {
    std::array<std::uint32_t, warp_lanes> results;
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
      results[lane] = (chosen & lane_bits[lane]) != 0 ? true_value : 0;
    }
    copy_lanes(exec, out, results.data());
  };
  vectorized(loop, mask, warp.exec, value, warp.r32(to));
}

struct Comparison : Operation {
  Slot a = 0, b = 0;
  bool inverted = false;
  Outcome outcome;

  Flow finish(Warp& warp, std::uint32_t mask) const {
    mask ^= inverted ? all_lanes : 0;
    const std::uint32_t p = outcome.combined(warp, mask), q = outcome.combined(warp, ~mask);
    if (outcome.is_value) {
      write_values(warp, outcome.to, p, outcome.true_value);
      return Flow::next;
    }
    if (outcome.p) warp.set_predicate(*outcome.p, p);
    if (outcome.q) warp.set_predicate(*outcome.q, q);
    return Flow::next;
  }

  Flow finish_pair(Warp& warp, std::uint32_t low, std::uint32_t high) const {
    low = outcome.combined(warp, low ^ (inverted ? all_lanes : 0));
    high = outcome.combined(warp, high ^ (inverted ? all_lanes : 0));
    if (outcome.is_value) {
      for_each_lane(warp.exec, [&](int lane) {
        warp.r32(outcome.to)[lane] = ((low >> lane & 1) != 0 ? outcome.true_value : 0) |
                                     ((high >> lane & 1) != 0 ? outcome.true_value << 16 : 0);
      });
      return Flow::next;
    }
    if (outcome.p) warp.set_predicate(*outcome.p, low);
    if (outcome.q) warp.set_predicate(*outcome.q, high);
    return Flow::next;
  }
};

template <Relation relation, class T>
bool holds(T a, T b) {
  if constexpr (relation == Relation::equal) return a == b;
  if constexpr (relation == Relation::less) return a < b;
  if constexpr (relation == Relation::less_or_equal) return a <= b;
  if constexpr (relation == Relation::less_or_greater) return a < b || a > b;
  if constexpr (relation == Relation::ordered) return a == a && b == b;
}

// The lanes where load(a) and load(b) satisfy a relation; T is the registers' type.
template <Relation relation, class T, class Load>
std::uint32_t compare_lanes(const Unit<T>* a, const Unit<T>* b, Load load) {
  const auto loop = [](const Load* widen, const Unit<T>* x, const Unit<T>* y) {
    std::uint32_t mask = 0;
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
      const bool result = holds<relation>((*widen)(value_of<T>(x[lane])), (*widen)(value_of<T>(y[lane])));
      mask |= result ? lane_bits[lane] : 0;
    }
    return mask;
  };
  return vectorized(loop, static_cast<const Load*>(&load), a, b);
}

template <Relation relation, class T, class Load>
struct Compare final : Comparison {
  explicit Compare(Load l) : load(l) {}
  Load load;

  Flow execute(Warp& warp) const override {
    return finish(warp, compare_lanes<relation, T>(lanes<T>(warp, a), lanes<T>(warp, b), load));
  }
};

template <Relation relation, class Load>
struct ComparePairs final : Comparison {
  explicit ComparePairs(Load l) : load(l) {}
  Load load;

  Flow execute(Warp& warp) const override {
    using U = std::uint32_t;
    const auto of_half = [&](int shift) {
      return compare_lanes<relation, U>(warp.r32(a), warp.r32(b), [this, shift](U packed) {
        return load(static_cast<std::uint16_t>(packed >> shift));
      });
    };
    return finish_pair(warp, of_half(0), of_half(16));
  }
};

template <class T, bool is_pair, class Load>
std::unique_ptr<Comparison> make_comparison(Decoder& decoder, const Operator& how, Load load) {
  const auto make = [&]<Relation relation>() -> std::unique_ptr<Comparison> {
    if constexpr (is_pair) {
      return std::make_unique<ComparePairs<relation, Load>>(load);
    } else {
      return std::make_unique<Compare<relation, T, Load>>(load);
    }
  };
  std::unique_ptr<Comparison> comparison;
  switch (how.relation) {
    case Relation::equal:
      comparison = make.template operator()<Relation::equal>();
      break;
    case Relation::less:
      comparison = make.template operator()<Relation::less>();
      break;
    case Relation::less_or_equal:
      comparison = make.template operator()<Relation::less_or_equal>();
      break;
    case Relation::less_or_greater:
      comparison = make.template operator()<Relation::less_or_greater>();
      break;
    case Relation::ordered:
      comparison = make.template operator()<Relation::ordered>();
      break;
  }
  comparison->a = decoder.source(how.swapped ? 2 : 1, ptx_type<T>());
  comparison->b = decoder.source(how.swapped ? 1 : 2, ptx_type<T>());
  comparison->inverted = how.inverted;
  return comparison;
}

template <bool flushes>
constexpr auto from_f16 = [](std::uint16_t x) {
  const std::uint32_t kept = flushes && (x & 0x7c00u) == 0 ? 0x8000u : 0xffffu;
  return f32_of_f16(static_cast<std::uint16_t>(x & kept));
};

std::unique_ptr<Comparison> take_comparison(Decoder& decoder, Type type, bool ftz) {
  const auto itself = [](auto x) { return x; };
  if (ftz && type != Type::f32 && type != Type::f16 && type != Type::f16x2) {
    decoder.fail(".ftz is defined for comparisons of .f32, .f16 and .f16x2");
  }
  if (is_float(type)) {
    const Operator how = take_float_operator(decoder);
    switch (type) {
      case Type::f32:
        return with_flag(ftz, [&](auto flushes) {
          return make_comparison<float, false>(
              decoder, how, [](float x) { return decltype(flushes)::value ? flush(x) : x; });
        });
      case Type::f64:
        return make_comparison<double, false>(decoder, how, itself);
      case Type::f16:
        return with_flag(ftz, [&](auto flushes) {
          return make_comparison<std::uint16_t, false>(decoder, how, from_f16<flushes>);
        });
      case Type::bf16:
        return make_comparison<std::uint16_t, false>(decoder, how, f32_of_bf16);
      case Type::f16x2:
        return with_flag(ftz, [&](auto flushes) {
          return make_comparison<std::uint32_t, true>(decoder, how, from_f16<flushes>);
        });
      case Type::bf16x2:
        return make_comparison<std::uint32_t, true>(decoder, how, f32_of_bf16);
      default:
        decoder.fail(fmt::format("type .{} cannot be compared", to_string(type)));
    }
  }
  const Operator how = take_integer_operator(decoder, type);
  switch (type) {
    case Type::b16:
    case Type::u16:
      return make_comparison<std::uint16_t, false>(decoder, how, itself);
    case Type::s16:
      return make_comparison<std::int16_t, false>(decoder, how, itself);
    case Type::b32:
    case Type::u32:
      return make_comparison<std::uint32_t, false>(decoder, how, itself);
    case Type::s32:
      return make_comparison<std::int32_t, false>(decoder, how, itself);
    case Type::b64:
    case Type::u64:
      return make_comparison<std::uint64_t, false>(decoder, how, itself);
    case Type::s64:
      return make_comparison<std::int64_t, false>(decoder, how, itself);
    default:
      decoder.fail(fmt::format("type .{} cannot be compared", to_string(type)));
  }
}

// Takes the boolean operator and the predicate after it.
void take_combine(Decoder& decoder, Outcome& outcome) {
  outcome.combine = decoder.take_any_of({"and", "or", "xor"});
  decoder.expect_count(outcome.combine.empty() ? 3 : 4);
  if (!outcome.combine.empty()) outcome.other = decoder.predicate_source(decoder.operand(3));
}

Result decode_setp(Decoder& decoder) {
  Outcome outcome;
  take_combine(decoder, outcome);
  const bool ftz = decoder.take("ftz");
  std::unique_ptr<Comparison> comparison = take_comparison(decoder, decoder.take_type(), ftz);
  const ptx::Operand& results = decoder.operand(0);
  if (results.kind == ptx::Operand::Kind::pair) {
    outcome.p = decoder.predicate_destination(results.elements.at(0));
    outcome.q = decoder.predicate_destination(results.elements.at(1));
  } else {
    outcome.p = decoder.predicate_destination(results);
  }
  comparison->outcome = outcome;
  return comparison;
}

Result decode_set(Decoder& decoder) {
  Outcome outcome;
  take_combine(decoder, outcome);
  const bool ftz = decoder.take("ftz");
  const Type to = decoder.take_type();
  const Type from = decoder.take_type();
  const bool is_pair = from == Type::f16x2 || from == Type::bf16x2;
  outcome.is_value = true;
  switch (to) {
    case Type::u16:
    case Type::s16:
      outcome.true_value = 0xffff;
      break;
    case Type::u32:
    case Type::s32:
      outcome.true_value = is_pair ? 0xffff : 0xffffffff;
      break;
    case Type::f32:
      outcome.true_value = 0x3f800000;
      break;
    case Type::f16:
    case Type::f16x2:
      outcome.true_value = 0x3c00;
      break;
    case Type::bf16:
    case Type::bf16x2:
      outcome.true_value = 0x3f80;
      break;
    default:
      decoder.fail(fmt::format("gives no .{}", to_string(to)));
  }
  const bool writes_pair = to == Type::f16x2 || to == Type::bf16x2;
  if (is_pair ? bits(to) != 32 || to == Type::f32 : writes_pair) {
    decoder.fail(fmt::format("does not compare .{} to give .{}", to_string(from), to_string(to)));
  }
  std::unique_ptr<Comparison> comparison = take_comparison(decoder, from, ftz);
  outcome.to = decoder.destination(0, to);
  comparison->outcome = outcome;
  return comparison;
}

template <class U>
struct Select final : Operation {
  Slot to = 0, if_true = 0, if_false = 0;
  Decoder::PredicateSource by{};

  Flow execute(Warp& warp) const override {
    const auto loop = [](std::uint32_t mask, std::uint32_t exec, U* out, const U* a, const U* b) {
      std::array<U, warp_lanes> results;
      for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
        results[lane] = (mask & lane_bits[lane]) != 0 ? a[lane] : b[lane];
      }
      copy_lanes(exec, out, results.data());
    };
    vectorized(loop, warp.predicate(by.predicate) ^ (by.negated ? all_lanes : 0), warp.exec,
               lanes<U>(warp, to), lanes<U>(warp, if_true), lanes<U>(warp, if_false));
    return Flow::next;
  }
};

template <class U>
Result make_select(Decoder& decoder, Type type) {
  auto select = std::make_unique<Select<U>>();
  select->to = decoder.destination(0, type);
  select->if_true = decoder.source(1, type);
  select->if_false = decoder.source(2, type);
  select->by = decoder.predicate_source(decoder.operand(3));
  return select;
}

Result decode_selp(Decoder& decoder) {
  const Type type = decoder.take_type();
  decoder.expect_count(4);
  if (bits(type) == 64) return make_select<std::uint64_t>(decoder, type);
  if (bits(type) == 32 || bits(type) == 16) return make_select<std::uint32_t>(decoder, type);
  decoder.fail(fmt::format("type .{} cannot be selected", to_string(type)));
}

template <class U>
Result make_slct(Decoder& decoder, Type type, Type by, bool ftz) {
  decoder.expect_count(4);
  const Slot to = decoder.destination(0, type);
  const Slot a = decoder.source(1, type), b = decoder.source(2, type), c = decoder.source(3, by);
  if (by == Type::s32) {
    return lanewise<U(U, U, std::int32_t)>({to, {a, b, c}},
                                           [](U x, U y, std::int32_t sign) { return sign >= 0 ? x : y; });
  }
  return lanewise<U(U, U, float)>(
      {to, {a, b, c}}, [ftz](U x, U y, float sign) { return (ftz ? flush(sign) : sign) >= 0 ? x : y; });
}

Result decode_slct(Decoder& decoder) {
  const bool ftz = decoder.take("ftz");
  const Type type = decoder.take_type();
  const Type by = decoder.take_type();
  if (by != Type::s32 && by != Type::f32) decoder.fail("the sign is taken from an .s32 or .f32");
  if (ftz && by != Type::f32) decoder.fail(".ftz is defined with .f32");
  if (bits(type) == 64) return make_slct<std::uint64_t>(decoder, type, by, ftz);
  if (bits(type) == 32 || bits(type) == 16) return make_slct<std::uint32_t>(decoder, type, by, ftz);
  decoder.fail(fmt::format("type .{} cannot be selected", to_string(type)));
}

template <class T>
struct TestProperty final : Operation {
  int category = 0;  // of std::fpclassify; −1: not NaN, −2: finite, −3: normal or zero
  Slot from = 0;
  Predicate to = 0;

  Flow execute(Warp& warp) const override {
    std::uint32_t mask = 0;
    for_each_lane(warp.exec, [&](int lane) {
      const T x = value_of<T>(lanes<T>(warp, from)[lane]);
      const bool result = category == -1   ? !std::isnan(x)
                          : category == -2 ? std::isfinite(x)
                          : category == -3 ? std::isnormal(x) || x == 0
                                           : std::fpclassify(x) == category;
      mask |= std::uint32_t{result} << lane;
    });
    warp.set_predicate(to, mask);
    return Flow::next;
  }
};

template <class T>
Result make_test(Decoder& decoder, int category) {
  auto test = std::make_unique<TestProperty<T>>();
  test->category = category;
  test->to = decoder.predicate_destination(decoder.operand(0));
  test->from = decoder.source(1, ptx_type<T>());
  return test;
}

Result decode_testp(Decoder& decoder) {
  static const std::unordered_map<std::string_view, int> categories = {
      {"finite", -2}, {"infinite", FP_INFINITE},   {"number", -1}, {"notanumber", FP_NAN},
      {"normal", -3}, {"subnormal", FP_SUBNORMAL},
  };
  const int category = categories.at(
      decoder.take_one_of({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
  const Type type = decoder.take_type();
  decoder.expect_count(2);
  if (type == Type::f32) return make_test<float>(decoder, category);
  if (type == Type::f64) return make_test<double>(decoder, category);
  decoder.fail(fmt::format("type .{} is neither .f32 nor .f64", to_string(type)));
}

}  // namespace

std::unique_ptr<const Operation> decode_compare(Decoder& decoder) {
  static const std::unordered_map<std::string_view, Result (*)(Decoder&)> by_opcode = {
      {"setp", decode_setp}, {"set", decode_set},     {"selp", decode_selp},
      {"slct", decode_slct}, {"testp", decode_testp},
  };
  const auto found = by_opcode.find(decoder.opcode());
  if (found == by_opcode.end()) return decode_predicate_logic(decoder);
  Result operation = found->second(decoder);
  decoder.set_class(InstructionClass::predicate);
  return operation;
}

}  // namespace jit::emulator
