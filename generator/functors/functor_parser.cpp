// parse_mask and parse_score: a recursive-descent parser of the notation that to_string writes.
#include <charconv>
#include <limits>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/mask.h>
#include <jit/score.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/text_reader.h"

namespace jit {
namespace {

// Depth of the largest mask's text: a parenthesis and a "!" per leaf. More could overflow the stack.
constexpr int max_depth = 2 * most_leaves;

class Reader : public TextReader {
 public:
  using TextReader::TextReader;

  /// A row's arguments in parentheses; trailing ones with defaults may be omitted.
  FunctorArguments arguments(const FunctorRow& row) {
    FunctorArguments given = open_arguments(row);
    if (!given.empty()) expect(")");
    return given;
  }

  /// The arguments before the closing parenthesis, if any.
  FunctorArguments open_arguments(const FunctorRow& row) {
    FunctorArguments given;
    for (const FunctorParameter& parameter : row.parameters) {
      const std::string_view before = given.empty() ? "(" : ",";
      if (!parameter.default_value) {
        expect(before);
      } else if (!accept(before)) {
        break;
      }
      given.push_back(argument(parameter.kind));
    }
    return given;
  }

  /// The row of that name in a table; null for "text". Fails at other names.
  template <class Row>
  const Row* row(std::span<const Row> table) {
    const std::size_t begin = at_;
    const std::string name = word();
    if (name == "text") return nullptr;
    for (const Row& known : table) {
      if (known.functor.name == name || (!name.empty() && known.functor.other_name == name)) return &known;
    }
    at_ = begin;
    fail(fmt::format("unknown {} '{}'; known are {} and text(name)", what_, name, usages(table, true)));
  }

 private:
  FunctorArgument argument(ParameterKind kind) {
    switch (kind) {
      case ParameterKind::whole:
        return number<int>();
      case ParameterKind::real:
        return number<float>();
      case ParameterKind::alignment:
        return alignment();
      case ParameterKind::dtype:
        return parse_dtype(word());
    }
    return {};
  }

  template <class Number>
  Number number() {
    skip_space();
    Number value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("expected a number");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  Alignment alignment() {
    const std::size_t begin = at_;
    const std::string name = word();
    for (const Alignment alignment : {Alignment::top_left, Alignment::bottom_right}) {
      if (to_string(alignment) == name) return alignment;
    }
    at_ = begin;
    fail("expected top_left or bottom_right");
  }
};

class MaskReader {
 public:
  MaskReader(std::string_view text, const std::vector<FunctorText>& texts)
      : in_("mask", text), texts_(texts) {}

  Mask read() {
    Mask mask = disjunction(0);
    if (!in_.at_end()) in_.fail("expected '&&', '||' or the end");
    return mask;
  }

 private:
  Mask disjunction(int depth) {
    Mask mask = conjunction(depth);
    while (in_.accept("||") || in_.accept("|")) mask = mask || conjunction(depth);
    return mask;
  }

  Mask conjunction(int depth) {
    Mask mask = factor(depth);
    while (in_.accept("&&") || in_.accept("&")) mask = mask && factor(depth);
    return mask;
  }

  Mask factor(int depth) {
    if (depth >= max_depth) in_.fail(fmt::format("nested more than {} deep", max_depth));
    if (in_.accept("!") || in_.accept("~")) return !factor(depth + 1);
    if (in_.accept("(")) {
      Mask mask = disjunction(depth + 1);
      in_.expect(")");
      return mask;
    }
    return named(depth);
  }

  Mask named(int depth) {
    const MaskRow* row = in_.row(mask_table());
    if (row == nullptr) return mask::text(in_.find_text(texts_));
    if (!row->functor.has_within) return make_mask(*row, in_.arguments(row->functor));
    FunctorArguments arguments = in_.open_arguments(row->functor);
    const Mask within = in_.accept(",") ? disjunction(depth + 1) : Mask();
    in_.expect(")");
    return make_mask(*row, std::move(arguments), within);
  }

  Reader in_;
  const std::vector<FunctorText>& texts_;
};

Score read_score(Reader& in, const std::vector<FunctorText>& texts) {
  const ScoreRow* row = in.row(score_table());
  return row == nullptr ? score::text(in.find_text(texts)) : make_score(*row, in.arguments(row->functor));
}

}  // namespace

Mask parse_mask(std::string_view text, const std::vector<FunctorText>& texts) {
  for (const FunctorText& given : texts) validate_functor_text(given, "mask");
  return MaskReader(text, texts).read();
}

Score parse_score(std::string_view text, const std::vector<FunctorText>& texts) {
  for (const FunctorText& given : texts) validate_functor_text(given, "score");
  Reader in("score", text);
  Score score = read_score(in, texts);
  while (in.accept(",")) score = score.then(read_score(in, texts));
  if (!in.at_end()) in.fail("expected ',' or the end");
  return score;
}

}  // namespace jit
