#include "ptx/declarations.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "ptx/initializer.h"

namespace jit::emulator::ptx {
namespace {

// Bounds memory: a short text can ask for much by an array's length or by values far apart.
constexpr std::uint64_t most_declared_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t most_initial_bytes = std::uint64_t{1} << 26;
constexpr int most_alignment = 1 << 20;
constexpr std::size_t most_dimensions = 8;

constexpr std::array<std::pair<std::string_view, int>, 20> element_types = {
    {{"b8", 1},    {"b16", 2},  {"b32", 4},    {"b64", 8}, {"b128", 16}, {"u8", 1},   {"u16", 2},
     {"u32", 4},   {"u64", 8},  {"s8", 1},     {"s16", 2}, {"s32", 4},   {"s64", 8},  {"f16", 2},
     {"f16x2", 4}, {"bf16", 2}, {"bf16x2", 4}, {"f32", 4}, {"f64", 8},   {"f32x2", 8}}};

std::optional<int> bytes_of(std::string_view type) {
  for (const auto& [name, bytes] : element_types) {
    if (name == type) return bytes;
  }
  return {};
}

}  // namespace

std::optional<Space> parse_space(std::string_view dotted) {
  if (dotted == ".reg") return Space::reg;
  if (dotted == ".global") return Space::global;
  if (dotted == ".const") return Space::constant;
  if (dotted == ".shared") return Space::shared;
  if (dotted == ".local") return Space::local;
  if (dotted == ".param") return Space::param;
  return {};
}

std::uint64_t DeclarationParser::alignment() {
  const int line = tokens_.line();
  const int alignment = tokens_.expect_integer("an alignment", most_alignment);
  if (!std::has_single_bit(static_cast<unsigned>(alignment))) {
    throw PtxError(line, fmt::format("an alignment of {}; it must be a power of two", alignment));
  }
  return static_cast<std::uint64_t>(alignment);
}

void DeclarationParser::skip_parentheses() {
  tokens_.expect("(", "before a list");
  for (int depth = 1; depth > 0;) {
    if (tokens_.peek().kind == Token::Kind::end) tokens_.fail_expected("')' to close a list");
    const Token token = tokens_.take();
    depth += token.is("(") ? 1 : token.is(")") ? -1 : 0;
  }
}

DeclarationParser::Form DeclarationParser::form(Space space) {
  Form form;
  bool is_pointer = false;  // what follows .ptr is about the memory that a parameter points to
  for (;;) {
    const Token token = tokens_.peek();
    if (token.kind != Token::Kind::dotted) break;
    tokens_.take();
    if (token.text == ".align") {
      const std::uint64_t value = alignment();
      if (!is_pointer) form.alignment = value;
    } else if (token.text == ".attribute") {
      skip_parentheses();
    } else if (token.text == ".ptr" && space == Space::param) {
      is_pointer = true;
    } else if (is_pointer && parse_space(token.text)) {
      continue;
    } else if (form.type.empty() && (token.text == ".v2" || token.text == ".v4")) {
      form.lanes = token.text == ".v2" ? 2 : 4;
    } else if (const auto bytes = bytes_of(token.text.substr(1)); bytes && form.type.empty()) {
      form.type = token.text.substr(1);
      form.element_bytes = static_cast<std::uint64_t>(*bytes);
    } else if (token.text == ".pred" && space == Space::reg && form.type.empty()) {
      form.type = "pred";
    } else {
      throw PtxError(token.line,
                     fmt::format("expected the type of a variable such as .b32, found {}", describe(token)));
    }
  }
  if (form.type.empty()) tokens_.fail_expected("the type of a variable such as .b32");
  if (form.alignment == 0) form.alignment = form.element_bytes * form.lanes;
  return form;
}

Variable DeclarationParser::variable(Space space, const Form& form, bool is_extern) {
  Variable result;
  result.space = space;
  result.type = form.type;
  result.alignment = form.alignment;
  result.is_extern = is_extern;
  result.line = tokens_.line();
  result.name = tokens_.expect_word("the name of a variable");
  std::vector<std::uint64_t> lengths;
  while (tokens_.accept("[")) {
    const bool is_open = lengths.empty() && tokens_.peek().is("]");
    const int line = tokens_.line();
    const int length = is_open ? 0 : tokens_.expect_integer("the length of an array", INT32_MAX);
    if (length == 0 && !is_open) {
      throw PtxError(line, fmt::format("{} is an array without elements", result.name));
    }
    if (lengths.size() == most_dimensions) {
      throw PtxError(line, fmt::format("{} has more than {} dimensions", result.name, most_dimensions));
    }
    lengths.push_back(static_cast<std::uint64_t>(length));
    tokens_.expect("]", "after the length of an array");
  }
  const bool is_open = !lengths.empty() && lengths.front() == 0;
  const auto total = [&](std::size_t first) {
    std::uint64_t bytes = form.element_bytes * form.lanes;
    for (std::size_t i = first; i < lengths.size(); ++i) {
      bytes *= lengths[i];
      if (bytes > most_declared_bytes) {
        throw PtxError(result.line, fmt::format("{} has {} bytes or more; at most {} are possible",
                                                result.name, bytes, most_declared_bytes));
      }
    }
    return bytes;
  };
  result.bytes = total(is_open ? 1 : 0);
  if (tokens_.peek().is("=")) {
    if ((space != Space::global && space != Space::constant) || is_extern) {
      throw PtxError(tokens_.line(),
                     fmt::format("{} can have no initial value: only .global and .const variables "
                                 "that are not .extern can",
                                 result.name));
    }
    tokens_.take();
    if (form.lanes > 1) lengths.push_back(form.lanes);
    parse_initializer(tokens_, result, form.element_bytes, lengths, most_initial_bytes - initial_bytes_);
    initial_bytes_ += result.initial.size();
    if (form.lanes > 1) lengths.pop_back();
    result.bytes = total(0);
  } else if (is_open) {
    if (!is_extern && space != Space::param) {
      throw PtxError(result.line,
                     fmt::format("{}[] has no length; only .extern arrays, parameters and arrays with "
                                 "initial values can do without",
                                 result.name));
    }
    result.bytes = 0;
  }
  declared_bytes_ += std::max(result.bytes, result.alignment);
  if (declared_bytes_ > most_declared_bytes) {
    throw PtxError(result.line, fmt::format("the variables of the module take more than {} bytes with {}",
                                            most_declared_bytes, result.name));
  }
  return result;
}

std::vector<Variable> DeclarationParser::variables(Space space, bool is_extern) {
  const Form form = this->form(space);
  std::vector<Variable> result;
  do {
    result.push_back(variable(space, form, is_extern));
  } while (tokens_.accept(","));
  tokens_.expect(";", fmt::format("after the declaration of {}", result.back().name));
  return result;
}

Variable DeclarationParser::parameter() {
  const std::optional<Space> space =
      tokens_.peek().kind == Token::Kind::dotted ? parse_space(tokens_.peek().text) : std::nullopt;
  if (space != Space::param && space != Space::reg) tokens_.fail_expected("a parameter: '.param' or '.reg'");
  tokens_.take();
  return variable(*space, form(*space), false);
}

std::vector<Variable> DeclarationParser::parameters() {
  tokens_.expect("(", "before parameters");
  std::vector<Variable> result;
  if (tokens_.accept(")")) return result;
  do {
    result.push_back(parameter());
  } while (tokens_.accept(","));
  tokens_.expect(")", fmt::format("or ',' after the parameter {}", result.back().name));
  return result;
}

std::vector<DeclaredRegisters> DeclarationParser::registers() {
  const int line = tokens_.line();
  const Form form = this->form(Space::reg);
  if (form.lanes > 1) {
    throw PtxError(line,
                   "vector registers (.v2, .v4) are not known to the emulator; declare one for each "
                   "component");
  }
  std::vector<DeclaredRegisters> result;
  do {
    DeclaredRegisters registers;
    registers.line = tokens_.line();
    registers.range.type = form.type;
    registers.range.prefix = tokens_.expect_word("the name of a register");
    if (tokens_.accept("<")) {
      registers.range.count = tokens_.expect_integer("the number of registers", most_registers);
      if (registers.range.count == 0) {
        throw PtxError(registers.line, fmt::format("{}<0> declares no register", registers.range.prefix));
      }
      tokens_.expect(">", "after the number of registers");
    }
    result.push_back(std::move(registers));
  } while (tokens_.accept(","));
  tokens_.expect(";", fmt::format("after the declaration of {}", result.back().range.prefix));
  return result;
}

}  // namespace jit::emulator::ptx
