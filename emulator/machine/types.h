// Operand types of PTX (PTX ISA, "Types").
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace jit::emulator {

enum class Type : std::uint8_t {
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  tf32,
  f32,
  f32x2,
  f64,
  e4m3,
  e5m2,
  e4m3x2,
  e5m2x2,
  // Only in descriptors of tensor cores:
  e2m3,
  e3m2,
  e2m1,
};

/// The type with this name, such as "u32"; nothing for another text.
std::optional<Type> parse_type(std::string_view text);
std::string_view to_string(Type type);
/// Width in bits; tf32 and packed pairs of 16 bits count 32, pred 1.
int bits(Type type);
bool is_signed(Type type);
bool is_float(Type type);

}  // namespace jit::emulator
