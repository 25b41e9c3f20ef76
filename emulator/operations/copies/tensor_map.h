// Boxes of tensor maps: how large they are, and where their bytes lie in shared memory.
#pragma once

#include <cstdint>

#include <emulator/tensor_map.h>

namespace jit::emulator {

/// Bytes of one element; 0 for a type of less than a byte.
std::uint32_t element_bytes(TensorMap::Element element);
/// Bytes after which a swizzle pattern repeats along a row: 16 where there is none.
std::uint32_t swizzle_span(TensorMap::Swizzle swizzle);
/// Where the 16 bytes that belong at byte `offset` of shared memory lie. `offset` counts from an address that
/// is a multiple of 1024.
std::uint32_t swizzled(TensorMap::Swizzle swizzle, std::uint32_t offset);
/// Elements that a copy moves along a dimension of the box.
std::uint32_t box_extent(const TensorMap& map, std::uint32_t dimension);
/// Bytes that a copy of a whole box moves.
std::uint64_t box_bytes(const TensorMap& map);

}  // namespace jit::emulator
