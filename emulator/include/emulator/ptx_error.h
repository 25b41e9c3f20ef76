// The error of a text that the emulator does not run.
#pragma once

#include <stdexcept>
#include <string>

namespace jit::emulator {

/// PTX that cannot be run: malformed, of an unknown instruction, or against a rule. `what()` leads with
/// "PTX line 12: ".
class PtxError : public std::runtime_error {
 public:
  PtxError(int line, const std::string& message);
  /// Line of the PTX text, from 1; 0 when the fault is not at one place.
  int line() const { return line_; }

 private:
  int line_;
};

}  // namespace jit::emulator
