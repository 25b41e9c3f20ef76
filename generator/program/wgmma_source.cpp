#include "generator/program/wgmma_source.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <jit/dtype.h>

namespace jit {
namespace {

// A vector of operands, "{%first, %first+1, …}".
std::string operands(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}%{}", i == 0 ? "" : ", ", first + i);
  return text + "}";
}

// Comma-separated items, on lines that begin with `indent`.
std::string lines(const std::vector<std::string>& items, std::string_view indent, std::size_t per_line) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i % per_line == 0) text += i == 0 ? "" : fmt::format("\n{}", indent);
    text += items[i] + (i + 1 == items.size() ? "" : i % per_line + 1 == per_line ? "," : ", ");
  }
  return text;
}

/// The input operands of an asm statement, numbered in order after the accumulators.
class Inputs {
 public:
  explicit Inputs(int accumulators) : first_(accumulators) {}

  /// Adds an operand and returns its number.
  int add(std::string_view constraint, std::string_view value) {
    items_.push_back(fmt::format("\"{}\"({})", constraint, value));
    return first_ + static_cast<int>(items_.size()) - 1;
  }
  const std::vector<std::string>& items() const { return items_; }

 private:
  int first_;
  std::vector<std::string> items_;
};

/// A tile in shared memory by its descriptors, which differ only in the low word, by constants.
class TileOperand {
 public:
  /// `name` is that of the tile's class and of the PTX register, `word` the low word of the first step,
  /// `advance` the member of the class that returns a step's offset.
  TileOperand(std::string_view name, std::string_view word, std::string_view advance, Inputs& inputs)
      : name_(name), advance_(advance), inputs_(inputs) {
    lower_ = inputs.add("r", word);
    upper_ = inputs.add("n", fmt::format("{}::upper_word()", name));
  }

  /// PTX that loads the descriptor of a step into the register, for columns of D from `column` on.
  std::string load(int step, int column) const {
    if (column > 0) {
      const int added = inputs_.add("n", fmt::format("{}::{}({}, {})", name_, advance_, step, column));
      return fmt::format("add.u32 word, %{}, %{}; mov.b64 {}, {{word, %{}}}; ", lower_, added, name_, upper_);
    }
    if (step == 0) return fmt::format("mov.b64 {}, {{%{}, %{}}}; ", name_, lower_, upper_);
    const int added = inputs_.add("n", fmt::format("{}::{}({})", name_, advance_, step));
    return fmt::format("add.u32 word, %{}, %{}; mov.b64 {}, {{word, %{}}}; ", lower_, added, name_, upper_);
  }

 private:
  std::string_view name_;
  std::string_view advance_;
  Inputs& inputs_;
  int lower_;
  int upper_;
};

}  // namespace

std::string wgmma_function(std::string_view name, std::string_view doc, const WgmmaProduct& product) {
  const int accumulators = product.n / 2;
  const bool registers = product.a_in_registers;
  // "+f" even if D is only written, so that input and output registers are the same.
  std::vector<std::string> outputs;
  const int values = (product.n - product.sum_columns) / 2;
  for (int i = 0; i < values; ++i) outputs.push_back(fmt::format("\"+f\"(d[{}][{}])", i / 4, i % 4));
  for (int i = values; i < accumulators; ++i) outputs.push_back(fmt::format("\"+f\"(sums[{}])", i - values));
  Inputs inputs(accumulators);
  std::vector<TileOperand> tiles;
  if (registers) {
    for (int i = 0; i < product.steps * 4; ++i) inputs.add("r", fmt::format("a[{}][{}]", i / 4, i % 4));
  } else {
    tiles.emplace_back("A", "a", "column_step", inputs);
  }
  tiles.emplace_back("B", "b", product.b_along_rows ? "row_step" : "column_step", inputs);

  std::string text =
      fmt::format("  // {}\n  template <{}>\n", doc, registers ? "class B, int steps" : "class A, class B");
  text += fmt::format("  static __device__ __forceinline__ void {}(float (&d)[{}][4], {}{}, unsigned b) {{\n",
                      name, values / 4, product.sum_columns > 0 ? "float (&sums)[4], " : "",
                      registers ? "const unsigned (&a)[steps][4]" : "unsigned a");
  text += "    asm volatile(\n        \"{.reg .pred no, yes; .reg .b32 word; .reg .b64 A, B;\\n\"\n";
  text += "        \"setp.ne.b32 no, 0, 0; setp.eq.b32 yes, 0, 0;\\n\"\n";
  const DTypeFacts &type = facts(product.dtype), &type_a = facts(product.a_dtype.value_or(product.dtype));
  const int most = product.columns_at_once == 0 ? product.n : product.columns_at_once;
  for (int column = 0; column < product.n; column += most) {
    const int n = std::min(most, product.n - column);
    for (int step = 0; step < product.steps; ++step) {
      std::string loads;
      for (const TileOperand& tile : tiles) loads += tile.load(step, column);
      text += fmt::format("        \"{}\\n\"\n", loads);
      text += fmt::format("        \"wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{} {}, \"\n", n,
                          type.mma_k, type_a.ptx_type, type.ptx_type, operands(column / 2, n / 2));
      // scale-d, imm-scale-a, imm-scale-b; with 16 bits imm-trans-a if A is a tile, and imm-trans-b.
      const std::string transposed =
          type.bytes == 1 ? "" : fmt::format(", {}{}", registers ? "" : "0, ", int{product.b_along_rows});
      text += fmt::format("        \"{}, B, {}, 1, 1{};\\n\"\n",
                          registers ? operands(accumulators + step * 4, 4) : "A",
                          step > 0 || product.accumulate ? "yes" : "no", transposed);
    }
  }
  text += "        \"}\"\n";
  text += fmt::format("        : {}\n", lines(outputs, "          ", 8));
  text += fmt::format("        : {});\n", lines(inputs.items(), "          ", 8));
  return text + "  }\n";
}

SourceFile wgmma_products_file(std::string_view functions) {
  return {"wgmma_products.cuh",
          fmt::format("// Products of tiles by wgmma, for one kernel. Generated: change the spec, not this "
                      "file.\n#pragma once\n\nstruct WgmmaProducts {{\n{}}};\n",
                      functions)};
}

}  // namespace jit
