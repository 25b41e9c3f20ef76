// Parses the body of a mask or score that consists of declarations, assignments, branches and expressions,
// like C++. Variables refer to their current nodes; a node selects between them where branches join.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "generator/functors/node_list.h"
#include "generator/functors/tokens.h"

namespace jit {
namespace {

constexpr std::size_t most_nodes = 200;  // kernels inline analyzed texts; longer ones spill
constexpr int max_depth = 200;           // nesting limit that protects the stack

// Binary operators with C++'s precedence, lowest first.
struct BinaryOperator {
  std::string_view sign;
  int level;
  TextOperator op;
  bool swaps = false;  // a > b is b < a
};
constexpr BinaryOperator binary_operators[] = {{"||", 1, TextOperator::logical_or},
                                               {"&&", 2, TextOperator::logical_and},
                                               {"|", 3, TextOperator::bit_or},
                                               {"^", 4, TextOperator::bit_xor},
                                               {"&", 5, TextOperator::bit_and},
                                               {"==", 6, TextOperator::equal},
                                               {"!=", 6, TextOperator::not_equal},
                                               {"<", 7, TextOperator::less},
                                               {"<=", 7, TextOperator::less_equal},
                                               {">", 7, TextOperator::less, true},
                                               {">=", 7, TextOperator::less_equal, true},
                                               {"<<", 8, TextOperator::shift_left},
                                               {">>", 8, TextOperator::shift_right},
                                               {"+", 9, TextOperator::add},
                                               {"-", 9, TextOperator::subtract},
                                               {"*", 10, TextOperator::multiply},
                                               {"/", 10, TextOperator::divide},
                                               {"%", 10, TextOperator::remainder}};

const std::map<std::string_view, std::string_view> words_for_signs = {
    {"and", "&&"},  {"or", "||"},     {"not", "!"},     {"bitand", "&"}, {"bitor", "|"},  {"xor", "^"},
    {"compl", "~"}, {"not_eq", "!="}, {"and_eq", "&="}, {"or_eq", "|="}, {"xor_eq", "^="}};

bool is_type_word(std::string_view word) {
  constexpr std::string_view words[] = {"const", "constexpr", "bool", "int",   "unsigned", "signed",
                                        "long",  "short",     "char", "float", "double",   "auto"};
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

struct Variable {
  std::string_view name;
  int node;
};

// The state of analysis at a point of the body.
struct State {
  std::vector<Variable> variables;  // the innermost last
  int returned;                     // condition: the text has returned before
};

// A return value with its condition, unless the text has returned before.
struct Return {
  int condition;
  int value;
};

// Real functions that templates/problem/dual.cuh also has; only their types are known.
bool is_real_function(std::string_view name) {
  constexpr std::string_view names[] = {"exp",  "exp2",  "log",   "log2",   "log1pf", "sqrt", "rsqrt",
                                        "tanh", "sin",   "cos",   "erf",    "pow",    "expf", "exp2f",
                                        "logf", "log2f", "sqrtf", "rsqrtf", "tanhf",  "sinf", "cosf",
                                        "erff", "powf",  "fmaf",  "ex2",    "lg2",    "rcp",  "tanh_approx"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}
// Whether a function is only for floats; others are for doubles, unless called with floats.
bool is_float_function(std::string_view name) {
  const bool is_own = name == "ex2" || name == "lg2" || name == "rcp" || name == "tanh_approx";
  return is_own || (name.ends_with('f') && name != "erf");
}

class BodyReader {
 public:
  BodyReader(const FunctorText& text, NumberType result)
      : text_(text), tokens_(tokens_of(text.body)), result_(result) {
    for (Token& token : tokens_) {
      const auto sign = words_for_signs.find(token.text);
      if (token.kind == Token::Kind::word && sign != words_for_signs.end())
        token = {Token::Kind::sign, sign->second, token.line};
    }
    state_ = {.variables = {{"q", nodes_.input(TextInput::q)}, {"k", nodes_.input(TextInput::k)}},
              .returned = nodes_.truth(false)};
    if (is_real(result)) state_.variables.push_back({"score", nodes_.score()});
    reached_ = nodes_.truth(true);
  }

  TextMeaning read() {
    while (here().kind != Token::Kind::end) statement();
    if (!nodes_.is_truth(state_.returned, true)) fail("there may be a path without a return");
    int result = returns_.back().value;
    for (std::size_t i = returns_.size() - 1; i-- > 0;)
      result = nodes_.choose(returns_[i].condition, returns_[i].value, result);
    TextMeaning meaning = nodes_.meaning(result);
    if (meaning.nodes.size() > most_nodes) fail("it is too long, and would take long to compile");
    return meaning;
  }

 private:
  // Tokens.

  const Token& here() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool sees(std::string_view sign) const { return here().kind == Token::Kind::sign && here().text == sign; }
  bool sees_word(std::string_view word) const {
    return here().kind == Token::Kind::word && here().text == word;
  }
  void next() {
    if (here().kind != Token::Kind::end) ++at_;
  }
  bool accept(std::string_view sign) {
    if (!sees(sign)) return false;
    next();
    return true;
  }
  bool accept_word(std::string_view word) {
    if (!sees_word(word)) return false;
    next();
    return true;
  }
  void expect(std::string_view sign) {
    if (!accept(sign)) fail_here();
  }
  [[noreturn]] void fail(std::string reason) const { throw NotFollowed{here().line, std::move(reason)}; }
  [[noreturn]] void fail_here() const {
    if (here().kind == Token::Kind::end) fail("the body ends too early");
    fail(fmt::format("'{}' is not followed here", here().text));
  }

  // Counts nesting while it is alive.
  struct Nesting {
    explicit Nesting(BodyReader& r) : reader(r) {
      if (++reader.depth_ > max_depth) reader.fail("too much is nested");
    }
    ~Nesting() { --reader.depth_; }
    BodyReader& reader;
  };

  // Runs `read` for code that is only reached under a condition.
  template <class Read>
  auto under(int condition, const Read& read) {
    const int before = reached_;
    reached_ = nodes_.binary(TextOperator::logical_and, reached_, condition);
    auto result = read();
    reached_ = before;
    return result;
  }

  // Statements.

  void statement() {
    const Nesting nesting(*this);
    if (accept(";")) return;
    if (accept("{")) {
      const std::size_t outer = state_.variables.size();
      while (!accept("}")) statement();
      state_.variables.resize(outer);
    } else if (accept_word("return")) {
      const int value = nodes_.convert(expression(), result_);
      expect(";");
      returns_.push_back({reached_, value});
      state_.returned = nodes_.truth(true);
    } else if (accept_word("if")) {
      branch();
    } else if (here().kind == Token::Kind::word && is_type_word(here().text) && ahead().text != "(") {
      declaration();
      expect(";");
    } else {
      assignment();
      expect(";");
    }
  }

  void branch() {
    accept_word("constexpr");
    expect("(");
    const int condition = nodes_.convert(expression(), NumberType::truth);
    expect(")");
    const State before = state_;
    const State then = side(condition, before);
    if (accept_word("else")) {
      state_ = met(condition, then, side(nodes_.logical_not(condition), before));
    } else {
      state_ = met(condition, then, before);
    }
  }

  // The state after a statement that is one branch of an if.
  State side(int condition, const State& before) {
    state_ = before;
    return under(condition, [&] {
      statement();
      state_.variables.resize(before.variables.size());
      return state_;
    });
  }

  State met(int condition, const State& a, const State& b) {
    State state = a;
    for (std::size_t i = 0; i < a.variables.size(); ++i)
      state.variables[i].node = nodes_.choose(condition, a.variables[i].node, b.variables[i].node);
    state.returned = nodes_.choose(condition, a.returned, b.returned);
    return state;
  }

  void declaration() {
    const std::optional<NumberType> type = type_name();
    do {
      if (here().kind != Token::Kind::word) fail_here();
      const std::string_view name = here().text;
      next();
      int node;
      if (accept("=")) {
        node = expression();
      } else if (sees("(") || sees("{")) {
        const std::string_view closer = sees("(") ? ")" : "}";
        next();
        node = expression();
        expect(closer);
      } else {
        fail(fmt::format("'{}' has no value at first", name));
      }
      state_.variables.push_back({name, type ? nodes_.convert(node, *type) : node});
    } while (accept(","));
  }

  // Nothing for auto.
  std::optional<NumberType> type_name() {
    int longs = 0;
    bool is_unsigned = false;
    std::string_view base;
    for (; here().kind == Token::Kind::word && is_type_word(here().text); next()) {
      const std::string_view word = here().text;
      if (word == "short" || word == "char") fail(fmt::format("the type '{}' is not followed", word));
      if (word == "long") ++longs;
      if (word == "unsigned") is_unsigned = true;
      if (word == "bool" || word == "float" || word == "double" || word == "auto") base = word;
    }
    if (longs > 0 && (is_unsigned || !base.empty())) fail("such a long type is not followed");
    if (base == "auto") return {};
    if (base == "bool") return NumberType::truth;
    if (base == "float") return NumberType::real32;
    if (base == "double") return NumberType::real64;
    if (longs > 0) return NumberType::whole64;
    return is_unsigned ? NumberType::natural32 : NumberType::whole32;
  }

  Variable* variable(std::string_view name) {
    const auto found = std::find_if(state_.variables.rbegin(), state_.variables.rend(),
                                    [&](const Variable& v) { return v.name == name; });
    return found == state_.variables.rend() ? nullptr : &*found;
  }

  void assignment() {
    if (accept("++")) return add_to(named_variable(), 1);
    if (accept("--")) return add_to(named_variable(), -1);
    if (here().kind == Token::Kind::word) {
      const std::string_view word = here().text;
      if (word == "for" || word == "while" || word == "do") fail("loops are not followed");
      if (word == "switch" || word == "goto") fail(fmt::format("'{}' is not followed", word));
    }
    const std::string_view name = named_variable();
    if (accept("++")) return add_to(name, 1);
    if (accept("--")) return add_to(name, -1);
    if (accept("=")) return assign(name, expression());
    for (const BinaryOperator& op : binary_operators) {
      if (op.level < 3 || op.level == 6 || op.level == 7) continue;
      if (accept(fmt::format("{}=", op.sign))) {
        const int right = expression();
        return assign(name, nodes_.binary(op.op, variable(name)->node, right));
      }
    }
    fail_here();
  }

  std::string_view named_variable() {
    const std::string_view name = here().text;
    if (here().kind != Token::Kind::word || !variable(name)) fail_here();
    next();
    return name;
  }
  void add_to(std::string_view name, int number) {
    const int one = nodes_.whole(NumberType::whole32, number);
    assign(name, nodes_.binary(TextOperator::add, variable(name)->node, one));
  }
  void assign(std::string_view name, int node) {
    Variable& to = *variable(name);
    to.node = nodes_.convert(node, nodes_.type(to.node));
  }

  // Expressions.

  int expression() {
    const Nesting nesting(*this);
    const int condition = binary(1);
    if (!accept("?")) return condition;
    const int truth = nodes_.convert(condition, NumberType::truth);
    const int a = under(truth, [&] { return expression(); });
    expect(":");
    const int b = under(nodes_.logical_not(truth), [&] { return expression(); });
    return nodes_.choose(truth, a, b);
  }

  const BinaryOperator* binary_operator(int level) const {
    for (const BinaryOperator& op : binary_operators)
      if (op.level == level && sees(op.sign)) return &op;
    return nullptr;
  }

  int binary(int level) {
    if (level > 10) return unary();
    int left = binary(level + 1);
    while (const BinaryOperator* const op = binary_operator(level)) {
      next();
      int condition = nodes_.truth(true);
      if (op->op == TextOperator::logical_and) condition = nodes_.convert(left, NumberType::truth);
      if (op->op == TextOperator::logical_or) condition = nodes_.logical_not(left);
      const int right = under(condition, [&] { return binary(level + 1); });
      const bool is_bitwise = level == 3 || level == 4 || level == 5 || level == 8 || op->sign == "%";
      if (is_bitwise && (is_real(nodes_.type(left)) || is_real(nodes_.type(right)))) fail_here();
      left = op->swaps ? nodes_.binary(op->op, right, left) : nodes_.binary(op->op, left, right);
    }
    return left;
  }

  int unary() {
    const Nesting nesting(*this);
    if (accept("!")) return nodes_.logical_not(unary());
    if (accept("-")) return nodes_.negative(unary());
    if (accept("+")) return nodes_.promoted(unary());
    if (accept("~")) {
      const int operand = unary();
      if (is_real(nodes_.type(operand))) fail_here();
      return nodes_.bit_not(operand);
    }
    if (sees("(") && ahead().kind == Token::Kind::word && is_type_word(ahead().text)) {
      next();
      const NumberType type = named_type();
      expect(")");
      return nodes_.convert(unary(), type);
    }
    return primary();
  }

  NumberType named_type() {
    const std::optional<NumberType> type = type_name();
    if (!type) fail("'auto' is not followed here");
    return *type;
  }

  int in_parentheses() {
    expect("(");
    const int node = expression();
    expect(")");
    return node;
  }

  int primary() {
    if (sees("(")) return in_parentheses();
    if (here().kind == Token::Kind::number) return number();
    if (here().kind != Token::Kind::word) fail_here();
    if (accept_word("true")) return nodes_.truth(true);
    if (accept_word("false")) return nodes_.truth(false);
    if (accept_word("static_cast")) {
      expect("<");
      const NumberType type = named_type();
      expect(">");
      return nodes_.convert(in_parentheses(), type);
    }
    if (is_type_word(here().text)) {
      const NumberType type = named_type();
      return nodes_.convert(in_parentheses(), type);
    }
    const std::string_view name = here().text;
    if (ahead().text == "(") {
      next();
      return call(name);
    }
    return named(name);
  }

  int named(std::string_view name) {
    const std::string key(name);
    if (const Variable* known = variable(name)) {
      next();
      return known->node;
    }
    if (const auto constant = text_.constants.find(key); constant != text_.constants.end()) {
      next();
      return constant_node(constant->second);
    }
    for (std::size_t i = 0; i < text_.tensors.size(); ++i) {
      if (text_.tensors[i].name != name) continue;
      next();
      expect("[");
      const int index = expression();
      expect("]");
      if (is_real(nodes_.type(index))) fail("an index must be a whole number");
      const int goes_on = nodes_.logical_not(state_.returned);
      const int reads = nodes_.binary(TextOperator::logical_and, reached_, goes_on);
      return nodes_.load(static_cast<int>(i), type_of(text_.tensors[i].dtype), index, reads);
    }
    if (name == "INFINITY") {
      next();
      return nodes_.real(NumberType::real32, std::numeric_limits<float>::infinity());
    }
    const auto input = std::find(text_inputs().begin(), text_inputs().end(), name);
    if (input == text_inputs().end()) fail(fmt::format("'{}' is not known", name));
    next();
    return nodes_.input(static_cast<TextInput>(input - text_inputs().begin()));
  }

  static NumberType type_of(DType dtype) {
    if (dtype == DType::int64) return NumberType::whole64;
    return dtype == DType::int32 || dtype == DType::uint8 ? NumberType::whole32 : NumberType::real32;
  }

  // As declared by functor_source.cpp.
  int constant_node(const FunctorConstant& value) {
    if (const bool* flag = std::get_if<bool>(&value)) return nodes_.truth(*flag);
    if (const std::int64_t* whole = std::get_if<std::int64_t>(&value)) {
      const bool fits = *whole >= -2147483647 && *whole <= 2147483647;
      return nodes_.whole(fits ? NumberType::whole32 : NumberType::whole64, *whole);
    }
    return nodes_.real(NumberType::real32, std::get<double>(value));
  }

  int call(std::string_view name) {
    std::vector<int> arguments;
    expect("(");
    do arguments.push_back(expression());
    while (accept(","));
    expect(")");
    const bool is_least = name == "min" || name == "minimum" || name == "fmin" || name == "fminf";
    const bool is_most = name == "max" || name == "maximum" || name == "fmax" || name == "fmaxf";
    if ((is_least || is_most) && arguments.size() == 2) {
      const NumberType type = shared_type(name, arguments);
      return nodes_.call(is_least ? TextOperator::least : TextOperator::most, type,
                         nodes_.convert(arguments[0], type), nodes_.convert(arguments[1], type));
    }
    if ((name == "abs" || name == "fabs" || name == "fabsf") && arguments.size() == 1) {
      const NumberType type = shared_type(name, arguments);
      if (type != NumberType::natural32)
        return nodes_.call(TextOperator::magnitude, type, nodes_.convert(arguments[0], type));
    }
    if (name == "to_float" && arguments.size() == 1 && nodes_.type(arguments[0]) == NumberType::real32)
      return arguments[0];
    if (is_real_function(name)) {
      const bool is_float = std::all_of(arguments.begin(), arguments.end(), [&](int argument) {
        return nodes_.type(argument) == NumberType::real32;
      });
      return nodes_.unknown(is_float || is_float_function(name) ? NumberType::real32 : NumberType::real64);
    }
    fail(fmt::format("calls of '{}' are not followed", name));
  }

  // The overload of a call, which is only analyzed if argument types agree.
  NumberType shared_type(std::string_view name, const std::vector<int>& arguments) {
    if (name == "fminf" || name == "fmaxf" || name == "fabsf") return NumberType::real32;
    const NumberType type = std::max(nodes_.type(arguments[0]), NumberType::whole32);
    const bool is_shared = std::all_of(arguments.begin(), arguments.end(), [&](int argument) {
      return std::max(nodes_.type(argument), NumberType::whole32) == type;
    });
    const bool wants_real = name == "fmin" || name == "fmax" || name == "fabs";
    if (!is_shared || (wants_real && !is_real(type)))
      fail(fmt::format("calls of '{}' with numbers of different types are not followed", name));
    return type;
  }

  int number() {
    std::string digits;
    for (const char c : here().text)
      if (c != '\'') digits += c;
    const bool is_hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
    const bool has_point = digits.find_first_of(is_hexadecimal ? ".pP" : ".eE") != std::string::npos;
    const int node = has_point ? real_number(digits) : whole_number(digits);
    next();
    return node;
  }

  int real_number(const std::string& digits) {
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    const std::string_view suffix = end;
    if (suffix == "f" || suffix == "F")
      return nodes_.real(NumberType::real32, std::strtof(digits.c_str(), nullptr));
    if (!suffix.empty()) fail_here();
    return nodes_.real(NumberType::real64, value);
  }

  // Decimal literals without a suffix are never unsigned; others become unsigned before they become longer.
  int whole_number(const std::string& digits) {
    const bool is_binary = digits.starts_with("0b") || digits.starts_with("0B");
    char* end = nullptr;
    errno = 0;
    const unsigned long long number =
        is_binary ? std::strtoull(digits.c_str() + 2, &end, 2) : std::strtoull(digits.c_str(), &end, 0);
    std::string suffix(end);
    std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const bool is_long = suffix == "l" || suffix == "ll", is_unsigned = suffix == "u";
    if (errno != 0 || !(suffix.empty() || is_long || is_unsigned) ||
        number > static_cast<unsigned long long>(std::numeric_limits<std::int64_t>::max()))
      fail_here();
    const auto value = static_cast<std::int64_t>(number);
    if (is_long) return nodes_.whole(NumberType::whole64, value);
    if (!is_unsigned && value <= std::numeric_limits<std::int32_t>::max())
      return nodes_.whole(NumberType::whole32, value);
    const bool may_be_unsigned = is_unsigned || digits[0] == '0';
    if (may_be_unsigned && value <= std::numeric_limits<std::uint32_t>::max())
      return nodes_.whole(NumberType::natural32, value);
    if (is_unsigned) fail_here();
    return nodes_.whole(NumberType::whole64, value);
  }

  const FunctorText& text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  NumberType result_;
  NodeList nodes_;
  State state_;
  int reached_;  // condition under which the current code is reached, unless the text has returned
  std::vector<Return> returns_;
};

std::variant<TextMeaning, NotFollowed> meaning_of(const FunctorText& text, NumberType result) {
  try {
    return BodyReader(text, result).read();
  } catch (const NotFollowed& reason) {
    return reason;
  }
}

}  // namespace

std::variant<TextMeaning, NotFollowed> mask_meaning(const FunctorText& text) {
  return meaning_of(text, NumberType::truth);
}
std::variant<TextMeaning, NotFollowed> score_meaning(const FunctorText& text) {
  return meaning_of(text, NumberType::real32);
}

}  // namespace jit
