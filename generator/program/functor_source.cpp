#include "generator/program/functor_source.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/problem/functor_node.h"
#include "generator/program/emit.h"

namespace jit {
namespace {

std::string_view device_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::fp32:
      return "float";
    case DType::int32:
      return "int";
    case DType::int64:
      return "long long";
    case DType::uint8:
      return "unsigned char";
  }
  return "";
}

// Hexadecimal, so that the constant in the kernel is the caller's to the last bit.
std::string float_literal(double value) {
  if (std::isnan(value)) return "__int_as_float(0x7fffffff)";
  if (std::isinf(value)) return value > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)";
  return fmt::format("{:a}f", value);
}

std::string constant_line(const std::string& name, const FunctorConstant& value) {
  if (const bool* flag = std::get_if<bool>(&value))
    return fmt::format("  static constexpr bool {} = {};\n", name, *flag);
  if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) {
    const bool fits = *number >= -2147483647 && *number <= 2147483647;
    return fits ? fmt::format("  static constexpr int {} = {};\n", name, *number)
                : fmt::format("  static constexpr long long {} = static_cast<long long>({}ull);\n", name,
                              static_cast<std::uint64_t>(*number));
  }
  // Beyond fp32's range a constant is infinite in the kernel, as it would be in any fp32 arithmetic.
  const double wide = std::get<double>(value);
  const float real =
      std::abs(wide) > std::numeric_limits<float>::max()
          ? std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(wide > 0 ? 1 : -1))
          : static_cast<float>(wide);
  if (!std::isfinite(real)) return fmt::format("  const float {} = {};\n", name, float_literal(real));
  return fmt::format("  static constexpr float {} = {};  // {}\n", name, float_literal(real), real);
}

class Writer {
 public:
  explicit Writer(const AttentionSpec& spec) : tensors_(functor_tensors(spec)) {}

  FunctorSource write(const AttentionSpec& spec) {
    FunctorSource source;
    source.mask_type = mask(spec.mask.node());
    source.score_type = score(spec.score.node());
    source.definitions = definitions_;
    return source;
  }

 private:
  int slot(std::string_view name) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const FunctorTensorSpec& t) { return t.name == name; });
    return static_cast<int>(found - tensors_.begin());
  }

  std::string mask(const MaskNode& node) {
    const char* alignment = node.alignment == Alignment::top_left ? "top_left" : "bottom_right";
    switch (node.kind) {
      case MaskKind::none:
        return "NoMask";
      case MaskKind::causal:
        return fmt::format("CausalMask<Alignment::{}>", alignment);
      case MaskKind::sliding_window:
        return fmt::format("SlidingWindowMask<{}, {}, Alignment::{}>", node.left, node.right, alignment);
      case MaskKind::prefix:
        return fmt::format("PrefixMask<{}>", node.length);
      case MaskKind::prefix_lengths:
        return fmt::format("PrefixLengthsMask<{}>", slot(prefix_lengths_tensor));
      case MaskKind::document:
        return fmt::format("DocumentMask<{}, {}>", slot(document_ids_q_tensor), slot(document_ids_kv_tensor));
      case MaskKind::text:
        return text_struct(*node.text, true);
      case MaskKind::conjunction:
        return combine("AndMask", node, &Writer::mask);
      case MaskKind::disjunction:
        return combine("OrMask", node, &Writer::mask);
      case MaskKind::negation:
        return fmt::format("NotMask<{}>", mask(*node.a));
    }
    return "";
  }

  std::string score(const ScoreNode& node) {
    switch (node.kind) {
      case ScoreKind::none:
        return "NoScore";
      case ScoreKind::softcap: {
        const std::string name = fmt::format("SoftcapConstants{}", structs_++);
        definitions_ +=
            fmt::format("struct {} {{\n", name) + constant_line("cap", double{node.cap}) + "};\n\n";
        return fmt::format("SoftcapScore<{}>", name);
      }
      case ScoreKind::alibi:
        return fmt::format("AlibiScore<{}>", slot(alibi_slopes_tensor));
      case ScoreKind::bias:
        return fmt::format("BiasScore<{}, {}>", slot(bias_tensor), device_type(node.bias_dtype));
      case ScoreKind::text:
        return text_struct(*node.text, false);
      case ScoreKind::chain:
        return combine("ThenScore", node, &Writer::score);
    }
    return "";
  }

  // Compilers differ in the order in which they evaluate arguments, and structs are numbered as they come.
  template <class Node>
  std::string combine(const char* name, const Node& node, std::string (Writer::*write)(const Node&)) {
    const std::string a = (this->*write)(*node.a);
    const std::string b = (this->*write)(*node.b);
    return fmt::format("{}<{}, {}>", name, a, b);
  }

  // The user's lines, numbered as the user numbers them; afterwards numbers go on as those of the program.
  static std::string with_lines(const FunctorText& text, const std::string& body, const char* part) {
    return fmt::format("#line 1 \"/jit-attention/{}{}\"\n{}\n#line 1 \"/jit-attention/generated\"\n",
                       text.name, part, body);
  }

  std::string text_struct(const FunctorText& text, bool is_mask) {
    const std::string name = fmt::format("{}{}", is_mask ? "UserMask" : "UserScore", structs_++);
    std::string constants, members, initializers;
    for (const auto& [constant, value] : text.constants) constants += constant_line(constant, value);
    for (const FunctorTensorSpec& tensor : text.tensors) {
      members += fmt::format("  const {}* {};\n", device_type(tensor.dtype), tensor.name);
      initializers += fmt::format(", {}(tensor_data<{}>(context, {}))", tensor.name,
                                  device_type(tensor.dtype), slot(tensor.name));
    }
    definitions_ += fmt::format(
        "/// The user's {} \"{}\".\nstruct {} {{\n{}  int b;\n  int h;\n  int heads_q;\n  int seqlen_q;\n  "
        "int "
        "seqlen_kv;\n{}  __device__ explicit {}(const BlockContext& context)\n      : b(context.batch), "
        "h(context.head), "
        "heads_q(context.heads_q), seqlen_q(context.seqlen_q), seqlen_kv(context.seqlen_kv){} {{}}\n",
        is_mask ? "mask" : "score", text.name, name, constants, members, name, initializers);
    if (is_mask) {
      definitions_ += "  __device__ KeyRange key_range(int, int) const { return {0, seqlen_kv}; }\n";
      if (text.classify.empty()) {
        definitions_ +=
            "  __device__ TileClass classify(const ScoreTile&) const { return TileClass::partial; }\n";
      } else {
        definitions_ +=
            "  __device__ TileClass classify(const ScoreTile& tile) const {\n"
            "    const int q_begin = tile.q_begin, q_end = tile.q_end, k_begin = tile.k_begin, k_end = "
            "tile.k_end;\n" +
            with_lines(text, text.classify, ".classify") + "  }\n";
      }
      definitions_ +=
          "  __device__ bool keep(int q, int k) const {\n" + with_lines(text, text.body, "") + "  }\n};\n\n";
    } else {
      definitions_ += "  static constexpr bool is_identity = false;\n";
      definitions_ += "  __device__ float apply(float score, int q, int k) const {\n" +
                      with_lines(text, text.body, "") + "  }\n};\n\n";
    }
    return name;
  }

  std::vector<FunctorTensorSpec> tensors_;
  std::string definitions_;
  int structs_ = 0;
};

}  // namespace

FunctorSource functor_source(const AttentionSpec& spec) { return Writer(spec).write(spec); }

}  // namespace jit
