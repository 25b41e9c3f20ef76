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

  /// The address of a lane. Stops the launch when it is not in the cluster's shared memory.
  SharedPlace place(Warp& warp, int lane) const;
};

/// `is_generic`: the instruction names no state space.
SharedOperand shared_operand(Decoder& decoder, std::size_t index, bool is_generic);

/// The 64-bit address [base + offset] of a lane.
std::uint64_t wide_address(Warp& warp, int lane, const Decoder::Address& address);

}  // namespace jit::emulator
