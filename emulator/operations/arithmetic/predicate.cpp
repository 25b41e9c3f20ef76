// Logic on predicates (PTX ISA, "Logic and Shift Instructions", type .pred).
#include <unordered_map>

#include "machine/warp.h"
#include "operations/arithmetic/compare.h"

namespace jit::emulator {
namespace {

std::uint32_t read(Warp& warp, const Decoder::PredicateSource& source) {
  return warp.predicate(source.predicate) ^ (source.negated ? all_lanes : 0);
}

template <class F>
struct BinaryLogic final : Operation {
  Predicate to = 0;
  Decoder::PredicateSource a{}, b{};

  Flow execute(Warp& warp) const override {
    warp.set_predicate(to, F()(read(warp, a), read(warp, b)));
    return Flow::next;
  }
};

struct CopyPredicate final : Operation {
  Predicate to = 0;
  Decoder::PredicateSource from{};

  Flow execute(Warp& warp) const override {
    warp.set_predicate(to, read(warp, from));
    return Flow::next;
  }
};

template <class F>
std::unique_ptr<const Operation> binary(Decoder& decoder) {
  decoder.expect_count(3);
  auto operation = std::make_unique<BinaryLogic<F>>();
  operation->to = decoder.predicate_destination(decoder.operand(0));
  operation->a = decoder.predicate_source(decoder.operand(1));
  operation->b = decoder.predicate_source(decoder.operand(2));
  return operation;
}

template <bool negates>
std::unique_ptr<const Operation> copy(Decoder& decoder) {
  decoder.expect_count(2);
  auto operation = std::make_unique<CopyPredicate>();
  operation->to = decoder.predicate_destination(decoder.operand(0));
  operation->from = decoder.predicate_source(decoder.operand(1));
  operation->from.negated ^= negates;
  return operation;
}

}  // namespace

std::unique_ptr<const Operation> decode_predicate_logic(Decoder& decoder) {
  static const std::unordered_map<std::string_view, std::unique_ptr<const Operation> (*)(Decoder&)>
      by_opcode = {
          {"and", binary<std::bit_and<>>},
          {"or", binary<std::bit_or<>>},
          {"xor", binary<std::bit_xor<>>},
          {"not", copy<true>},
          {"mov", copy<false>},
      };
  const auto found = by_opcode.find(decoder.opcode());
  if (found == by_opcode.end() || !decoder.take("pred")) return nullptr;
  decoder.set_class(InstructionClass::predicate);
  return found->second(decoder);
}

}  // namespace jit::emulator
