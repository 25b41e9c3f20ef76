// Operations that use a warp's registers after their issue: wgmma, and tensor-memory loads.
#pragma once

#include "machine/warp.h"

namespace jit::emulator {

struct RegisterWatch {
  virtual ~RegisterWatch() = default;
  /// Called before each instruction other than wgmma's own, once the warp has this state.
  virtual void watch(Warp& warp, const InstructionInfo& info) = 0;
  /// Called when the warp's last lane exits.
  virtual void finish(Warp& warp) = 0;
};

}  // namespace jit::emulator
