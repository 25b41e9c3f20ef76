// Constant expressions (PTX ISA, "Constant Expressions"), evaluated while parsing.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptx/tokens.h"

namespace jit::emulator::ptx {

struct Constant {
  bool is_real = false;
  bool is_single = false;    ///< of a real: `bits` is a single's
  bool is_unsigned = false;  ///< of an integer: .u64, else .s64
  std::uint64_t bits = 0;
  int line = 0;
};

/// Whether a constant can begin with this token, including signs, '!' and '~'.
bool begins_constant(const Token& token);

/// Reads a constant expression: numbers, WARP_SZ, the operators of C, casts to .s64 and .u64. Real numbers
/// allow only a sign. `unary`: a preceding operator that was already taken. Throws PtxError.
Constant parse_constant(Tokens& tokens, std::string_view unary = {});

}  // namespace jit::emulator::ptx
