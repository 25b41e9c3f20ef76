#include "generator/program/functor_source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/error.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/functors/mask_parts.h"
#include "generator/functors/meaning_source.h"
#include "generator/functors/row_range.h"
#include "generator/functors/score_mask.h"
#include "generator/program/emit.h"
#include "generator/program/parts_source.h"

namespace jit {
namespace {

// Hexadecimal, so that kernels have the caller's exact value.
std::string float_literal(float value) {
  if (std::isfinite(value)) return fmt::format("{:a}f", value);
  const unsigned bits = std::isnan(value) ? 0x7fffffff : std::bit_cast<unsigned>(value);
  return fmt::format("__builtin_bit_cast(float, {:#x})", bits);
}

// "int width = 128;"
std::string declaration(const std::string& name, const FunctorConstant& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return fmt::format("bool {} = {};", name, *flag);
  if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) {
    const bool fits = *number >= -2147483647 && *number <= 2147483647;
    return fits ? fmt::format("int {} = {};", name, *number)
                : fmt::format("long long {} = static_cast<long long>({}ull);", name,
                              static_cast<std::uint64_t>(*number));
  }
  // Constants beyond fp32's range become infinite, as in any fp32 arithmetic.
  const double wide = std::get<double>(value);
  const float real =
      std::abs(wide) > std::numeric_limits<float>::max()
          ? std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(wide > 0 ? 1 : -1))
          : static_cast<float>(wide);
  return fmt::format("float {} = {};  // {}", name, float_literal(real), real);
}

class Writer {
 public:
  Writer(const AttentionSpec& spec, ScoreNumbers numbers, unsigned gradient_slots)
      : tensors_(functor_tensors(spec)),
        has_derivatives_(numbers == ScoreNumbers::duals),
        gradient_slots_(gradient_slots),
        positions_(positions_type(spec)) {
    if (!positions_.empty()) include("problem/positioned_memory.cuh");
  }

  FunctorSource write(const AttentionSpec& spec) {
    FunctorSource source;
    source.mask_type = mask(node_of(spec.mask));
    source.score_type = score(node_of(spec.score));
    source.output_type = output(spec.output);
    source.places_type = positions_;
    if (spec.key_arrivals) {
      source.arrivals_type = fmt::format("KeyArrivals<{}>", slot("key_arrivals"));
      include("mainloop/key_arrivals.cuh");
    }
    if (has_lists(spec)) {
      include("problem/key_lists.cuh");
      source.lists_type =
          fmt::format("KeyLists<{}, {}, {}, {}, {}, {}>", slot("key_lists"), slot("key_counts"),
                      slot("key_members"), spec.list_queries, spec.list_block, spec.list_slots);
    }
    if (const ScoreMask* const kept = score_mask(spec.score))
      source.mask_type = scored_mask(source.mask_type, *kept);
    if (spec.mask != mask::none()) {
      include("checks/mask_agreement.cuh");
      source.assertions = "static_assert(is_whole<Config::Mask>, \"all of the mask compiles\");\n";
    }
    for (const std::string_view file : files_) source.definitions += fmt::format("#include \"{}\"\n", file);
    source.definitions += (files_.empty() ? "" : "\n") + definitions_;
    source.assertions += fmt::format(
        "static_assert(has_row_range<Config::Mask> == {}, "
        "\"host and device disagree on the mask's row_range\");\n"
        "static_assert(key_words<Config::Mask> == {}, "
        "\"host and device disagree on the mask's key words\");\n",
        has_row_range(spec.mask), key_words(spec.mask));
    return source;
  }

