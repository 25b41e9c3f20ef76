// Waiting for a phase of an mbarrier (PTX ISA, "mbarrier.test_wait, mbarrier.try_wait").
#pragma once

#include "operations/barriers/mbarrier.h"
#include "operations/tensor/shared_operand.h"

namespace jit::emulator {

/// Both instructions may return false at once, and the emulator does so, to expose code without a loop around
/// them. A warp that asks again is suspended until the answer can change, so that no loop spins: after one
/// refusal by try_wait, after several by test_wait. (One refusal keeps a try_wait that only looks ahead from
/// blocking a warp with other work.)
struct WaitForMbarrier final : Operation {
  SharedOperand at;
  Predicate result;
  Slot phase;  // parity, or a state that an arrival returned
  bool by_parity, acquires, suspends;

  Flow execute(Warp& warp) const override;

 private:
  bool is_over(Warp& warp, int lane, const Mbarrier& mbarrier) const;
  static Flow suspend(Warp& warp, const Mbarrier& mbarrier);
};

/// Whether a warp of the block is suspended on it.
bool is_waited_for(const Block& block, const Waitable& waitable);
/// Whether all warps of the block have exited.
bool has_ended(const Block& block);

}  // namespace jit::emulator
