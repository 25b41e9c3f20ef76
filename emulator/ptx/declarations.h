// Declarations of variables, parameters and registers (PTX ISA, "Variables").
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ptx/syntax.h"
#include "ptx/tokens.h"

namespace jit::emulator::ptx {

/// Limit for each range of registers, and for all of a function.
constexpr int most_registers = 1 << 20;

struct DeclaredRegisters {
  RegisterRange range;
  int line = 0;
};

/// The space with this name, such as ".global"; nothing for another text.
std::optional<Space> parse_space(std::string_view dotted);

/// Reads declarations of one module. Every failure throws PtxError.
class DeclarationParser {
 public:
  explicit DeclarationParser(Tokens& tokens) : tokens_(tokens) {}

  /// The variables of one declaration, from after its space to after its ';'.
  std::vector<Variable> variables(Space space, bool is_extern);
  /// ( parameters ), the parentheses included.
  std::vector<Variable> parameters();
  /// The registers of one declaration, from after ".reg" to after its ';'.
  std::vector<DeclaredRegisters> registers();
  /// ( anything ), the parentheses included.
  void skip_parentheses();

 private:
  /// The text between the space and the names.
  struct Form {
    std::string_view type;
    std::uint64_t element_bytes = 0;
    std::uint64_t lanes = 1;
    std::uint64_t alignment = 0;
  };
  Form form(Space space);
  Variable variable(Space space, const Form& form, bool is_extern);
  Variable parameter();
  std::uint64_t alignment();

  Tokens& tokens_;
  // Bytes of all variables read so far.
  std::uint64_t declared_bytes_ = 0;
  std::uint64_t initial_bytes_ = 0;
};

}  // namespace jit::emulator::ptx
