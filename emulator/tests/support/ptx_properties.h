// Properties of every module that the PTX parser accepts, whatever the text.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "ptx/syntax.h"

namespace jit::emulator::testing {

inline void require(bool holds, const char* property, const std::string& name) {
  if (!holds) throw std::logic_error(std::string(property) + ": " + name);
}

inline void check_operand(const ptx::Operand& operand) {
  using Kind = ptx::Operand::Kind;
  if (operand.kind == Kind::name) require(!operand.name.empty(), "a name is not empty", operand.name);
  if (operand.kind == Kind::pair) require(operand.elements.size() == 2, "a pair has two sides", operand.name);
  for (const ptx::Operand& element : operand.elements) check_operand(element);
}

inline void check_variable(const ptx::Variable& variable, int lines) {
  require(!variable.name.empty() && variable.line >= 1 && variable.line <= lines, "a variable has a place",
          variable.name);
  require(variable.alignment > 0 && (variable.alignment & (variable.alignment - 1)) == 0,
          "an alignment is a power of two", variable.name);
  require(variable.initial.size() <= variable.bytes, "initial values fit", variable.name);
  for (const ptx::Variable::Relocation& relocation : variable.relocations) {
    require(relocation.offset + 8 <= variable.initial.size(), "an address lies within", variable.name);
  }
}

/// Throws std::logic_error for a property that does not hold of what the parser made of `text`.
inline void check_module(const ptx::Module& module, std::string_view text) {
  int lines = 1;
  for (const char c : text) lines += c == '\n' ? 1 : 0;
  require(module.target.starts_with("sm_"), "there is a target", module.target);
  for (const ptx::Variable& variable : module.variables) check_variable(variable, lines);
  for (const ptx::Function& function : module.functions) {
    const int count = static_cast<int>(function.body.size());
    require(function.line >= 1 && function.line <= lines, "a function has a place", function.name);
    for (const ptx::Variable& variable : function.variables) check_variable(variable, lines);
    for (const ptx::Variable& parameter : function.parameters) check_variable(parameter, lines);
    for (const ptx::RegisterRange& range : function.registers) {
      require(!range.prefix.empty() && range.count >= 0, "a register has a name", range.prefix);
    }
    for (const auto& [label, index] : function.labels) {
      require(index >= 0 && index <= count, "a label lies in the body", label);
    }
    for (const ptx::Instruction& instruction : function.body) {
      require(instruction.line >= 1 && instruction.line <= lines, "an instruction has a place",
              instruction.opcode);
      for (const ptx::Operand& operand : instruction.operands) check_operand(operand);
    }
  }
}

}  // namespace jit::emulator::testing
