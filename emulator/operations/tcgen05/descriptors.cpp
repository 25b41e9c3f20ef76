#include "operations/tcgen05/descriptors.h"

#include <iterator>

#include <fmt/format.h>

namespace jit::emulator {
namespace {

std::uint32_t field(std::uint32_t bits, int first, int count) { return bits >> first & ((1u << count) - 1); }

// The element type of a code; pred: none.
Type element_of(ProductKind kind, std::uint32_t code) {
  switch (kind) {
    case ProductKind::f16:
      return code == 0 ? Type::f16 : code == 1 ? Type::bf16 : Type::pred;
    case ProductKind::tf32:
      return code == 2 ? Type::tf32 : Type::pred;
    case ProductKind::i8:
      return code == 0 ? Type::u8 : code == 1 ? Type::s8 : Type::pred;
    case ProductKind::f8f6f4:
    case ProductKind::mxf8f6f4: {
      constexpr Type types[] = {Type::e4m3, Type::e5m2, Type::pred, Type::e2m3, Type::e3m2, Type::e2m1};
      return code < std::size(types) ? types[code] : Type::pred;
    }
    case ProductKind::mxf4:
    case ProductKind::mxf4nvf4:
      return code == 1 ? Type::b8 : Type::pred;
  }
  return Type::pred;
}

std::string stationary_size_fault(int m, int n) {
  if (m != 32 && m != 64 && m != 128) return fmt::format("M {} is none of .ws: 32, 64 and 128 are", m);
  if (n == 64 || n == 128 || n == 256) return {};
  return fmt::format("N {} is none of .ws: 64, 128 and 256 are", n);
}

std::string size_fault(ProductKind kind, int blocks, int m, int n, bool b_is_transposed, bool is_byte) {
  const bool is_m = blocks == 2 ? m == 128 || m == 256 : m == 128 || (m == 64 && !is_block_scaled(kind));
  if (!is_m) return fmt::format("M {} is none of a product by {} block{}", m, blocks, blocks == 1 ? "" : "s");
  int step = blocks == 2 ? 16 : m == 128 && kind != ProductKind::i8 ? 16 : 8;
  if (is_block_scaled(kind)) step = blocks == 2 ? 16 : 8;
  if (kind == ProductKind::i8) step = blocks == 2 ? 32 : n <= 24 ? 8 : 16;
  if (is_byte && b_is_transposed) step = blocks == 2 ? 32 : 16;
  if (n < step || n > 256 || n % step != 0) {
    return fmt::format("N {} is none of a product with M {}: multiples of {} up to 256 are", n, m, step);
  }
  return {};
}

}  // namespace

bool is_block_scaled(ProductKind kind) { return kind >= ProductKind::mxf8f6f4; }
bool is_of_nibbles(ProductKind kind) { return kind >= ProductKind::mxf4; }

std::string ProductShape::parse(std::uint32_t bits, ProductKind kind, int blocks) {
  const bool is_scaled = is_block_scaled(kind);
  const std::uint32_t reserved = is_scaled ? 0x0000'0040u | 1u << 3 : 1u << 6 | 1u << 23 | 1u << 29;
  if ((bits & 4) != 0) return "sparse products (bit 2) are not known to the emulator";
  if (field(bits, 0, 2) != 0) return "a sparsity selector (bits 0 and 1) without sparsity";
  if ((bits & reserved) != 0) return fmt::format("bits {:#010x} must be 0", bits & reserved);
  a = element_of(kind, field(bits, 7, 3));
  b = element_of(kind, field(bits, 10, 3));
  if (a == Type::pred || b == Type::pred) {
    return fmt::format("types {} of A and {} of B are none that the emulator knows of this kind",
                       field(bits, 7, 3), field(bits, 10, 3));
  }
  negates_a = field(bits, 13, 1) != 0;
  negates_b = field(bits, 14, 1) != 0;
  a_major = field(bits, 15, 1) != 0 ? Major::mn : Major::k;
  b_major = field(bits, 16, 1) != 0 ? Major::mn : Major::k;
  n = static_cast<int>(field(bits, 17, 6)) * 8;
  if (is_scaled) {
    m = static_cast<int>(field(bits, 27, 2)) * 128;
    d = Type::f32;
    a_scale_id = static_cast<int>(field(bits, 29, 2));
    b_scale_id = static_cast<int>(field(bits, 4, 2));
    has_power_scales = field(bits, 23, 1) != 0;
  } else {
    m = static_cast<int>(field(bits, 24, 5)) * 16;
    const std::uint32_t code = field(bits, 4, 2);
    const bool is_integer = kind == ProductKind::i8;
    d = code == 2 ? Type::s32 : code == 1 ? Type::f32 : Type::f16;
    const bool has_half =
        kind == ProductKind::f8f6f4 || (kind == ProductKind::f16 && a == Type::f16 && b == Type::f16);
    if (code == 3 || is_integer != (code == 2) || (code == 0 && !has_half)) {
      return fmt::format("type {} of D does not go with these of A and B", code);
    }
    saturates = field(bits, 3, 1) != 0;
    if (saturates && !is_integer) return "saturation (bit 3) is for integers";
    if (!is_stationary && field(bits, 30, 2) != 0) return "a maximal shift (bits 30 and 31) is for .ws";
  }
  const auto lies_along_k = [&](Type type, Major major) {
    return major == Major::k || (!is_of_nibbles(kind) && jit::emulator::bits(type) >= 8);
  };
  if (!lies_along_k(a, a_major) || !lies_along_k(b, b_major)) {
    return "elements of 4 and 6 bits lie along k, a transpose bit is set";
  }
  if (is_scaled && field(bits, 31, 1) != 0) return "K 96 (bit 31) is not known to the emulator";
  if (is_scaled && blocks == 2 && m == 128)
    return "scaled products of a pair with M 128 are not known to the emulator";
  if (is_stationary) return stationary_size_fault(m, n);
  return size_fault(kind, blocks, m, n, b_major == Major::mn, jit::emulator::bits(b) == 8);
}

std::string zero_mask_fault(std::uint64_t bits) {
  constexpr std::uint64_t reserved = 7ull << 36 | 3ull << 62;
  if ((bits & reserved) != 0) return fmt::format("bits {:#018x} must be 0", bits & reserved);
  if ((bits >> 56 & 63) != 0) return "column shifts (bits 56 to 61) are not known to the emulator";
  return {};
}

bool is_zero_column(std::uint64_t bits, const ProductShape& shape, int column) {
  if ((bits >> 39 & 1) == 0) return false;
  const int width = shape.n * shape.m / 128, part = column / width;  // a mask for each part of the lanes
  const int zeros = static_cast<int>(bits >> 40 & 255) + 1, others = static_cast<int>(bits >> 48 & 255) + 1;
  const bool begins_with_zeros = (bits >> (32 + part) & 1) != 0;
  const int at = (column % width + static_cast<int>(bits >> 8 * part & 255)) % (zeros + others);
  return begins_with_zeros ? at < zeros : at >= others;
}

MatrixDescriptor parse_tensor_descriptor(std::uint64_t bits) {
  using Swizzle = MatrixDescriptor::Swizzle;
  // The low 52 bits have wgmma's meaning.
  MatrixDescriptor descriptor = MatrixDescriptor::parse(bits & 0x000f'ffff'ffff'ffff);
  const std::uint64_t code = bits >> 61;
  descriptor.swizzle = code == 2   ? Swizzle::bytes128
                       : code == 4 ? Swizzle::bytes64
                       : code == 6 ? Swizzle::bytes32
                                   : Swizzle::none;
  return descriptor;
}

std::string tensor_descriptor_fault(std::uint64_t bits, Major major, int pieces) {
  constexpr std::uint64_t reserved = 0x1fe0'0000'0000'0000 | 3ull << 14 | 3ull << 30;
  if ((bits >> 46 & 7) != 1) return fmt::format("bits 46 to 48 must be 1, they are {}", bits >> 46 & 7);
  if ((bits & reserved) != 0) return fmt::format("bits {:#018x} must be 0", bits & reserved);
  if ((bits >> 52 & 1) != 0) return "absolute leading offsets (bit 52) are not known to the emulator";
  const std::uint64_t swizzle = bits >> 61;
  if (swizzle == 1) return "swizzle 1 (atoms of 32 bytes) is not known to the emulator; 0, 2, 4 and 6 are";
  if (swizzle % 2 != 0) return fmt::format("swizzle {} is none; 0, 2, 4 and 6 are", swizzle);
  return layout_fault(parse_tensor_descriptor(bits), major, pieces);
}

}  // namespace jit::emulator
