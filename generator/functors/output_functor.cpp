#include <jit/output_functor.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/error.h>

#include "cache/digest.h"
#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/functors/text_reader.h"

namespace jit {

struct OutputNode {
  std::vector<FunctorText> texts;  ///< in order of application
  std::vector<std::string> shown;  ///< their parseable text
  std::uint64_t hash = 0;
};

namespace {

// Limit of a chain: each text is inlined for each element of a thread.
constexpr std::size_t most_in_chain = 8;

/// A built-in output functor with its one tensor.
struct OutputRow {
  std::string_view name;
  std::string_view tensor;
  TensorAccess access;
  DType default_dtype;
  std::string_view body;
};
constexpr std::array output_table = {
    OutputRow{"sigmoid_gate", "gate", TensorAccess::as_o, DType::bf16, "return value * sigmoid(gate);"},
    OutputRow{"row_gate", "gate", TensorAccess::as_row, DType::bf16, "return value * sigmoid(gate);"},
    OutputRow{"scale", "scale", TensorAccess::as_row, DType::fp32, "return value * scale;"},
    OutputRow{"residual", "residual", TensorAccess::as_o, DType::bf16, "return value + residual;"}};

std::uint64_t hash_of(const OutputNode& node) {
  Digester digester;
  for (const FunctorText& text : node.texts) add_functor_text(digester, text);
  return digester.finish().low;
}

void check_tensors(const OutputNode& node) {
  for (const FunctorText& text : node.texts) {
    for (const FunctorTensorSpec& tensor : text.tensors) {
      for (const FunctorText& other : node.texts) {
        for (const FunctorTensorSpec& its : other.tensors) {
          if (its.name == tensor.name && its != tensor)
            throw Error(ErrorCode::invalid_spec, "validate", "spec.output",
                        fmt::format("tensor '{}' is wanted as {} and as {}; give the two different names",
                                    tensor.name, kind_text(its), kind_text(tensor)));
        }
      }
    }
  }
}

}  // namespace

OutputFunctor make_output(std::string shown, FunctorText text) {
  OutputNode node{.texts = {std::move(text)}, .shown = {std::move(shown)}};
  node.hash = hash_of(node);
  return OutputFunctor(std::make_shared<const OutputNode>(std::move(node)));
}

namespace {

OutputFunctor built_in(const OutputRow& row, DType dtype) {
  if (!facts(dtype).is_floating())
    throw Error(ErrorCode::invalid_spec, "validate", "spec.output",
                fmt::format("{} reads bf16, fp16 or fp32, not {}", row.name, to_string(dtype)));
  std::string shown =
      dtype == row.default_dtype ? std::string(row.name) : fmt::format("{}({})", row.name, to_string(dtype));
  return make_output(std::move(shown), {.name = std::string(row.name),
                                        .body = std::string(row.body),
                                        .tensors = {{std::string(row.tensor), dtype, row.access}}});
}

OutputFunctor read_output(TextReader& in, const std::vector<FunctorText>& texts) {
  const std::string name = in.word();
  if (name == "none") return {};
  if (name == "text") return output::text(in.find_text(texts));
  for (const OutputRow& row : output_table) {
    if (row.name != name) continue;
    if (!in.accept("(")) return built_in(row, row.default_dtype);
    const DType dtype = parse_dtype(in.word());
    in.expect(")");
    return built_in(row, dtype);
  }
  in.fail(fmt::format("unknown output '{}'; known are {} and text(name)", name, output_usages()));
}

}  // namespace

OutputFunctor::OutputFunctor() {
  static const auto none = std::make_shared<const OutputNode>();
  node_ = none;
}

OutputFunctor OutputFunctor::then(const OutputFunctor& next) const {
  OutputNode both = *node_;
  both.texts.insert(both.texts.end(), next.node_->texts.begin(), next.node_->texts.end());
  both.shown.insert(both.shown.end(), next.node_->shown.begin(), next.node_->shown.end());
  if (both.texts.size() > most_in_chain)
    throw Error(ErrorCode::invalid_spec, "validate", "spec.output",
                fmt::format("joins {} output functors; at most {} fit: write one text instead",
                            both.texts.size(), most_in_chain));
  check_tensors(both);
  if (both.texts.empty()) return {};
  both.hash = hash_of(both);
  return OutputFunctor(std::make_shared<const OutputNode>(std::move(both)));
}

std::string OutputFunctor::to_string() const {
  std::string text;
  for (const std::string& one : node_->shown) text += (text.empty() ? "" : ", ") + one;
  return is_none() ? "none" : text;
}

std::vector<FunctorTensorSpec> OutputFunctor::tensors() const {
  std::vector<FunctorTensorSpec> tensors;
  for (const FunctorText& text : node_->texts) {
    for (const FunctorTensorSpec& tensor : text.tensors) {
      if (std::find(tensors.begin(), tensors.end(), tensor) == tensors.end()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

std::uint64_t OutputFunctor::hash() const { return node_->hash; }

bool OutputFunctor::is_none() const { return node_->texts.empty(); }

const std::vector<FunctorText>& OutputFunctor::texts() const { return node_->texts; }

bool OutputFunctor::operator==(const OutputFunctor& other) const { return node_->hash == other.node_->hash; }

namespace output {

OutputFunctor none() { return {}; }
OutputFunctor sigmoid_gate(DType dtype) { return built_in(output_table[0], dtype); }
OutputFunctor row_gate(DType dtype) { return built_in(output_table[1], dtype); }
OutputFunctor scale(DType dtype) { return built_in(output_table[2], dtype); }
OutputFunctor residual(DType dtype) { return built_in(output_table[3], dtype); }

OutputFunctor text(FunctorText text) {
  validate_functor_text(text, "output");
  std::string shown = fmt::format("text({})", text.name);
  return make_output(std::move(shown), std::move(text));
}

}  // namespace output

OutputFunctor parse_output(std::string_view text, const std::vector<FunctorText>& texts) {
  for (const FunctorText& given : texts) validate_functor_text(given, "output");
  TextReader in("output", text);
  OutputFunctor output = read_output(in, texts);
  while (in.accept(",")) output = output.then(read_output(in, texts));
  if (!in.at_end()) in.fail("expected ',' or the end");
  return output;
}

std::string output_usages() {
  std::string text = "none";
  for (const OutputRow& row : output_table) text += fmt::format(", {}[(dtype)]", row.name);
  return text;
}

}  // namespace jit
