#include "ptx/syntax.h"

#include <fmt/format.h>

namespace jit::emulator {

PtxError::PtxError(int line, const std::string& message)
    : std::runtime_error(line > 0 ? fmt::format("PTX line {}: {}", line, message) : "PTX: " + message),
      line_(line) {}

namespace ptx {

std::string Instruction::full_name() const {
  std::string name = opcode;
  for (const std::string& modifier : modifiers) {
    name += '.';
    name += modifier;
  }
  return name;
}

}  // namespace ptx
}  // namespace jit::emulator
