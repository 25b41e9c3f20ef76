// Arithmetic with a carry (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").
#include "operations/arithmetic/integer.h"
#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

enum class Form { add, subtract, multiply_low_add, multiply_high_add };

template <class T>
struct CarryArithmetic final : Operation {
  Form form{};
  bool reads_carry = false, writes_carry = false;
  Slot to = 0;
  std::array<Slot, 3> from = {};  // a, b and c; sums have no a: their operands are b and c

  Flow execute(Warp& warp) const override {
    using U = std::make_unsigned_t<T>;
    Unit<T>* const results = lanes<T>(warp, to);
    for_each_lane(warp.exec, [&](int lane) {
      const auto value = [&](int i) { return lanes<T>(warp, from[static_cast<std::size_t>(i)])[lane]; };
      const std::uint32_t bit = 1u << lane;
      const U carry = reads_carry && (warp.carry & bit) != 0 ? 1 : 0;
      U x = static_cast<U>(value(1));
      const U y = static_cast<U>(value(2));
      if (form == Form::multiply_low_add || form == Form::multiply_high_add) {
        const T a = value_of<T>(value(0)), b = value_of<T>(value(1));
        x = static_cast<U>(form == Form::multiply_low_add ? multiply_low(a, b) : multiply_high(a, b));
      }
      const bool subtracts = form == Form::subtract;
      const U partial = subtracts ? x - y : x + y;
      const U result = subtracts ? partial - carry : partial + carry;
      const bool overflows = subtracts ? x < y || partial < carry : partial < x || result < partial;
      results[lane] = result;
      if (writes_carry) warp.carry = overflows ? warp.carry | bit : warp.carry & ~bit;
    });
    return Flow::next;
  }
};

template <class T>
std::unique_ptr<const Operation> make(Decoder& decoder, Form form, bool reads, bool writes) {
  auto operation = std::make_unique<CarryArithmetic<T>>();
  operation->form = form;
  operation->reads_carry = reads;
  operation->writes_carry = writes;
  const std::size_t sources = form == Form::add || form == Form::subtract ? 2 : 3;
  decoder.expect_count(1 + sources);
  operation->to = decoder.destination(0, ptx_type<T>());
  for (std::size_t i = 0; i < sources; ++i) {
    operation->from[3 - sources + i] = decoder.source(1 + i, ptx_type<T>());
  }
  return operation;
}

}  // namespace

std::unique_ptr<const Operation> decode_carry(Decoder& decoder) {
  const bool reads = decoder.opcode().back() == 'c';  // addc, subc, madc
  const bool writes = decoder.take("cc");
  if (!reads && !writes) return nullptr;
  Form form = decoder.opcode().starts_with("sub") ? Form::subtract : Form::add;
  if (decoder.opcode().starts_with("mad")) {
    form = decoder.take_one_of({"lo", "hi"}) == "hi" ? Form::multiply_high_add : Form::multiply_low_add;
  }
  return with_integer(decoder, decoder.take_type(), [&]<class T>(T) -> std::unique_ptr<const Operation> {
    if constexpr (sizeof(T) == 2) {
      decoder.fail("carries are defined for types of 32 and 64 bits");
    } else {
      return make<T>(decoder, form, reads, writes);
    }
  });
}

}  // namespace jit::emulator
