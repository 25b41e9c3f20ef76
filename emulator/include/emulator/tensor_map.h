// Tensor maps: they describe to cp.async.bulk.tensor a tensor in global memory and the box of it that one
// copy moves (PTX ISA, "Tensors"; CUDA driver API, "Tensor Map Object Management"). The 128 bytes of a
// CUtensorMap are opaque to programs; the emulator's kernels get its own encoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace jit::emulator {

/// Enumerators have the values of the driver's CUtensorMapDataType etc. and can be cast from them. Dimension
/// 0 is the innermost one, whose elements are contiguous.
struct TensorMap {
  enum class Element : std::uint8_t {
    u8,
    u16,
    u32,
    s32,
    u64,
    s64,
    f16,
    f32,
    f64,
    bf16,
    f32_ftz,
    tf32,
    tf32_ftz,
    u4x16_align8,
    u4x16_align16,
    u6x16_align16,
  };
  enum class Interleave : std::uint8_t { none, bytes16, bytes32 };
  enum class Swizzle : std::uint8_t {
    none,
    bytes32,
    bytes64,
    bytes128,
    bytes128_atom32,
    bytes128_atom32_flip8,
    bytes128_atom64,
  };
  enum class L2Promotion : std::uint8_t { none, bytes64, bytes128, bytes256 };
  enum class OutOfBounds : std::uint8_t { zero, nan };

  Element element = Element::u8;
  std::uint32_t rank = 1;
  std::uint64_t address = 0;
  std::array<std::uint64_t, 5> dimensions = {1, 1, 1, 1, 1};
  std::array<std::uint64_t, 4> strides = {};  ///< bytes, of dimensions 1 to rank − 1
  std::array<std::uint32_t, 5> box = {1, 1, 1, 1, 1};
  std::array<std::uint32_t, 5> element_strides = {1, 1, 1, 1, 1};
  Interleave interleave = Interleave::none;
  Swizzle swizzle = Swizzle::none;
  L2Promotion l2_promotion = L2Promotion::none;
  OutOfBounds out_of_bounds = OutOfBounds::zero;

  bool operator==(const TensorMap&) const = default;
};

inline constexpr std::size_t tensor_map_bytes = 128;
inline constexpr std::size_t tensor_map_alignment = 64;

/// The reason why the map cannot be encoded: the rule of cuTensorMapEncodeTiled that it breaks, or a feature
/// that the emulator does not model. One sentence with argument, value and rule; empty for a valid map.
std::optional<std::string> validate(const TensorMap& map);

/// The 128 bytes that the kernel gets. `map` must be valid.
std::array<std::byte, tensor_map_bytes> encode(const TensorMap& map);
/// The map that `encode` made these bytes from; nothing for any other bytes.
std::optional<TensorMap> decode(std::span<const std::byte, tensor_map_bytes> bytes);

}  // namespace jit::emulator
