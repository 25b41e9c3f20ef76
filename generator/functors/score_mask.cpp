#include "generator/functors/score_mask.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "generator/functors/functor_node.h"
#include "generator/functors/node_list.h"

namespace jit {
namespace {

// Certain facts about a real number toward one end of the number line: conditions, as nodes of a list. All
// are false for NaN.
struct Side {
  int infinite;  // it is the infinity at this end
  int bounded;   // it is a number other than this infinity
  int beyond;    // it is a number, 0 or toward the other end
};

// Both ends follow the same rules.
struct Certainty {
  Side low;
  Side high;
};

// Whether a factor and its inverse are normal in every type, so that rounding makes no number 0 or infinite.
bool is_ordinary(double factor) { return std::abs(factor) >= 0x1p-120 && std::abs(factor) <= 0x1p120; }

class ScoreDerivation {
 public:
  ScoreDerivation() {
    const Side finite{no_, yes_, no_};
    score_ = {finite, finite};
  }

  void pass(const ScoreNode& score) {
    if (score.a) {
      pass(*score.a);
      pass(*score.b);
    } else if (score.text) {
      pass(*score.text);
    } else {
      const int bounded = score.row->is_bounded ? number(score_) : no_;
      const Side finite{no_, bounded, no_};
      score_ = {finite, finite};
    }
  }

  // The mask of all texts passed so far.
  std::shared_ptr<const ScoreMask> mask() {
    if (nodes_.is_truth(score_.low.infinite, false)) return nullptr;
    return std::make_shared<const ScoreMask>(
        ScoreMask{nodes_.meaning(nodes_.logical_not(score_.low.infinite)), tensors_});
  }

 private:
  void pass(const FunctorText& text) {
    const std::variant<TextMeaning, NotFollowed> followed = score_meaning(text);
    const TextMeaning* const meaning = std::get_if<TextMeaning>(&followed);
    if (meaning == nullptr) {
      score_ = nothing();
      return;
    }
    source_ = meaning;
    place_.clear();
    certain_.clear();
    for (const TextNode& node : meaning->nodes) {
      place_.push_back(copy(node, text));
      certain_.push_back(is_real(node.type) ? certainty(node) : nothing());
    }
    score_ = certain_.back();
  }

  // Copies a node to the chain's list, in which scores are unknown.
  int copy(TextNode node, const FunctorText& text) {
    if (node.op == TextOperator::score) return nodes_.unknown(node.type);
    std::array<int, 3> operands = node.operands;
    for (int& operand : operands)
      if (operand >= 0) operand = place_[static_cast<std::size_t>(operand)];
    if (node.op == TextOperator::load) {
      const FunctorTensorSpec& tensor = text.tensors[static_cast<std::size_t>(node.which)];
      const auto known = std::find(tensors_.begin(), tensors_.end(), tensor);
      node.which = static_cast<int>(known - tensors_.begin());
      if (known == tensors_.end()) tensors_.push_back(tensor);
    }
    return nodes_.copy(node, operands);
  }

  Certainty certainty(const TextNode& node) {
    if (const std::optional<double> known = number_of(node)) return constant(*known);
    switch (node.op) {
      case TextOperator::score:
        return score_;
      case TextOperator::convert:
        return converted(node);
      case TextOperator::choose:
        return chosen(place_[static_cast<std::size_t>(node.operands[0])], operand(node, 1), operand(node, 2));
      case TextOperator::negative:
        return mirrored(operand(node, 0));
      case TextOperator::add:
        return sum(operand(node, 0), operand(node, 1));
      case TextOperator::subtract:
        return sum(operand(node, 0), mirrored(operand(node, 1)));
      case TextOperator::multiply:
        if (const auto factor = number_of(source(node, 1))) return product(operand(node, 0), *factor);
        if (const auto factor = number_of(source(node, 0))) return product(operand(node, 1), *factor);
        return nothing();
      case TextOperator::divide:
        if (const auto divisor = number_of(source(node, 1))) return product(operand(node, 0), 1 / *divisor);
        return nothing();
      case TextOperator::least:
        return least(operand(node, 0), operand(node, 1));
      case TextOperator::most:
        return mirrored(least(mirrored(operand(node, 0)), mirrored(operand(node, 1))));
      default:
        return nothing();
    }
  }

  const TextNode& source(const TextNode& node, std::size_t i) const {
    return source_->nodes[static_cast<std::size_t>(node.operands[i])];
  }
  const Certainty& operand(const TextNode& node, std::size_t i) const {
    return certain_[static_cast<std::size_t>(node.operands[i])];
  }

