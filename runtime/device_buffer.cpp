#include <jit/device.h>
#include <jit/device_buffer.h>

#include <utility>

#include <fmt/format.h>

#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

void require_inside(std::size_t offset, std::size_t bytes, std::size_t size) {
  if (offset <= size && bytes <= size - offset) return;
  throw Error(ErrorCode::invalid_argument, "driver", "bytes",
              fmt::format("{} bytes at {} do not fit into a buffer of {}", bytes, offset, size));
}

}  // namespace

DeviceBuffer::DeviceBuffer(int device, std::size_t bytes) : device_(device), bytes_(bytes) {
  const DriverApi& api = driver();
  if (bytes == 0) return;
  const RelaxedCapture relaxed;
  const CurrentDevice context(device);
  check(api.cuMemAlloc(&address_, bytes), "cuMemAlloc");
}

DeviceBuffer::~DeviceBuffer() {
  if (!address_) return;
  try {
    const RelaxedCapture relaxed;
    const CurrentDevice context(device_);
    driver().cuMemFree(address_);
  } catch (const Error&) {
    // The driver has shut down before this buffer's destructor, and has freed the memory.
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void DeviceBuffer::upload(const void* from, std::size_t bytes, std::size_t offset) const {
  require_inside(offset, bytes, bytes_);
  if (bytes == 0) return;
  const CurrentDevice context(device_);
  check(driver().cuMemcpyHtoD(address_ + offset, from, bytes), "cuMemcpyHtoD");
  // Waits for small copies: the driver may return before they have left its staging buffer, ordered only with
  // the default stream.
  check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

void DeviceBuffer::download(void* to, std::size_t bytes, std::size_t offset, CUstream stream) const {
  require_inside(offset, bytes, bytes_);
  if (bytes == 0) return;
  const CurrentDevice context(device_);
  check(driver().cuMemcpyDtoHAsync(to, address_ + offset, bytes, stream), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void DeviceBuffer::fill(unsigned char value, CUstream stream) const {
  if (bytes_ == 0) return;
  const CurrentDevice context(device_);
  check(driver().cuMemsetD8Async(address_, value, bytes_, stream), "cuMemsetD8Async");
}

}  // namespace jit
