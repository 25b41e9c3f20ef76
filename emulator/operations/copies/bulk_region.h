// The region of global memory that a bulk copy moves, and its layout in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "machine/global_memory.h"
#include "operations/copies/tensor_map.h"

namespace jit::emulator {

/// Contiguous bytes in global memory, and their offset in the copy's image.
struct BulkRun {
  std::uint64_t address = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct BulkRegion {
  std::uint32_t bytes = 0;    ///< in shared memory
  std::vector<BulkRun> runs;  ///< parts inside the tensor, by offset
  TensorMap::Swizzle swizzle = TensorMap::Swizzle::none;
  std::uint64_t fill = 0;  ///< eight bytes that fill the rest

  std::uint64_t global_bytes() const;
};

/// `bytes` bytes from `address`.
BulkRegion linear_region(std::uint64_t address, std::uint32_t bytes);
/// The box of a tensor at these coordinates, of which there are map.rank. The box must have less than 2^32
/// bytes.
BulkRegion tensor_region(const TensorMap& map, std::span<const std::int32_t> coordinates);

/// Copies a region into its image, which begins at byte `offset` of shared memory (the swizzle depends on
/// it). The whole region must be allocated.
void gather(const BulkRegion& region, const GlobalMemory& memory, std::uint32_t offset, std::byte* image);
/// The runs of an image in order, without swizzle. `read(at, bytes)` reads bytes of the image; those outside
/// of the tensor are not read.
std::vector<std::byte> unswizzle(const BulkRegion& region, std::uint32_t offset,
                                 const std::function<const std::byte*(std::uint32_t, std::uint32_t)>& read);

}  // namespace jit::emulator
