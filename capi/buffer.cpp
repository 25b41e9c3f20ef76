// Device memory for programs without an allocator.
#include <fmt/format.h>
#include <jit/device_buffer.h>

#include "capi/context.h"
#include "capi/errors.h"

namespace jit::c {
namespace {

struct OwnedBuffer : jit_buffer {
  DeviceBuffer memory;

  explicit OwnedBuffer(DeviceBuffer memory_in) : memory(std::move(memory_in)) {
    data = memory.data();
    bytes = memory.size();
  }
};

const DeviceBuffer& memory_of(const jit_buffer* buffer) {
  return static_cast<const OwnedBuffer&>(checked_pointer(buffer, "buffer")).memory;
}

void check_host(const void* address, std::size_t bytes, const char* name) {
  if (address == nullptr && bytes != 0) refuse(name, "is a null pointer");
}

}  // namespace
}  // namespace jit::c

jit_code jit_buffer_create(const jit_context* context, size_t bytes, jit_buffer** buffer, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(buffer, "buffer") = nullptr;
    const int device = device_now(checked_pointer(context, "context"));
    *buffer = new OwnedBuffer(jit::DeviceBuffer(device, bytes));
  });
}

void jit_buffer_free(jit_buffer* buffer) { delete static_cast<jit::c::OwnedBuffer*>(buffer); }

jit_code jit_buffer_upload(const jit_buffer* buffer, const void* from, size_t bytes, size_t offset,
                           jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    const jit::DeviceBuffer& memory = memory_of(buffer);
    check_host(from, bytes, "from");
    memory.upload(from, bytes, offset);
  });
}

jit_code jit_buffer_download(const jit_buffer* buffer, void* to, size_t bytes, size_t offset, void* stream,
                             jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    const jit::DeviceBuffer& memory = memory_of(buffer);
    check_host(to, bytes, "to");
    memory.download(to, bytes, offset, static_cast<jit::Stream>(stream));
  });
}
