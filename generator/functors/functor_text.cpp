#include <jit/dtype.h>
#include <jit/functor_text.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/functors/functor_names.h"
#include "generator/functors/functor_node.h"
#include "generator/functors/tokens.h"

namespace jit {
namespace {

[[noreturn]] void refuse_text(std::string_view kind, const std::string& message) {
  throw Error(ErrorCode::invalid_spec, "validate", fmt::format("spec.{}", kind), message);
}

bool is_identifier(std::string_view text) {
  return !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_') &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_'); });
}

// Words that make a kernel depend on the time, place or files of its compile, beyond its key.
constexpr std::array<std::string_view, 4> forbidden_words = {"__TIME__", "__DATE__", "__TIMESTAMP__",
                                                             "__FILE__"};

/// A body with continued lines joined, as the compiler reads it.
struct JoinedBody {
  std::string text;
  std::vector<int> lines;  // of each character, in the user's numbering
};

JoinedBody join_lines(std::string_view body) {
  JoinedBody joined;
  int line = 1;
  for (std::size_t at = 0; at < body.size(); ++at) {
    const std::string_view rest = body.substr(at);
    if (rest.starts_with("\\\n") || rest.starts_with("\\\r\n")) {
      at += rest[1] == '\r' ? 2 : 1;
      ++line;
      continue;
    }
    joined.text += body[at];
    joined.lines.push_back(line);
    if (body[at] == '\n') ++line;
  }
  return joined;
}

// Rejects '#': only the preprocessor uses it, and an #include would read files that are not in keys.
void check_directives(std::string_view kind, const FunctorText& text, const JoinedBody& body) {
  constexpr std::string_view unroll = "#pragma unroll";
  for (std::size_t at = 0; at < body.text.size(); ++at) {
    if (body.text[at] != '#' && body.text.compare(at, 2, "%:") != 0) continue;
    if (body.text.compare(at, unroll.size(), unroll) == 0) continue;
    refuse_text(
        kind, fmt::format(
                  "text functor '{}' has a preprocessor directive in line {}: only '{}' is allowed; put what "
                  "the functor needs into its body, constants or tensors",
                  text.name, body.lines[at], unroll));
  }
}

// Matches the brackets of a body, skipping comments and literals.
class BracketReader {
 public:
  BracketReader(std::string_view kind, std::string_view name, const JoinedBody& body)
      : kind_(kind), name_(name), body_(body.text), lines_(body.lines) {}

  /// Throws if brackets are unbalanced: the compiler would report generated lines that the user has not
  /// written.
  void check() {
    for (; at_ < body_.size(); ++at_) {
      const char c = body_[at_];
      if (body_.substr(at_, 2) == "//") {
        at_ = std::min(body_.find('\n', at_), body_.size());
      } else if (body_.substr(at_, 2) == "/*") {
        const std::size_t end = body_.find("*/", at_ + 2);
        if (end == std::string_view::npos) fail(at_, "a comment is not closed");
        at_ = end + 1;
      } else if (c == '"' || (c == '\'' && !is_digit_separator())) {
        if (c == '"' && at_ > 0 && body_[at_ - 1] == 'R') fail(at_, "a raw string is not allowed");
        skip_literal(c);
      } else if (const std::string_view digraph = body_.substr(at_, 2); is_bracket_digraph(digraph)) {
        fail(at_, fmt::format("'{}' is not allowed; write the bracket that it stands for", digraph));
      } else if (c == '(' || c == '[' || c == '{') {
        open_.push_back(at_);
      } else if (c == ')' || c == ']' || c == '}') {
        if (open_.empty() || closer(body_[open_.back()]) != c)
          fail(at_, fmt::format("'{}' closes nothing", c));
        open_.pop_back();
      }
    }
    if (!open_.empty()) fail(open_.back(), fmt::format("'{}' is not closed", body_[open_.back()]));
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    refuse_text(kind_, fmt::format("{}:{}: {}", name_, lines_[at], what));
  }

  // "<:" may also begin "x<::y".
  bool is_bracket_digraph(std::string_view two) const {
    return two == "<%" || two == "%>" || two == ":>" || (two == "<:" && body_.substr(at_, 3) != "<::");
  }

  static char closer(char opener) { return opener == '(' ? ')' : opener == '[' ? ']' : '}'; }

  // As in 1'000'000: the token before it begins with a digit.
  bool is_digit_separator() const {
    std::size_t begin = at_;
    while (begin > 0 &&
           (std::isalnum(static_cast<unsigned char>(body_[begin - 1])) || body_[begin - 1] == '\''))
      --begin;
    return begin < at_ && std::isdigit(static_cast<unsigned char>(body_[begin]));
  }