  // The constant real number of a node.
  std::optional<double> number_of(const TextNode& node) const {
    if (!is_real(node.type)) return {};
    const auto in_type = [&](double x) {
      return node.type == NumberType::real32 ? double{static_cast<float>(x)} : x;
    };
    if (node.op == TextOperator::constant) return in_type(std::get<double>(node.number));
    if (node.op != TextOperator::convert) return {};
    const TextNode& from = source(node, 0);
    if (is_real(from.type)) {
      const std::optional<double> known = number_of(from);
      return known ? std::optional(in_type(*known)) : std::nullopt;
    }
    if (from.op != TextOperator::constant) return {};
    return in_type(static_cast<double>(std::get<std::int64_t>(from.number)));
  }

  // Rules.

  int both(int a, int b) { return nodes_.binary(TextOperator::logical_and, a, b); }
  int either(int a, int b) { return a == b ? a : nodes_.binary(TextOperator::logical_or, a, b); }
  Certainty nothing() const { return {{no_, no_, no_}, {no_, no_, no_}}; }
  static Certainty mirrored(const Certainty& x) { return {x.high, x.low}; }
  int number(const Certainty& x) {
    return either(either(x.low.bounded, x.high.bounded), either(x.low.infinite, x.high.infinite));
  }

  Certainty constant(double x) {
    if (std::isnan(x)) return nothing();
    const auto truth = [&](bool value) { return value ? yes_ : no_; };
    const double infinity = std::numeric_limits<double>::infinity();
    return {{truth(x == -infinity), truth(x > -infinity), truth(x >= 0)},
            {truth(x == infinity), truth(x < infinity), truth(x <= 0)}};
  }

  // Integers are far from infinity; narrowing may make a real number infinite, but only with its own sign.
  Certainty converted(const TextNode& node) {
    if (!is_real(source(node, 0).type)) return {{no_, yes_, no_}, {no_, yes_, no_}};
    Certainty x = operand(node, 0);
    if (node.type == NumberType::real32) x.low.bounded = x.low.beyond, x.high.bounded = x.high.beyond;
    return x;
  }

  Side chosen(int condition, const Side& a, const Side& b) {
    return {nodes_.choose(condition, a.infinite, b.infinite), nodes_.choose(condition, a.bounded, b.bounded),
            nodes_.choose(condition, a.beyond, b.beyond)};
  }
  Certainty chosen(int condition, const Certainty& a, const Certainty& b) {
    return {chosen(condition, a.low, b.low), chosen(condition, a.high, b.high)};
  }

  // A sum of finite numbers may overflow to infinity, unless their signs differ. Opposite infinities make
  // NaN.
  Side sum(const Certainty& a, const Certainty& b, Side Certainty::*own, Side Certainty::*other) {
    return {either(both((a.*own).infinite, (b.*other).bounded), both((a.*other).bounded, (b.*own).infinite)),
            either(both((a.*own).bounded, (b.*own).beyond), both((a.*own).beyond, (b.*own).bounded)),
            both((a.*own).beyond, (b.*own).beyond)};
  }
  Certainty sum(const Certainty& a, const Certainty& b) {
    return {sum(a, b, &Certainty::low, &Certainty::high), sum(a, b, &Certainty::high, &Certainty::low)};
  }

  Certainty product(const Certainty& x, double factor) {
    if (!is_ordinary(factor)) return nothing();
    Certainty result = factor < 0 ? mirrored(x) : x;
    if (std::abs(factor) > 1)
      result.low.bounded = result.low.beyond, result.high.bounded = result.high.beyond;
    return result;
  }

  // Functions treat NaN differently.
  Certainty least(const Certainty& a, const Certainty& b) {
    const int numbers = both(number(a), number(b));
    return {{both(numbers, either(a.low.infinite, b.low.infinite)), both(a.low.bounded, b.low.bounded),
             both(a.low.beyond, b.low.beyond)},
            {both(a.high.infinite, b.high.infinite), both(numbers, either(a.high.bounded, b.high.bounded)),
             both(numbers, either(a.high.beyond, b.high.beyond))}};
  }

  NodeList nodes_;
  const int yes_ = nodes_.truth(true), no_ = nodes_.truth(false);
  std::vector<FunctorTensorSpec> tensors_;
  Certainty score_;  // the argument of the chain's next score
  // The current text, and for each of its nodes:
  const TextMeaning* source_ = nullptr;
  std::vector<int> place_;  // index in the list
  std::vector<Certainty> certain_;
};

}  // namespace

std::shared_ptr<const ScoreMask> score_mask(const ScoreNode& score) {
  ScoreDerivation derivation;
  derivation.pass(score);
  return derivation.mask();
}

const ScoreMask* score_mask(const Score& score) { return node_of(score).mask.get(); }

bool drops_keys(const AttentionSpec& spec) {
  return functor_count(spec.mask) > 0 || score_mask(spec.score) != nullptr;
}

}  // namespace jit
