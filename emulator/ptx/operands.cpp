#include "ptx/operands.h"

#include <fmt/format.h>

#include "ptx/constants.h"

namespace jit::emulator::ptx {
namespace {

// The deepest form: a vector as the coordinate list of an address.
constexpr int deepest_operand = 4;

class OperandParser {
 public:
  explicit OperandParser(Tokens& tokens) : tokens_(tokens) {}

  Operand operand() {
    const int line = tokens_.line();
    if (++depth_ > deepest_operand) {
      throw PtxError(line, fmt::format("brackets nested deeper than {} levels", deepest_operand));
    }
    Operand result = single();
    if (tokens_.peek().is("|") && may_lead_pair(result)) {
      tokens_.take();
      Operand pair{.kind = Operand::Kind::pair};
      pair.elements.push_back(std::move(result));
      pair.elements.push_back(single());
      if (!may_lead_pair(pair.elements.back())) {
        throw PtxError(line, "the operand behind '|' must be a register or _");
      }
      result = std::move(pair);
    }
    --depth_;
    return result;
  }

 private:
  static bool may_lead_pair(const Operand& operand) {
    return (operand.kind == Operand::Kind::name && !operand.negated && operand.offset == 0) ||
           operand.kind == Operand::Kind::discard || operand.kind == Operand::Kind::vector;
  }

  static bool is_name(const Token& token) {
    return token.kind == Token::Kind::word && token.text != "WARP_SZ";
  }

  Operand single() {
    const Token first = tokens_.peek();
    if (is_name(first)) return named(false);
    if (tokens_.accept("{")) return vector();
    if (tokens_.accept("[")) return address();
    if (first.is("-") || first.is("!")) {
      tokens_.take();
      return is_name(tokens_.peek()) ? named(true) : literal(first.text);
    }
    if (begins_constant(first)) return literal({});
    tokens_.fail_expected("an operand");
  }

  Operand literal(std::string_view sign) {
    const Constant value = parse_constant(tokens_, sign);
    return {.kind = value.is_real ? Operand::Kind::real : Operand::Kind::integer,
            .bits = value.bits,
            .is_single = value.is_single};
  }

  std::string name() {
    std::string text(tokens_.expect_word("a name"));
    // A vector's component, such as that of %tid.x, is part of the name.
    if (tokens_.peek().kind == Token::Kind::dotted) {
      const std::string_view part = tokens_.peek().text;
      if (part == ".x" || part == ".y" || part == ".z" || part == ".w") text += tokens_.take().text;
    }
    return text;
  }

  Operand named(bool is_negated) {
    if (tokens_.peek().text == "_") {
      if (is_negated) tokens_.fail_expected("a register");
      tokens_.take();
      return {.kind = Operand::Kind::discard};
    }
    const int line = tokens_.line();
    Operand result{.kind = Operand::Kind::name, .name = name(), .negated = is_negated};
    if (tokens_.peek().is("+")) {
      if (result.name.front() == '%') {
        throw PtxError(line,
                       fmt::format("'+' after the register {}: only an address in brackets, or the name of "
                                   "a variable, can have an offset",
                                   result.name));
      }
      result.offset = offset();
    } else if (tokens_.peek().is("[")) {
      throw PtxError(line,
                     fmt::format("{}[…]: elements by index are not known to the emulator; write {} + the "
                                 "offset in bytes",
                                 result.name, result.name));
    }
    return result;
  }

  // The offset after a name: "+4", "+-4", or nothing.
  std::int64_t offset() {
    if (tokens_.peek().is("-")) tokens_.fail_expected("'+' before an offset, as in [%rd1+-4]");
    if (!tokens_.accept("+")) return 0;
    if (!begins_constant(tokens_.peek())) tokens_.fail_expected("a number as offset");
    return integer("an offset");
  }

  std::int64_t integer(std::string_view what) {
    const Constant value = parse_constant(tokens_);
    if (value.is_real) throw PtxError(value.line, fmt::format("{} must be a whole number", what));
    return static_cast<std::int64_t>(value.bits);
  }

  Operand address() {
    Operand result{.kind = Operand::Kind::address};
    if (begins_constant(tokens_.peek())) {
      result.bits = static_cast<std::uint64_t>(integer("an address"));
    } else {
      if (tokens_.peek().kind != Token::Kind::word || tokens_.peek().text == "_") {
        tokens_.fail_expected("a register, a variable or a number as address");
      }
      result.name = name();
      result.offset = offset();
    }
    while (tokens_.accept(",")) result.elements.push_back(operand());
    tokens_.expect("]", "after an address");
    return result;
  }

  Operand vector() {
    Operand result{.kind = Operand::Kind::vector};
    do {
      result.elements.push_back(operand());
    } while (tokens_.accept(","));
    tokens_.expect("}", "or ',' after an element of a vector");
    return result;
  }

  Tokens& tokens_;
  int depth_ = 0;
};

}  // namespace

Operand parse_operand(Tokens& tokens) { return OperandParser(tokens).operand(); }

Operand parse_call_list(Tokens& tokens) {
  Operand result{.kind = Operand::Kind::vector};
  tokens.expect("(", "before the list of a call");
  if (tokens.accept(")")) return result;
  do {
    result.elements.push_back(parse_operand(tokens));
  } while (tokens.accept(","));
  tokens.expect(")", "or ',' in the list of a call");
  return result;
}

}  // namespace jit::emulator::ptx
