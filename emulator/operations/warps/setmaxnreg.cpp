// setmaxnreg (PTX ISA, "Miscellaneous Instructions: setmaxnreg").
#include "operations/warps/setmaxnreg.h"

#include <algorithm>

#include <fmt/format.h>

#include "operations/warps/warpgroup.h"

namespace jit::emulator {
namespace {

constexpr int register_step = 8;
constexpr int least_registers = 24, most_registers = 256;
constexpr int registers_of_a_block = 65536;

// Registers per thread before the first setmaxnreg. They are allocated in units of eight.
int initial_registers(const Launch& launch) {
  const int asked = launch.options.registers_per_thread;
  if (asked > 0) return std::min((asked + register_step - 1) / register_step * register_step, most_registers);
  const int threads = launch.kernel.max_threads * launch.kernel.min_blocks;
  return std::min(registers_of_a_block / threads / register_step * register_step, most_registers);
}

struct SetMaxRegisters final : Operation {
  bool increase = false;
  int wanted = 0;

  Flow execute(Warp& warp) const override {
    Warpgroup& group = Warpgroup::of(warp);
    const int current = warp.register_limit != 0 ? warp.register_limit : initial_registers(warp.launch());
    // A group's four warps take or release their shares one by one.
    const int more = (wanted - current) * warp_lanes;
    int& pool = warp.block.free_registers;
    if (increase && more > pool) {
      return warp.wait_for(group.pool(), static_cast<std::uint64_t>(more), true);
    }
    if (warp.launch().options.level == Level::strict) group.execute(warp, {});
    if (increase ? more < 0 : more > 0) {
      warp.report(FindingKind::register_limit, -1,
                  fmt::format("the warp has {} registers per thread, .{} cannot make that {}", current,
                              increase ? "inc" : "dec", wanted));
      return Flow::next;
    }
    pool -= more;
    warp.register_limit = wanted;
    return Flow::next;
  }
};

}  // namespace

std::unique_ptr<const Operation> decode_setmaxnreg(Decoder& decoder) {
  const TargetArch target = decoder.target();
  if (target.major < 9 || target.suffix == 0) decoder.fail("needs .target sm_90a or a later one of its kind");
  auto operation = std::make_unique<SetMaxRegisters>();
  operation->increase = decoder.take_one_of({"inc", "dec"}) == "inc";
  for (const char* modifier : {"sync", "aligned", "u32"}) decoder.take_one_of({modifier});
  decoder.expect_count(1);
  const std::int64_t wanted = decoder.immediate(0);
  if (wanted < least_registers || wanted > most_registers || wanted % register_step != 0) {
    decoder.fail(fmt::format("{} registers: a multiple of 8 from 24 to 256 is legal", wanted));
  }
  operation->wanted = static_cast<int>(wanted);
  decoder.set_class(InstructionClass::other);
  decoder.set_aligned();
  return operation;
}

}  // namespace jit::emulator
