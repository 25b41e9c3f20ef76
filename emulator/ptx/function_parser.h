// Functions: .entry and .func (PTX ISA, "Kernel and Function Directives").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ptx/declarations.h"
#include "ptx/scopes.h"
#include "ptx/syntax.h"
#include "ptx/tokens.h"

namespace jit::emulator::ptx {

/// Reads one function. Every failure throws PtxError.
class FunctionParser {
 public:
  /// `statics` receives the .global and .const variables declared in the body.
  FunctionParser(Tokens& tokens, DeclarationParser& declarations, std::vector<Variable>& statics);

  /// Parses from after ".entry" or ".func" to after the body. Nothing for a declaration without one.
  std::optional<Function> parse(bool is_entry);

 private:
  void header();
  void directive(const Token& token);
  void check_entry_parameters() const;

  // The body.
  void statements();
  void statement_with_dot();
  void labeled(const Token& label);
  void instruction(const Token& opcode, std::optional<Guard> guard);
  std::optional<Guard> guard();
  void declare_registers();
  void declare_variables(Space space);
  void location();

  Tokens& tokens_;
  DeclarationParser& declarations_;
  std::vector<Variable>& statics_;
  Function function_;
  std::optional<Scopes> scopes_;
  std::optional<SourceLine> source_;
  int registers_ = 0;
};

}  // namespace jit::emulator::ptx