  void skip_literal(char quote) {
    const std::size_t begin = at_++;
    for (; at_ < body_.size() && body_[at_] != quote; ++at_) {
      if (body_[at_] == '\n') fail(begin, "a literal is not closed");
      if (body_[at_] == '\\') ++at_;
    }
    if (at_ >= body_.size()) fail(begin, "a literal is not closed");
  }

  std::string_view kind_;
  std::string_view name_;
  std::string_view body_;
  const std::vector<int>& lines_;
  std::size_t at_ = 0;
  std::vector<std::size_t> open_;  // positions of unclosed brackets
};

// Limit of a body: compilers need stack and time for nested and long expressions.
constexpr std::size_t most_bytes = 64 * 1024;

// `part` is the body's name in compiler messages.
void check_body(std::string_view kind, const FunctorText& text, const std::string& part,
                const std::string& body) {
  if (body.size() > most_bytes) {
    refuse_text(kind, fmt::format("{} has {} bytes; a body has at most {}: put tables into tensors", part,
                                  body.size(), most_bytes));
  }
  const JoinedBody joined = join_lines(body);
  check_directives(kind, text, joined);
  for (const std::string_view word : forbidden_words) {
    if (joined.text.find(word) != std::string::npos) {
      refuse_text(
          kind, fmt::format("text functor '{}' uses {}, which would make the kernel depend on where and when "
                            "it is compiled",
                            text.name, word));
    }
  }
  if (body.find('\0') != std::string::npos) {
    refuse_text(kind, fmt::format("text functor '{}' contains a zero byte", text.name));
  }
  BracketReader(kind, part, joined).check();
  if (joined.text.ends_with('\\') || joined.text.ends_with("\\\r")) {
    refuse_text(
        kind, fmt::format("text functor '{}' ends with a backslash, which would join a generated line to it",
                          text.name));
  }
}

// Names that only output texts have.
bool is_of_outputs(std::string_view name) { return name == "value" || name == "d" || name == "sigmoid"; }

void check_access(std::string_view kind, const FunctorText& text, const FunctorTensorSpec& tensor) {
  if (tensor.access == TensorAccess::pointer) return;
  if (kind != "output")
    refuse_text(kind, fmt::format("'{}' in text functor '{}' is {}, which only outputs may read: a {} reads "
                                  "it through a pointer, as {}",
                                  tensor.name, text.name, kind_text(tensor), kind, to_string(tensor.dtype)));
  if (!facts(tensor.dtype).is_floating())
    refuse_text(kind,
                fmt::format("'{}' in text functor '{}' is {}; what is read at a place of o must be bf16, "
                            "fp16 or fp32",
                            tensor.name, text.name, kind_text(tensor)));
}

// The first comma inside the brackets that open at a token, else the last token. Requires: brackets are
// balanced.
std::size_t comma_within(const std::vector<Token>& tokens, std::size_t at) {
  constexpr std::string_view openers = "([{", closers = ")]}";
  int depth = 0;
  for (; tokens[at].kind != Token::Kind::end; ++at) {
    const std::string_view sign = tokens[at].text;
    if (sign == "," && depth == 1) return at;
    depth += openers.find(sign) != std::string_view::npos;
    depth -= closers.find(sign) != std::string_view::npos;
    if (depth == 0) return tokens.size() - 1;
  }
  return at;
}

// Rejects commas in brackets: C++'s comma operator would drop all indices but the last.
void check_indices(std::string_view kind, const FunctorText& text, const std::string& name) {
  const JoinedBody joined = join_lines(text.derivative);
  const std::vector<Token> tokens = tokens_of(joined.text);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (tokens[i].text != name || tokens[i + 1].text != "[") continue;
    const Token& comma = tokens[comma_within(tokens, i + 1)];
    if (comma.kind == Token::Kind::end) continue;
    refuse_text(
        kind,
        fmt::format("{}.derivative:{}: '{}' takes one index: tensors lie in dense rows", text.name,
                    joined.lines[static_cast<std::size_t>(comma.text.data() - joined.text.data())], name));
  }
}

}  // namespace

