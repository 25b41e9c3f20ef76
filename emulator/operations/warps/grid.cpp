// Order between grids (PTX ISA, "griddepcontrol").
#include <fmt/format.h>

#include "machine/decoder.h"
#include "machine/global_races.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

/// Grids run one after the other: what a wait is for has happened, and what may be launched waits anyway. But what a thread
/// does before it waits may be done while grids in front still run.
struct DependOnGrids final : Operation {
  using Note = void (GridOrder::*)(Warp&);
  explicit DependOnGrids(Note note) : note(note) {}
  Flow execute(Warp& warp) const override {
    if (GlobalRaces* const races = warp.launch().races) (races->grids().*note)(warp);
    return Flow::next;
  }
  const Note note;
};

}  // namespace

std::unique_ptr<const Operation> decode_grid(Decoder& decoder) {
  if (decoder.opcode() != "griddepcontrol") return nullptr;
  decoder.require_arch(9, 0);
  const bool waits = decoder.take_one_of({"wait", "launch_dependents"}) == "wait";
  decoder.expect_count(0);
  decoder.set_class(InstructionClass::control);
  return std::make_unique<DependOnGrids>(waits ? &GridOrder::wait : &GridOrder::let_next_begin);
}

}  // namespace jit::emulator
