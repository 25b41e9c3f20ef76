// PtxError: the emulator cannot run a PTX text.
#pragma once

#include <stdexcept>
#include <string>

namespace jit::emulator {

/// PTX that cannot run: malformed, with an unknown instruction, or against a rule. `what()` starts with "PTX
/// line 12: ".
class PtxError : public std::runtime_error {
 public:
  PtxError(int line, const std::string& message);
  /// Line of the PTX text, from 1; 0 when the fault has no single line.
  int line() const { return line_; }

 private:
  int line_;
};

}  // namespace jit::emulator
