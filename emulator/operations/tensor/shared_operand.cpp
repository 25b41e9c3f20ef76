#include "operations/tensor/shared_operand.h"

#include <fmt/format.h>

namespace jit::emulator {

std::uint64_t wide_address(Warp& warp, int lane, const Decoder::Address& address) {
  const std::uint64_t base = address.narrow ? warp.r32(address.base)[lane] : warp.r64(address.base)[lane];
  return base + static_cast<std::uint64_t>(address.offset);
}

SharedPlace SharedOperand::place(Warp& warp, int lane) const {
  const std::uint64_t value = wide_address(warp, lane, address);
  if (!is_generic) return resolve_shared(warp, lane, static_cast<std::uint32_t>(value));
  const Target target = resolve_generic(warp, lane, value);
  if (target.where != Target::Where::shared) {
    warp.stop(
        FindingKind::out_of_bounds, lane,
        fmt::format("the generic address {:#x} is not in shared memory, as this operand must be", value));
  }
  return {target.block, static_cast<std::uint32_t>(target.address)};
}

SharedOperand shared_operand(Decoder& decoder, std::size_t index, bool is_generic) {
  SharedOperand operand{decoder.address(index), is_generic};
  // A .shared variable's name denotes its .shared address even without a state space.
  if (operand.address.narrow) operand.is_generic = false;
  return operand;
}

}  // namespace jit::emulator
