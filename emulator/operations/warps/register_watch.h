// Operations of a warp that use its registers after they were issued: wgmma, and loads of tensor memory.
#pragma once

#include "machine/warp.h"

namespace jit::emulator {

struct RegisterWatch {
  virtual ~RegisterWatch() = default;
  /// Called before each instruction that is not wgmma's own, once the warp has this state.
  virtual void watch(Warp& warp, const InstructionInfo& info) = 0;
  /// Called when the warp's last lane exits.
  virtual void finish(Warp& warp) = 0;
};

}  // namespace jit::emulator
