// setmaxnreg: moves registers between warpgroups.
#pragma once

#include "machine/decoder.h"

namespace jit::emulator {

/// Called by decode_wgmma for this opcode.
std::unique_ptr<const Operation> decode_setmaxnreg(Decoder& decoder);

}  // namespace jit::emulator
