// Entry points of memory: allocating, copying, filling, asking about pointers.
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/emulated_driver/entries.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

std::string hexadecimal(CUdeviceptr address) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", address);
  return text;
}

[[noreturn]] void refuse_range(const char* what, CUdeviceptr address, std::size_t bytes) {
  fail(CUDA_ERROR_INVALID_VALUE, std::string(what) + " of " + std::to_string(bytes) + " bytes at " +
                                     hexadecimal(address) +
                                     " is not within one allocation of an emulated device");
}

Device& owner_of(const char* what, CUdeviceptr address, std::size_t bytes) {
  Device* const device = machine().device_of(address);
  if (!device) refuse_range(what, address, bytes);
  return *device;
}

void upload(CUdeviceptr to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  require(from, "srcHost");
  if (!owner_of("the destination", to, bytes).memory.write(to, from, bytes)) {
    refuse_range("the destination", to, bytes);
  }
}

void download(void* to, CUdeviceptr from, std::size_t bytes) {
  if (bytes == 0) return;
  require(to, "dstHost");
  if (!owner_of("the source", from, bytes).memory.read(to, from, bytes))
    refuse_range("the source", from, bytes);
}

void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  if (bytes == 0) return;
  Device& source = owner_of("the source", from, bytes);
  Device& destination = owner_of("the destination", to, bytes);
  if (&source == &destination) {
    if (!source.memory.copy(to, from, bytes)) refuse_range("source or destination", from, bytes);
    return;
  }
  std::vector<std::byte> staged(bytes);
  download(staged.data(), from, bytes);
  upload(to, staged.data(), bytes);
}

void fill(CUdeviceptr to, std::uint32_t value, int width, std::size_t count) {
  if (count == 0) return;
  const std::size_t bytes = count * static_cast<std::size_t>(width);
  if (to % static_cast<unsigned>(width) != 0) {
    fail(CUDA_ERROR_INVALID_VALUE,
         hexadecimal(to) + " is not aligned to " + std::to_string(width) + " bytes");
  }
  if (!owner_of("the destination", to, bytes).memory.fill(to, value, width, count)) {
    refuse_range("the destination", to, bytes);
  }
}

// Work without a stream runs in the default stream, and may not disturb a capture.
CUresult now(const char* name, const std::function<void()>& work) {
  return call([&] {
    Stream& stream = *current_context().legacy_stream;
    machine().captures.refuse_unsafe_call(name);
    enqueue_alone(stream, work);
  });
}

CUresult later(CUstream stream, const std::function<void()>& work) {
  return call([&] { enqueue_alone(*find_stream(stream), work); });
}

template <class Value>
void give(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression): pointers, too
}

}  // namespace

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return call([&] {
    require(free, "free");
    require(total, "total");
    const emulator::Memory& memory = current_context().device.memory;
    *total = memory.capacity();
    *free = memory.capacity() - memory.allocated();
  });
}

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  return call([&] {
    require(address, "dptr");
    if (bytes == 0) fail(CUDA_ERROR_INVALID_VALUE, "bytesize must be above 0");
    emulator::Memory& memory = current_context().device.memory;
    machine().captures.refuse_unsafe_call("cuMemAlloc");
    *address = memory.allocate(bytes);
    if (*address != 0) return;
    fail(CUDA_ERROR_OUT_OF_MEMORY, "the emulated device has " + std::to_string(memory.capacity()) +
                                       " bytes, " + std::to_string(memory.allocated()) +
                                       " of them in use; asked for " + std::to_string(bytes));
  });
}

CUresult cuMemFree(CUdeviceptr address) {
  return call([&] {
    current_context();
    machine().captures.refuse_unsafe_call("cuMemFree");
    Device* const device = machine().device_of(address);
    // Grids that used the memory have ended before it is given again.
    if (device) ++machine().primary_contexts[static_cast<std::size_t>(device->ordinal)]->waits;
    if (device && device->memory.free(address)) return;
    fail(CUDA_ERROR_INVALID_VALUE, hexadecimal(address) + " is not the start of an allocation");
  });
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return now("cuMemcpyHtoD", [=] { upload(to, from, bytes); });
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return now("cuMemcpyDtoH", [=] { download(to, from, bytes); });
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return now("cuMemcpyDtoD", [=] { copy(to, from, bytes); });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return later(stream, [=] { upload(to, from, bytes); });
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return later(stream, [=] { download(to, from, bytes); });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return later(stream, [=] { copy(to, from, bytes); });
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, std::size_t count) {
  return now("cuMemsetD8", [=] { fill(to, value, 1, count); });
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned value, std::size_t count) {
  return now("cuMemsetD32", [=] { fill(to, value, 4, count); });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return later(stream, [=] { fill(to, value, 1, count); });
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return later(stream, [=] { fill(to, value, 4, count); });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return call([&] {
    require(data, "data");
    const Device& device = owner_of("the pointer", address, 1);
    const emulator::MemoryRange range = device.memory.allocation_of(address);
    switch (attribute) {
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        return give(data, machine().primary_handles[static_cast<std::size_t>(device.ordinal)]);
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return give(data, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return give(data, address);
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return give(data, device.ordinal);
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return give(data, 0u);
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return give(data, static_cast<CUdeviceptr>(range.begin));
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return give(data, range.bytes);
      default:
        fail(CUDA_ERROR_INVALID_VALUE,
             "an emulated device does not know pointer attribute " + std::to_string(attribute));
    }
  });
}

}  // namespace jit::emulated_driver
