// Control flow: bra, brx, ret, exit, trap etc. (PTX ISA, "Control Flow Instructions").
#include <algorithm>
#include <bit>
#include <vector>

#include <fmt/format.h>

#include "machine/decoder.h"
#include "machine/warp.h"

namespace jit::emulator {
namespace {

struct Branch final : Operation {
  std::uint32_t target;
  explicit Branch(std::uint32_t t) : target(t) {}

  Flow execute(Warp& warp) const override {
    const std::uint32_t stay = warp.active & ~warp.exec;
    const Warp::Side sides[] = {{target, warp.exec}, {warp.pc + 1, stay}};
    return warp.branch(std::span(sides, stay == 0 ? 1 : 2));
  }
};

struct BranchIndexed final : Operation {
  Slot index;
  std::vector<std::uint32_t> targets;

  Flow execute(Warp& warp) const override {
    std::vector<Warp::Side> sides;
    const auto add = [&](std::uint32_t pc, std::uint32_t lanes) {
      const auto same =
          std::find_if(sides.begin(), sides.end(), [&](const Warp::Side& side) { return side.pc == pc; });
      if (same == sides.end()) {
        sides.push_back({pc, lanes});
      } else {
        same->lanes |= lanes;
      }
    };
    for_each_lane(warp.exec, [&](int lane) {
      const std::uint32_t choice = warp.r32(index)[lane];
      if (choice >= targets.size()) {
        warp.stop(FindingKind::illegal_instruction, lane,
                  fmt::format("branch index {} is beyond the {} targets", choice, targets.size()));
      }
      add(targets[choice], 1u << lane);
    });
    if (const std::uint32_t stay = warp.active & ~warp.exec) add(warp.pc + 1, stay);
    return warp.branch(sides);
  }
};

struct Exit final : Operation {
  Flow execute(Warp&) const override { return Flow::exit; }
};

struct Trap final : Operation {
  Flow execute(Warp& warp) const override {
    warp.stop(FindingKind::illegal_instruction, std::countr_zero(warp.exec), "the kernel has reached a trap");
  }
};

struct Nothing final : Operation {
  Flow execute(Warp&) const override { return Flow::next; }
};

}  // namespace

std::unique_ptr<const Operation> decode_control(Decoder& decoder) {
  const std::string_view opcode = decoder.opcode();
  decoder.set_class(InstructionClass::control);
  const bool guarded = decoder.text().guard.has_value();
  if (opcode == "bra") {
    decoder.take("uni");
    decoder.expect_count(1);
    const std::uint32_t target = decoder.label(0);
    decoder.set_branch({target}, guarded);
    return std::make_unique<Branch>(target);
  }
  if (opcode == "brx") {
    decoder.take_one_of({"idx"});
    decoder.take("uni");
    decoder.expect_count(2);
    auto branch = std::make_unique<BranchIndexed>();
    branch->index = decoder.source(0, Type::u32);
    branch->targets = decoder.branch_targets(1);
    decoder.set_branch(branch->targets, guarded);
    return branch;
  }
  if (opcode == "ret" || opcode == "exit") {
    decoder.take("uni");
    decoder.expect_count(0);
    decoder.set_exit();
    return std::make_unique<Exit>();
  }
  if (opcode == "trap" || opcode == "brkpt") {
    decoder.expect_count(0);
    return std::make_unique<Trap>();
  }
  if (opcode == "nanosleep") {
    decoder.take_one_of({"u32"});
    decoder.expect_count(1);
    decoder.source(0, Type::u32);
    return std::make_unique<Nothing>();
  }
  decoder.set_class(InstructionClass::other);
  return nullptr;
}

}  // namespace jit::emulator
