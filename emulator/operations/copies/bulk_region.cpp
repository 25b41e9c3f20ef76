#include "operations/copies/bulk_region.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "operations/arithmetic/numbers.h"

namespace jit::emulator {
namespace {

constexpr std::uint32_t piece = 16;  // unit of a swizzle

std::uint64_t fill_of(const TensorMap& map) {
  if (map.out_of_bounds == TensorMap::OutOfBounds::zero) return 0;
  return 0x7ff77ff77ff77ff7u;  // the fill of an H200, for every type
}

// Calls f(offset in the image, bytes) for pieces of a run that stay contiguous in a swizzled image.
template <class F>
void for_each_piece(const BulkRegion& region, const BulkRun& run, std::uint32_t image_offset, F f) {
  if (region.swizzle == TensorMap::Swizzle::none) return f(run.offset, run.bytes);
  for (std::uint32_t done = 0; done < run.bytes;) {
    const std::uint32_t at = image_offset + run.offset + done;
    const std::uint32_t bytes = std::min(piece - at % piece, run.bytes - done);
    f(swizzled(region.swizzle, at) - image_offset, bytes);
    done += bytes;
  }
}

}  // namespace

std::uint64_t BulkRegion::global_bytes() const {
  std::uint64_t sum = 0;
  for (const BulkRun& run : runs) sum += run.bytes;
  return sum;
}

BulkRegion linear_region(std::uint64_t address, std::uint32_t bytes) {
  BulkRegion region;
  region.bytes = bytes;
  if (bytes != 0) region.runs.push_back({address, 0, bytes});
  return region;
}

BulkRegion tensor_region(const TensorMap& map, std::span<const std::int32_t> coordinates) {
  BulkRegion region;
  region.bytes = static_cast<std::uint32_t>(box_bytes(map));
  region.swizzle = map.swizzle;
  region.fill = fill_of(map);

  const std::uint32_t element = element_bytes(map.element);
  const std::uint32_t row_bytes = map.box[0] * element;
  // Elements of each row that are inside the tensor, equal for all rows.
  const std::int64_t first = std::clamp<std::int64_t>(-std::int64_t{coordinates[0]}, 0, map.box[0]);
  const std::int64_t end = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(map.dimensions[0]) - coordinates[0], first, map.box[0]);
  if (first == end) return region;
  const auto bytes = static_cast<std::uint32_t>(end - first) * element;
  const auto inner = static_cast<std::uint64_t>(coordinates[0] + first) * element;

  std::array<std::uint32_t, 5> index = {};
  for (std::uint32_t offset = static_cast<std::uint32_t>(first) * element; offset < region.bytes;
       offset += row_bytes) {
    bool is_inside = true;
    std::uint64_t address = map.address + inner;
    for (std::uint32_t d = 1; d < map.rank; ++d) {
      const std::int64_t at = std::int64_t{coordinates[d]} + index[d] * std::int64_t{map.element_strides[d]};
      is_inside = is_inside && at >= 0 && static_cast<std::uint64_t>(at) < map.dimensions[d];
      address += static_cast<std::uint64_t>(at) * map.strides[d - 1];
    }
    for (std::uint32_t d = 1; d < map.rank && ++index[d] == box_extent(map, d); ++d) index[d] = 0;
    if (!is_inside) continue;
    if (!region.runs.empty()) {
      BulkRun& last = region.runs.back();
      if (last.address + last.bytes == address && last.offset + last.bytes == offset) {
        last.bytes += bytes;
        continue;
      }
    }
    region.runs.push_back({address, offset, bytes});
  }
  return region;
}

void gather(const BulkRegion& region, const GlobalMemory& memory, std::uint32_t offset, std::byte* image) {
  if (region.global_bytes() != region.bytes) {
    for (std::uint32_t i = 0; i < region.bytes; i += sizeof(region.fill)) {
      std::memcpy(image + i, &region.fill, sizeof(region.fill));
    }
  }
  for (const BulkRun& run : region.runs) {
    const std::byte* from = memory.at(run.address, run.bytes);
    for_each_piece(region, run, offset, [&](std::uint32_t at, std::uint32_t bytes) {
      std::memcpy(image + at, from, bytes);
      from += bytes;
    });
  }
}

std::vector<std::byte> unswizzle(const BulkRegion& region, std::uint32_t offset,
                                 const std::function<const std::byte*(std::uint32_t, std::uint32_t)>& read) {
  std::vector<std::byte> bytes(region.global_bytes());
  // A whole image is read at once.
  const std::byte* const whole = bytes.size() == region.bytes ? read(0, region.bytes) : nullptr;
  std::byte* to = bytes.data();
  for (const BulkRun& run : region.runs) {
    for_each_piece(region, run, offset, [&](std::uint32_t at, std::uint32_t count) {
      std::memcpy(to, whole ? whole + at : read(at, count), count);
      to += count;
    });
  }
  return bytes;
}

}  // namespace jit::emulator