void validate_functor_text(const FunctorText& text, std::string_view kind) {
  const bool name_is_fine = !text.name.empty() && text.name.size() <= 64 &&
                            std::all_of(text.name.begin(), text.name.end(), [](unsigned char c) {
                              return c < 128 && (std::isalnum(c) || c == '_' || c == '-' || c == '.');
                            });
  if (!name_is_fine) {
    refuse_text(
        kind,
        fmt::format("the name of a text functor must be 1 to 64 letters, digits, '_', '-' or '.', not '{}'",
                    text.name));
  }
  if (text.body.find_first_not_of(" \t\r\n") == std::string::npos) {
    refuse_text(kind, fmt::format("text functor '{}' has an empty body; write at least a return statement",
                                  text.name));
  }
  if (kind != "mask" && !text.classify.empty()) {
    refuse_text(kind,
                fmt::format("text functor '{}' has a classify body, which only masks may have", text.name));
  }
  if (kind != "score" && !text.derivative.empty()) {
    refuse_text(kind,
                fmt::format("text functor '{}' has a derivative, which only scores may have", text.name));
  }
  check_body(kind, text, text.name, text.body);
  check_body(kind, text, text.name + ".classify", text.classify);
  check_body(kind, text, text.name + ".derivative", text.derivative);

  std::set<std::string_view> names;
  const auto check_name = [&](const std::string& name) {
    if (!is_identifier(name)) {
      refuse_text(kind, fmt::format("'{}' in text functor '{}' must be a C++ identifier", name, text.name));
    }
    std::string_view taken = taken_as(name);
    if (kind == "output" && is_of_outputs(name)) taken = "a name that texts of outputs already have";
    if (!taken.empty()) {
      refuse_text(kind, fmt::format("'{}' in text functor '{}' is {}; choose another name, such as '{}_'",
                                    name, text.name, taken, name));
    }
    if (!names.insert(name).second) {
      refuse_text(kind, fmt::format("'{}' occurs twice in text functor '{}'", name, text.name));
    }
  };
  for (const auto& [name, value] : text.constants) check_name(name);
  for (const FunctorTensorSpec& tensor : text.tensors) {
    check_name(tensor.name);
    check_access(kind, text, tensor);
    if (facts(tensor.dtype).is_fp8()) {
      refuse_text(
          kind, fmt::format(
                    "'{}' in text functor '{}' is {}, which texts cannot read; give it as fp16, which holds "
                    "the same numbers",
                    tensor.name, text.name, to_string(tensor.dtype)));
    }
  }
  if (text.derivative.empty()) return;
  for (const FunctorTensorSpec& tensor : text.tensors) {
    const std::string name = element_derivatives_name(tensor);
    if (names.contains(name)) {
      refuse_text(kind,
                  fmt::format("'{}' in text functor '{}' is what its derivative calls the derivatives with "
                              "respect to '{}'; choose another name, such as '{}_'",
                              name, text.name, tensor.name, name));
    }
    check_indices(kind, text, name);
  }
}

std::string element_derivatives_name(const FunctorTensorSpec& tensor) {
  return facts(tensor.dtype).is_floating() ? "d_" + tensor.name : std::string();
}

bool leaves_out(const FunctorText& text, const FunctorTensorSpec& tensor) {
  if (text.derivative.empty()) return false;
  const std::string derivative = join_lines(text.derivative).text;
  const std::string name = element_derivatives_name(tensor);
  const std::vector<Token> tokens = tokens_of(derivative);
  return std::none_of(tokens.begin(), tokens.end(), [&](const Token& token) {
    return token.kind == Token::Kind::word && token.text == name;
  });
}

void check_leaves(int leaves, std::string_view kind) {
  if (leaves <= most_leaves) return;
  refuse_text(
      kind,
      fmt::format("a {0} joins at most {1} {0}s, not {2}: each is computed for each score, and compiling "
                  "many takes minutes; write one text functor instead, which may loop over a tensor",
                  kind, most_leaves, leaves));
}

void add_functor_text(Digester& digester, const FunctorText& text) {
  digester.add(text.name).add(text.body).add(text.classify).add(text.derivative);
  digester.add(std::uint64_t{text.constants.size()});
  for (const auto& [name, value] : text.constants) {
    digester.add(name).add(std::uint64_t{value.index()});
    std::visit([&](auto v) { digester.add(std::as_bytes(std::span(&v, 1))); }, value);
  }
  digester.add(std::uint64_t{text.tensors.size()});
  for (const FunctorTensorSpec& tensor : text.tensors) digester.add(tensor.name).add(kind_text(tensor));
}

namespace {

constexpr std::array<std::pair<TensorAccess, std::string_view>, 3> accesses = {
    {{TensorAccess::pointer, ""}, {TensorAccess::as_o, "as_o"}, {TensorAccess::as_row, "as_row"}}};

}  // namespace

std::string kind_text(const FunctorTensorSpec& tensor) {
  std::string text(to_string(tensor.dtype));
  for (const auto& [access, word] : accesses) {
    if (access == tensor.access && !word.empty()) text += fmt::format(" {}", word);
  }
  return text;
}

FunctorTensorSpec parse_functor_tensor(std::string name, std::string_view kind) {
  const std::size_t space = std::min(kind.find(' '), kind.size());
  const std::string_view given = kind.substr(std::min(space + 1, kind.size()));
  for (const auto& [access, word] : accesses) {
    if (word == given) return {std::move(name), parse_dtype(kind.substr(0, space)), access};
  }
  throw Error(ErrorCode::invalid_argument, "parse", name,
              fmt::format("'{}' is no kind of a tensor: behind the type may stand as_o or as_row", kind));
}

}  // namespace jit