 private:
  int slot(std::string_view name) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const FunctorTensorSpec& t) { return t.name == name; });
    return static_cast<int>(found - tensors_.begin());
  }

  std::string mask(const MaskNode& node) {
    switch (node.combination) {
      case MaskOperator::conjunction:
        return combine("AndMask", node, &Writer::mask);
      case MaskOperator::disjunction:
        return combine("OrMask", node, &Writer::mask);
      case MaskOperator::negation:
        return fmt::format("NotMask<{}>", mask(*node.a));
      case MaskOperator::none:
        break;
    }
    const std::string type = leaf(node);
    return type == "NoMask" ? type : positioned("Mask", type);
  }

  // A mask that is no combination, in terms of positions if the spec has them.
  std::string leaf(const MaskNode& node) {
    if (node.text) return text_mask(*node.text, node.rows.get(), node.parts.get());
    const std::string positions = std::exchange(positions_, {});  // the outer mask calls the inner one
    const std::string within = node.a ? mask(*node.a) : "NoMask";
    positions_ = positions;
    return row_type(node.row->functor, node.arguments, within);
  }

  std::string score(const ScoreNode& node) {
    if (node.text) return positioned("Score", text_score(*node.text));
    if (!node.row) return combine("ThenScore", node, &Writer::score);
    const std::string type = row_type(node.row->functor, node.arguments);
    return node.row->reads_place ? positioned("Score", type) : type;
  }

  // The type that maps rows to positions; empty if rows are not mapped.
  std::string positions_type(const AttentionSpec& spec) const {
    if (!has_positions(spec)) return {};
    const auto table = [&](bool is_there, std::string_view name) {
      return is_there ? std::to_string(slot(name)) : "no_table";
    };
    return fmt::format("Positions<{}, {}, {}>", table(spec.q_positions, "q_positions"),
                       table(spec.k_positions, "k_positions"), slot("global_seqlens"));
  }

  std::string positioned(std::string_view kind, const std::string& type) const {
    return positions_.empty() ? type : fmt::format("Positioned{}<{}, {}>", kind, type, positions_);
  }

  // The row's device struct, with values for its template arguments.
  std::string row_type(const FunctorRow& row, const FunctorArguments& arguments,
                       const std::string& within = {}) {
    if (!row.device_file.empty()) include(row.device_file);
    const std::size_t open = row.device_type.find('<');
    std::string type(row.device_type.substr(0, open));
    if (open == std::string_view::npos) return type;
    std::string_view names = row.device_type.substr(open + 1);
    names.remove_suffix(1);
    for (char before = '<'; !names.empty(); before = ',') {
      const std::size_t end = std::min(names.find(", "), names.size());
      type += fmt::format("{}{}{}", before, before == ',' ? " " : "",
                          names.substr(0, end) == "within"
                              ? within
                              : template_argument(row, arguments, names.substr(0, end)));
      names.remove_prefix(std::min(end + 2, names.size()));
    }
    return type + ">";
  }

  std::string template_argument(const FunctorRow& row, const FunctorArguments& arguments,
                                std::string_view name) {
    if (name == "constants") return constants_struct(row, arguments);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (row.parameters[i].name != name) continue;
      if (const auto* alignment = std::get_if<Alignment>(&arguments[i]))
        return fmt::format("Alignment::{}", to_string(*alignment));
      if (const auto* dtype = std::get_if<DType>(&arguments[i]))
        return std::string(facts(*dtype).device_type);
      return std::to_string(std::get<int>(arguments[i]));
    }
    return std::to_string(slot(name));
  }

  std::string constants_struct(const FunctorRow& row, const FunctorArguments& arguments) {
    std::string name =
        fmt::format("{}Constants{}", row.device_type.substr(0, row.device_type.find('<')), structs_++);
    definitions_ += fmt::format("struct {} {{\n", name);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (const float* value = std::get_if<float>(&arguments[i]))
        definitions_ += fmt::format("  static constexpr {}\n",
                                    declaration(std::string(row.parameters[i].name), double{*value}));
    }
    definitions_ += "};\n\n";
    return name;
  }

  void include(std::string_view file) {
    if (std::find(files_.begin(), files_.end(), file) == files_.end()) files_.push_back(file);
  }

  // Sequenced explicitly: C++ leaves the order of arguments unspecified, and structs are numbered in order.
  template <class Node>
  std::string combine(const char* name, const Node& node, std::string (Writer::*write)(const Node&)) {
    const std::string a = (this->*write)(*node.a);
    const std::string b = (this->*write)(*node.b);
    return fmt::format("{}<{}, {}>", name, a, b);
  }

  // A member function around the user's lines, which keep the user's line numbers up to the brace where a
  // missing `return` is reported; later lines have those of the program.
  static std::string function(const std::string& signature, const FunctorText& text,
                              const std::string& before, const std::string& body, const char* part,
                              const std::string& locals) {
    const auto end = body.begin() + static_cast<std::ptrdiff_t>(body.find_last_not_of(" \t\r\n"));
    const std::string file = fmt::format("\"/jit-attention/{}{}\"", text.name, part);
    return fmt::format(
        "  __device__ {} const {{\n{}{}#line 1 {}\n{}\n#line {} {}\n  }}\n#line 1 "
        "\"/jit-attention/{}\"\n",
        signature, before, locals, file, body, 1 + std::count(body.begin(), end, '\n'), file,
        generated_lines);
  }

  // Constants and tensors of a text as local variables, since members could not have some of their names.
  // `slots` are those of tensors that record reads.
  std::string locals(const FunctorText& text, unsigned slots = 0) const {
    std::string lines;
    for (const auto& [name, value] : text.constants)
      lines += fmt::format("    [[maybe_unused]] constexpr {}\n", declaration(name, value));
    for (std::size_t i = 0; i < text.tensors.size(); ++i) {
      const std::string& name = text.tensors[i].name;
      lines += (slots >> slot(name) & 1) != 0
                   ? fmt::format(
                         "    [[maybe_unused]] const auto {} = tensor_reader<{}>(this->tensor{}, "
                         "reads__);\n",
                         name, slot(name), i)
                   : fmt::format("    [[maybe_unused]] const auto* const {} = this->tensor{};\n", name, i);
    }
    return lines;
  }

  std::string text_mask(const FunctorText& text, const TextRowRange* rows, const MaskParts* parts) {
    std::string functions;
    if (!text.classify.empty()) {
      functions = function("TileClass classify(const ScoreTile& tile)", text,
                           "    [[maybe_unused]] const int q_begin = tile.q_begin, q_end = tile.q_end;\n"
                           "    [[maybe_unused]] const int k_begin = tile.k_begin, k_end = tile.k_end;\n",
                           text.classify, ".classify", locals(text));
    }
    functions += function("bool keep(int q, int k)", text, "", text.body, "", locals(text));
    constexpr std::size_t most_in_copies = 2048;
    if (text.body.size() > most_in_copies) functions += "  static constexpr bool is_long = true;\n";
    if (parts != nullptr) {
      functions += parts_source(*parts);
      include("problem/text_parts.cuh");
    }
    const std::variant<TextMeaning, NotFollowed> meaning = mask_meaning(text);
    if (!text.classify.empty() || std::holds_alternative<NotFollowed>(meaning))
      return text_struct(text, "Mask", "mask", "TextMask", functions);
    functions += kept_of(std::get<TextMeaning>(meaning));
    include("problem/interval_mask.cuh");
    if (rows == nullptr) return text_struct(text, "Mask", "mask", "IntervalMask<{}>", functions);
    functions += fmt::format("  static constexpr bool rows_begin_first = {};\n", !rows->begin);
    functions += range_source(*rows, "row");
    include("problem/row_range_mask.cuh");
    return text_struct(text, "Mask", "mask", "RowRangeMask<{}>", functions);
  }

  static std::string kept_of(const TextMeaning& kept) {
    return fmt::format(
        "  static constexpr bool reads_head = {};\n"
        "  __device__ Interval<bool> kept_of(const Interval<int>& q, const Interval<int>& k) "
        "const {{\n{}  }}\n",
        reads(kept, TextInput::h), interval_source(kept, "    "));
  }

  std::string scored_mask(const std::string& mask, const ScoreMask& kept) {
    define("ScoreMask", "IntervalMask<ScoreMask>", "What the score does not make -inf.", kept.tensors,
           kept_of(kept.kept));
    include("problem/interval_mask.cuh");
    include("problem/score_mask.cuh");
    return fmt::format("ScoredMask<{}, {}>", mask, positioned("Mask", "ScoreMask"));
  }

  // Not a template, so that errors are reported only at the user's line.
  std::string stated_derivative(const FunctorText& text) {
    std::string names = locals(text);
    for (const FunctorTensorSpec& tensor : text.tensors) {
      const std::string name = element_derivatives_name(tensor);
      if (name.empty()) continue;
      names += fmt::format("    [[maybe_unused]] const auto {} = element_derivatives<{}>(stated__);\n", name,
                           slot(tensor.name));
    }
    include("problem/own_derivatives.cuh");
    const std::string reads = gradient_slots_ == 0 ? "" : fmt::format("TensorReads<{}>", gradient_slots_);
    return function(fmt::format("float derivative(float score, int q, int k, "
                                "[[maybe_unused]] StatedDerivatives<{}>& stated__)",
                                reads),
                    text, "", text.derivative, ".derivative", names);
  }

  // The library's own parameters have names that are reserved.
  std::string text_score(const FunctorText& text) {
    const auto of_score = [&](const char* number, const char* name, const std::string& body,
                              const char* part) {
      return function(fmt::format("{0} {1}({0} score, int q, int k)", number, name), text, "", body, part,
                      locals(text));
    };
    std::string functions;
    if (!has_derivatives_) {
      functions = of_score("float", "apply", text.body, "");
    } else if (!text.derivative.empty()) {
      functions = of_score("float", "value", text.body, "") + stated_derivative(text) +
                  "  template <class... Reads>\n"
                  "  __device__ Dual apply(Dual score, int q, int k, Reads&... reads) const {\n"
                  "    StatedDerivatives<Reads...> stated(reads...);\n"
                  "    const float slope = derivative(score.value, q, k, stated);\n"
                  "    return stated.added_to(chain(score, value(score.value, q, k), slope));\n  }\n";
    } else if (gradient_slots_ == 0) {
      functions = of_score("Dual", "apply", text.body, "");
    } else {
      functions = function("Dual apply(Dual score, int q, int k, [[maybe_unused]] auto& reads__)", text, "",
                           text.body, "", locals(text, gradient_slots_));
    }
    return text_struct(text, "Score", "score", "TextScore", functions);
  }

  // A chain of texts, each applied to the previous one's result.
  std::string output(const OutputFunctor& output) {
    std::string type;
    for (const FunctorText& text : output.texts()) {
      const std::string next = text_output(text);
      type = type.empty() ? next : fmt::format("ThenOutput<{}, {}>", type, next);
    }
    return type;
  }

  // A text as a function of its inputs at an element of o. In gradients these are duals, and `reads__` says
  // which one has derivative 1.
  std::string text_output(const FunctorText& text) {
    include("problem/outputs.cuh");
    const std::string number = has_derivatives_ ? "Dual" : "float";
    std::string parameters, tensors, pointers;
    for (std::size_t i = 0; i < text.tensors.size(); ++i) {
      const FunctorTensorSpec& tensor = text.tensors[i];
      const std::string_view type = facts(tensor.dtype).device_type;
      if (tensor.access == TensorAccess::pointer) {
        pointers += fmt::format("    [[maybe_unused]] const auto* const {} = tensor_data<{}>(*this, {});\n",
                                tensor.name, type, slot(tensor.name));
        continue;
      }
      const bool is_element = tensor.access == TensorAccess::as_o;
      parameters += fmt::format(", [[maybe_unused]] {} {}", number, tensor.name);
      tensors +=
          fmt::format(", {}<{}, {}>", is_element ? "ElementTensor" : "RowTensor", type, slot(tensor.name));
    }
    std::string constants;
    for (const auto& [name, value] : text.constants)
      constants += fmt::format("    [[maybe_unused]] constexpr {}\n", declaration(name, value));
    const std::string functions = function(
        fmt::format("{} text([[maybe_unused]] {} value, [[maybe_unused]] int q, [[maybe_unused]] int d{})",
                    number, number, parameters),
        text, "", text.body, "", constants + pointers);
    const std::string name = fmt::format("UserOutput{}", structs_++);
    definitions_ += fmt::format(
        "/// The user's output \"{}\".\nstruct {}Text : TextOutput {{\n"
        "  __device__ explicit {}Text(const BlockContext& context) : TextOutput(context) {{}}\n{}}};\n"
        "using {} = OutputOf<{}Text{}>;\n\n",
        text.name, name, name, functions, name, name, tensors);
    return name;
  }

  // `base` may be a class template.
  std::string text_struct(const FunctorText& text, const char* kind, const char* what, const char* base,
                          const std::string& functions) {
    std::string name = fmt::format("User{}{}", kind, structs_++);
    define(name, fmt::format(fmt::runtime(base), name), fmt::format("The user's {} \"{}\".", what, text.name),
           text.tensors, functions);
    return name;
  }

  void define(const std::string& name, const std::string& base, const std::string& doc,
              const std::vector<FunctorTensorSpec>& tensors, const std::string& functions) {
    std::string members, initializers;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string_view type = facts(tensors[i].dtype).device_type;
      members += fmt::format("  const {}* tensor{};\n", type, i);
      initializers += fmt::format(", tensor{}(tensor_data<{}>(context, {}))", i, type, slot(tensors[i].name));
    }
    definitions_ += fmt::format(
        "/// {}\nstruct {} : {} {{\n{}  __device__ explicit {}(const BlockContext& "
        "context) : {}(context){} {{}}\n{}}};\n\n",
        doc, name, base, members, name, base, initializers, functions);
  }

  std::vector<FunctorTensorSpec> tensors_;
  bool has_derivatives_;  // of scores
  unsigned gradient_slots_;
  std::string positions_;  ///< empty: rows are not mapped to positions
  std::string definitions_;
  int structs_ = 0;
  std::vector<std::string_view> files_;  ///< files that definitions include
};

}  // namespace

FunctorSource functor_source(const AttentionSpec& spec, ScoreNumbers numbers, unsigned gradient_slots) {
  return Writer(spec, numbers, gradient_slots).write(spec);
}

}  // namespace jit
