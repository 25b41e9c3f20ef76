#include "generator/launch/memory_lane.h"

#include "generator/launch/memory_sizes.h"
#include "runtime/capture.h"

namespace jit {

const DeviceBuffer& GrowingMemory::at_least(int device, std::size_t bytes, int first_byte) {
  if (!buffers_.empty() && this->bytes() >= bytes) return *buffers_.back();
  const std::size_t size = rounded_up(bytes);
  if (first_byte >= 0) {
    buffers_.push_back(make_filled(device, size, static_cast<unsigned char>(first_byte)));
  } else {
    const RelaxedCapture relaxed;
    buffers_.push_back(std::make_unique<const DeviceBuffer>(device, size));
  }
  return *buffers_.back();
}

}  // namespace jit
