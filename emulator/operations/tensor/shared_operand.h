// Operands that are addresses in shared memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "machine/decoder.h"
#include "machine/memory_access.h"
#include "machine/warp.h"

namespace jit::emulator {

/// [base + offset] in .shared::cta or .shared::cluster, or a generic address of shared memory.
struct SharedOperand {
  Decoder::Address address;
  bool is_generic = false;

  /// Where it points for a lane. Stops the launch when that is not in shared memory of the cluster.
  SharedPlace place(Warp& warp, int lane) const;
};

/// `is_generic`: the instruction names no state space.
SharedOperand shared_operand(Decoder& decoder, std::size_t index, bool is_generic);

/// Value of a [base + offset] of 64 bits, for a lane.
std::uint64_t wide_address(Warp& warp, int lane, const Decoder::Address& address);

}  // namespace jit::emulator
