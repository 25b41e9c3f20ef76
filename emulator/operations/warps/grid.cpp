// Order between grids (PTX ISA, "griddepcontrol").
#include <fmt/format.h>

#include "machine/decoder.h"
#include "machine/global_races.h"
#include "machine/group_order.h"
#include "machine/launch.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

/// Grids run in order, so a wait ends at once and a dependent launch waits anyway. Accesses before a thread's
/// wait, however, may overlap previous grids.
struct DependOnGrids final : Operation {
  using Note = void (GridOrder::*)(Warp&);
  using MemberNote = void (GroupMember::*)(Warp&);
  DependOnGrids(Note note, MemberNote member_note) : note(note), member_note(member_note) {}
  Flow execute(Warp& warp) const override {
    const Launch& launch = warp.launch();
    if (launch.member) {
      (launch.member->*member_note)(warp);
    } else if (launch.races) {
      (launch.races->grids().*note)(warp);
    }
    return Flow::next;
  }
  const Note note;
  const MemberNote member_note;
};

}  // namespace

std::unique_ptr<const Operation> decode_grid(Decoder& decoder) {
  if (decoder.opcode() != "griddepcontrol") return nullptr;
  decoder.require_arch(9, 0);
  const bool waits = decoder.take_one_of({"wait", "launch_dependents"}) == "wait";
  decoder.expect_count(0);
  decoder.set_class(InstructionClass::control);
  if (waits) return std::make_unique<DependOnGrids>(&GridOrder::wait, &GroupMember::wait);
  return std::make_unique<DependOnGrids>(&GridOrder::let_next_begin, &GroupMember::let_next_begin);
}

}  // namespace jit::emulator
