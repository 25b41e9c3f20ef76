// Control flow of a kernel: where diverged lanes reconverge, and which registers are live where.
#pragma once

#include <cstdint>
#include <vector>

#include "machine/kernel.h"

namespace jit::emulator {

/// Basic blocks and their successors.
struct FlowGraph {
  struct BasicBlock {
    std::uint32_t begin = 0, end = 0;  ///< indices in Kernel::code
    std::vector<int> successors;
    std::vector<int> predecessors;
  };
  std::vector<BasicBlock> blocks;  ///< in the order of the code; the first one is the entry
  std::vector<int> block_of;       ///< by instruction
};

/// `info` gives each instruction's successors; one equal to info.size() is the exit.
FlowGraph flow_graph(const std::vector<InstructionInfo>& info);

/// Each block's nearest postdominator: every path to the exit passes it (Cooper, Harvey and Kennedy, "A
/// Simple, Fast Dominance Algorithm", on the reversed graph); −1: the exit itself, or the exit is
/// unreachable.
std::vector<int> immediate_postdominators(const FlowGraph& graph);

/// Units of the register file that are live before each instruction.
class Liveness {
 public:
  Liveness(const FlowGraph& graph, const std::vector<InstructionInfo>& info, std::uint32_t slots);
  /// Calls f(instruction, live units after it as bits) for each instruction of a block, last first.
  template <class F>
  void walk_back(int block, F f) const {
    std::vector<std::uint64_t> alive = alive_out_[static_cast<std::size_t>(block)];
    const auto& range = graph_.blocks[static_cast<std::size_t>(block)];
    for (std::uint32_t i = range.end; i-- > range.begin;) {
      f(i, alive);
      step_back(i, alive);
    }
  }

 private:
  void step_back(std::uint32_t instruction, std::vector<std::uint64_t>& alive) const;

  const FlowGraph& graph_;
  const std::vector<InstructionInfo>& info_;
  std::vector<std::vector<std::uint64_t>> alive_out_;  // by block
};

/// A unit of a smaller register file for each unit of [0, slots); units that are never live together may
/// share one. `is_wide` marks the first unit of a 64-bit register, whose halves stay adjacent.
struct RegisterAssignment {
  std::vector<Slot> place;
  std::uint32_t slots = 0;
};
RegisterAssignment assign_registers(const FlowGraph& graph, const Liveness& liveness,
                                    const std::vector<InstructionInfo>& info, std::uint32_t slots,
                                    const std::vector<bool>& is_wide);

}  // namespace jit::emulator
