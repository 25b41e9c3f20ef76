// The state of a warp's wgmma operations, and of setmaxnreg.
#pragma once

#include "machine/warp.h"

namespace jit::emulator {

struct WgmmaState {
  virtual ~WgmmaState() = default;
  /// Called before each instruction that is not wgmma's own, once the warp has this state: reports registers
  /// that are read or written while an operation has them in flight, and notes writes since the last
  /// wgmma.fence.
  virtual void watch(Warp& warp, const InstructionInfo& info) = 0;
  /// Called when the warp's last lane exits: reports operations that nobody waited for.
  virtual void finish(Warp& warp) = 0;
};

}  // namespace jit::emulator
