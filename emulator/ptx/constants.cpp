#include "ptx/constants.h"

#include <array>
#include <bit>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace jit::emulator::ptx {
namespace {

constexpr int deepest_expression = 64;
constexpr std::uint64_t warp_size = 32;

struct BinaryOperator {
  std::string_view text;
  int precedence;
};
constexpr std::array<BinaryOperator, 18> binary_operators = {{{"||", 1},
                                                              {"&&", 2},
                                                              {"|", 3},
                                                              {"^", 4},
                                                              {"&", 5},
                                                              {"==", 6},
                                                              {"!=", 6},
                                                              {"<", 7},
                                                              {"<=", 7},
                                                              {">", 7},
                                                              {">=", 7},
                                                              {"<<", 8},
                                                              {">>", 8},
                                                              {"+", 9},
                                                              {"-", 9},
                                                              {"*", 10},
                                                              {"/", 10},
                                                              {"%", 10}}};

int precedence_of(const Token& token) {
  if (token.kind != Token::Kind::symbol) return 0;
  for (const BinaryOperator& each : binary_operators) {
    if (each.text == token.text) return each.precedence;
  }
  return 0;
}

class ConstantParser {
 public:
  explicit ConstantParser(Tokens& tokens) : tokens_(tokens) {}

  Constant expression(std::string_view unary = {}) {
    Constant condition = binary(unary.empty() ? operand() : apply(unary, operand()), 1);
    if (!tokens_.peek().is("?")) return condition;
    require_integer(condition, "?");
    tokens_.take();
    const Deeper deeper(*this);
    const Constant first = expression();
    tokens_.expect(":", "between the two choices of '?'");
    const Constant second = expression();
    return condition.bits != 0 ? first : second;
  }

 private:
  // Nesting depth of expressions; bounded, since each level takes stack.
  struct Deeper {
    explicit Deeper(ConstantParser& parser) : parser(parser) {
      if (++parser.depth_ > deepest_expression) {
        throw PtxError(parser.tokens_.line(),
                       fmt::format("a constant expression nested deeper than {} levels", deepest_expression));
      }
    }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ConstantParser& parser;
  };

  Constant binary(Constant left, int least) {
    for (;;) {
      const int precedence = precedence_of(tokens_.peek());
      if (precedence == 0 || precedence < least) return left;
      const std::string_view symbol = tokens_.take().text;
      left = apply(symbol, left, binary(operand(), precedence + 1));
    }
  }

  Constant operand() {
    const Token token = tokens_.peek();
    Constant value{.line = token.line};
    if (token.kind == Token::Kind::integer || token.kind == Token::Kind::real) {
      value.is_real = token.kind == Token::Kind::real;
      value.is_single = token.is_single;
      value.is_unsigned = token.is_unsigned;
      value.bits = token.bits;
    } else if (token.is_word("WARP_SZ")) {
      value.bits = warp_size;
    } else if (token.kind == Token::Kind::dotted) {
      value.is_real = true;
      value.bits = std::bit_cast<std::uint64_t>(fraction(token));
    } else if (token.kind == Token::Kind::symbol) {
      return compound(token);
    } else {
      tokens_.fail_expected("a number");
    }
    tokens_.take();
    return value;
  }

  // A sign or parentheses before an operand.
  Constant compound(const Token& token) {
    const Deeper deeper(*this);
    if (token.is("-") || token.is("+") || token.is("~") || token.is("!")) {
      tokens_.take();
      return apply(token.text, operand());
    }
    if (!token.is("(")) tokens_.fail_expected("a number");
    tokens_.take();
    const bool to_signed = tokens_.peek().is_dotted(".s64"), to_unsigned = tokens_.peek().is_dotted(".u64");
    if (to_signed || to_unsigned) {
      tokens_.take();
      tokens_.expect(")", "after the type of a cast");
      Constant value = operand();
      require_integer(value, "a cast");
      value.is_unsigned = to_unsigned;
      return value;
    }
    const Constant value = expression();
    tokens_.expect(")", "after a constant expression");
    return value;
  }

  double fraction(const Token& token) const {
    double value = 0;
    const char* const end = token.text.data() + token.text.size();
    const auto [parsed, error] = std::from_chars(token.text.data(), end, value);
    if (error != std::errc() || parsed != end) tokens_.fail_expected("a number");
    return value;
  }

