#include "generator/program/parts_source.h"

#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "generator/functors/meaning_source.h"

namespace jit {
namespace {

using Kind = MaskPart::Kind;

std::string range_end(std::string_view name, const std::optional<TextMeaning>& key, std::string_view open) {
  return fmt::format("  __device__ Exact<long long> {}([[maybe_unused]] int q) const {{\n{}  }}\n", name,
                     key ? exact_source(*key, "    ") : fmt::format("    return {{{}}};\n", open));
}

// A kind of part: its function of MaskedScores, and the arguments that it passes on.
struct Question {
  std::string_view function;
  std::string_view parameters;
  std::string_view arguments;
};

Question question(Kind kind) {
  switch (kind) {
    case Kind::query:
      return {"of_queries", "int q", "q"};
    case Kind::key:
      return {"of_keys", "int k", "k"};
    case Kind::distance:
      return {"of_distances", "int q, int k", "q, k"};
    case Kind::block:
      return {"of_blocks", "int q, int k", "q, k"};
    case Kind::score:
      return {"of_scores", "int q, int k", "q, k"};
    default:
      throw std::logic_error("a part that nothing is asked about");
  }
}

std::string leaf_source(const MaskPart& part, std::string_view name) {
  if (part.kind == Kind::range) return range_source(part.range, name);
  const Question asks = question(part.kind);
  std::string parameters = fmt::format("[[maybe_unused]] {}", asks.parameters);
  if (const std::size_t comma = parameters.find(", "); comma != std::string::npos)
    parameters.insert(comma + 2, "[[maybe_unused]] ");
  return fmt::format("  __device__ Exact<bool> {}({}{}) const {{\n{}  }}\n", name, parameters,
                     part.asked >= 0 ? ", bool is_asked" : "", exact_source(part.meaning, "    "));
}

std::string bits_of(const MaskPart& part, std::string_view name) {
  switch (part.kind) {
    case Kind::both:
      return fmt::format("bits{} & bits{}", part.a, part.b);
    case Kind::either:
      return fmt::format("bits{} | bits{}", part.a, part.b);
    case Kind::inverse:
      return fmt::format("~bits{}", part.a);
    case Kind::range:
      return fmt::format(
          "scores.of_ranges([&](int q) {{ return existing_keys({0}_begin(q), {0}_end(q), seqlen_kv); }})",
          name);
    default:
      break;
  }
  const Question asks = question(part.kind);
  const bool reads = part.asked >= 0;
  return fmt::format("scores.{}({}[&]({}{}) {{ return {}({}{}).value; }})", asks.function,
                     reads ? fmt::format("bits{}, ", part.asked) : "", asks.parameters,
                     reads ? ", bool is_asked" : "", name, asks.arguments, reads ? ", is_asked" : "");
}

bool is_leaf(Kind kind) { return kind != Kind::both && kind != Kind::either && kind != Kind::inverse; }

}  // namespace

std::string range_source(const TextRowRange& range, std::string_view name) {
  return range_end(fmt::format("{}_begin", name), range.begin, "0") +
         range_end(fmt::format("{}_end", name), range.end, "seqlen_kv");
}

std::string parts_source(const MaskParts& parts) {
  std::string leaves, lines;
  for (std::size_t i = 0; i < parts.parts.size(); ++i) {
    const MaskPart& part = parts.parts[i];
    const std::string name = fmt::format("part{}", i);
    if (is_leaf(part.kind)) leaves += leaf_source(part, name);
    lines += fmt::format("    const auto bits{} = {};\n", i, bits_of(part, name));
  }
  return fmt::format(
      "{}  static constexpr bool has_parts = true;\n"
      "  template <class Scores>\n"
      "  __device__ auto kept_bits(const Scores& scores) const {{\n{}    return bits{};\n  }}\n",
      leaves, lines, parts.parts.size() - 1);
}

}  // namespace jit
