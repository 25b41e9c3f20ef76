// Boxes of tensor maps: their sizes, and their layout in shared memory.
#pragma once

#include <cstdint>

#include <emulator/tensor_map.h>

namespace jit::emulator {

/// Bytes of an element; 0 for types smaller than a byte.
std::uint32_t element_bytes(TensorMap::Element element);
/// Row bytes after which a swizzle pattern repeats; 16 without swizzle.
std::uint32_t swizzle_span(TensorMap::Swizzle swizzle);
/// The swizzled position of the 16 bytes at byte `offset` of shared memory. `offset` counts from a multiple
/// of 1024.
std::uint32_t swizzled(TensorMap::Swizzle swizzle, std::uint32_t offset);
/// Elements that a copy moves along a box's dimension.
std::uint32_t box_extent(const TensorMap& map, std::uint32_t dimension);
/// Bytes that a copy of a whole box moves.
std::uint64_t box_bytes(const TensorMap& map);

}  // namespace jit::emulator