  static void require_integer(const Constant& value, std::string_view symbol) {
    if (value.is_real) {
      throw PtxError(value.line,
                     fmt::format("'{}' on a real number: constant expressions are of whole numbers", symbol));
    }
  }

  static Constant apply(std::string_view symbol, Constant value) {
    if (value.is_real) {
      if (symbol != "-" && symbol != "+") require_integer(value, symbol);
      if (symbol == "-") value.bits ^= std::uint64_t{1} << (value.is_single ? 31 : 63);
      return value;
    }
    if (symbol == "-") value.bits = 0 - value.bits;
    if (symbol == "~") value.bits = ~value.bits;
    if (symbol == "!") value.bits = value.bits == 0 ? 1 : 0;
    return value;
  }

  static Constant apply(std::string_view symbol, const Constant& left, const Constant& right) {
    require_integer(left, symbol);
    require_integer(right, symbol);
    const bool is_unsigned = left.is_unsigned || right.is_unsigned;
    Constant result{.is_unsigned = is_unsigned, .line = left.line};
    const std::uint64_t a = left.bits, b = right.bits;
    const auto signed_a = static_cast<std::int64_t>(a), signed_b = static_cast<std::int64_t>(b);
    const bool is_less = is_unsigned ? a < b : signed_a < signed_b;
    const auto set_truth = [&result](bool truth) {
      result.bits = truth ? 1 : 0;
      result.is_unsigned = false;
    };
    if (symbol == "+") result.bits = a + b;
    if (symbol == "-") result.bits = a - b;
    if (symbol == "*") result.bits = a * b;
    if (symbol == "&") result.bits = a & b;
    if (symbol == "|") result.bits = a | b;
    if (symbol == "^") result.bits = a ^ b;
    if (symbol == "||") set_truth(a != 0 || b != 0);
    if (symbol == "&&") set_truth(a != 0 && b != 0);
    if (symbol == "==") set_truth(a == b);
    if (symbol == "!=") set_truth(a != b);
    if (symbol == "<") set_truth(is_less);
    if (symbol == ">=") set_truth(!is_less);
    if (symbol == "<=") set_truth(is_less || a == b);
    if (symbol == ">") set_truth(!is_less && a != b);
    if (symbol == "<<" || symbol == ">>") {
      result.is_unsigned = left.is_unsigned;
      result.bits = shift(symbol == "<<", left, right);
    }
    if (symbol == "/" || symbol == "%") result.bits = divide(symbol == "/", is_unsigned, left, right);
    return result;
  }

  static std::uint64_t shift(bool to_left, const Constant& left, const Constant& right) {
    if (right.bits > 63) {
      throw PtxError(right.line, fmt::format("a shift by {}; 0 to 63 are possible",
                                             static_cast<std::int64_t>(right.bits)));
    }
    if (to_left) return left.bits << right.bits;
    if (left.is_unsigned) return left.bits >> right.bits;
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(left.bits) >> right.bits);
  }

  static std::uint64_t divide(bool wants_quotient, bool is_unsigned, const Constant& left,
                              const Constant& right) {
    if (right.bits == 0) throw PtxError(right.line, "a constant expression divides by zero");
    if (is_unsigned) return wants_quotient ? left.bits / right.bits : left.bits % right.bits;
    const auto a = static_cast<std::int64_t>(left.bits), b = static_cast<std::int64_t>(right.bits);
    if (b == -1) return wants_quotient ? 0 - left.bits : 0;  // the least integer has no negation
    return static_cast<std::uint64_t>(wants_quotient ? a / b : a % b);
  }

  Tokens& tokens_;
  int depth_ = 0;
};

}  // namespace

bool begins_constant(const Token& token) {
  switch (token.kind) {
    case Token::Kind::integer:
    case Token::Kind::real:
      return true;
    case Token::Kind::word:
      return token.text == "WARP_SZ";
    case Token::Kind::dotted:
      return token.text[1] >= '0' && token.text[1] <= '9';
    case Token::Kind::symbol:
      return token.text == "-" || token.text == "+" || token.text == "~" || token.text == "!" ||
             token.text == "(";
    default:
      return false;
  }
}

Constant parse_constant(Tokens& tokens, std::string_view unary) {
  return ConstantParser(tokens).expression(unary);
}

}  // namespace jit::emulator::ptx
