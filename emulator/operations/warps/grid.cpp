// Order between grids (PTX ISA, "griddepcontrol").
#include <fmt/format.h>

#include "emulator/machine/decoder.h"
#include "emulator/machine/warp.h"

namespace jit::emulator {
namespace {

/// Grids run one after the other: what a wait is for has happened, and what may be launched waits anyway.
struct DependOnGrids final : Operation {
  Flow execute(Warp&) const override { return Flow::next; }
};

}  // namespace

std::unique_ptr<const Operation> decode_grid(Decoder& decoder) {
  if (decoder.opcode() != "griddepcontrol") return nullptr;
  decoder.require_arch(9, 0);
  decoder.take_one_of({"wait", "launch_dependents"});
  decoder.expect_count(0);
  decoder.set_class(InstructionClass::control);
  return std::make_unique<DependOnGrids>();
}

}  // namespace jit::emulator
