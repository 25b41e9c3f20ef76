// Reductions that bulk copies do in place of writes (PTX ISA, "cp.reduce.async.bulk").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "machine/types.h"
#include "operations/copies/tensor_map.h"

namespace jit::emulator {

struct Reduction {
  enum class Operator : std::uint8_t { add, min, max, inc, dec, bit_and, bit_or, bit_xor };
  Operator op;
  Type type;
  bool flushes = false;  ///< flushes subnormal f32 operands and results to zero
};

/// The operator with this name, such as "add".
std::optional<Reduction::Operator> parse_reduction(std::string_view text);
/// Whether PTX's table for cp.reduce.async.bulk has the combination, with a destination in .shared::cluster
/// or .global.
bool is_legal(const Reduction& reduction, bool to_shared);
/// The reduction for a tensor's element type; nothing when PTX has none.
std::optional<Reduction> tensor_reduction(Reduction::Operator op, TensorMap::Element element);

/// Reduces `bytes` bytes from `from` into `to`, each element atomically with regard to other threads.
void reduce(const Reduction& reduction, std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace jit::emulator
