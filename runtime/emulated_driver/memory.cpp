// Entry points of memory: allocating, copying, filling, querying pointers.
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

void check_range(const char* what, CUdeviceptr address, std::size_t bytes) {
  const emulator::MemoryRange range = owner_of(what, address, bytes).memory.allocation_of(address);
  if (bytes > range.bytes - (address - range.begin)) refuse_range(what, address, bytes);
}

void check_aligned(CUdeviceptr address, int width) {
  if (address % static_cast<unsigned>(width) == 0) return;
  fail(CUDA_ERROR_INVALID_VALUE,
       hexadecimal(address) + " is not aligned to " + std::to_string(width) + " bytes");
}

void fill(CUdeviceptr to, std::uint32_t value, int width, std::size_t count) {
  if (count == 0) return;
  const std::size_t bytes = count * static_cast<std::size_t>(width);
  check_aligned(to, width);
  if (!owner_of("the destination", to, bytes).memory.fill(to, value, width, count)) {
    refuse_range("the destination", to, bytes);
  }
}

// Stream works: copies between host and device, in both directions, and fills.
Work upload_work(CUdeviceptr to, const void* from, std::size_t bytes) {
  return alone([=] { upload(to, from, bytes); },
               [=](const Place& place) {
                 if (bytes == 0) return;
                 require(from, "srcHost");
                 check_range("the destination", to, bytes);
                 // Copied now: when the call returns, a real driver has read memory that is not pinned.
                 const auto* const begin = static_cast<const std::byte*>(from);
                 const auto taken = std::make_shared<const std::vector<std::byte>>(begin, begin + bytes);
                 place.group.upload(place.queue, to, taken->data(), bytes,
                                    [taken, note = place.ended()](std::vector<emulator::Finding> findings) {
                                      note(std::move(findings));
                                    });
               });
}

Work download_work(void* to, CUdeviceptr from, std::size_t bytes) {
  return alone([=] { download(to, from, bytes); },
               [=](const Place& place) {
                 if (bytes == 0) return;
                 require(to, "dstHost");
                 check_range("the source", from, bytes);
                 place.group.download(place.queue, to, from, bytes, place.ended());
               });
}

Work copy_work(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return alone([=] { copy(to, from, bytes); },
               [=](const Place& place) {
                 if (bytes == 0) return;
                 check_range("the source", from, bytes);
                 check_range("the destination", to, bytes);
                 place.group.copy(place.queue, to, from, bytes, place.ended());
               });
}

Work fill_work(CUdeviceptr to, std::uint32_t value, int width, std::size_t count) {
  return alone([=] { fill(to, value, width, count); },
               [=](const Place& place) {
                 if (count == 0) return;
                 check_aligned(to, width);
                 check_range("the destination", to, count * static_cast<std::size_t>(width));
                 place.group.fill(place.queue, to, value, width, count, place.ended());
               });
}

// Runs work without a stream on the default stream, if no capture forbids it, and waits.
CUresult now(const char* name, const Work& work) {
  return call([&] {
    Stream& stream = *current_context().legacy_stream;
    machine().captures.refuse_unsafe_call(name);
    enqueue(stream, work);
    if (machine().peers.has(stream.context)) machine().peers.finish(stream);
  });
}

CUresult later(CUstream handle, const Work& work) {
  return call([&] { enqueue(*find_stream(handle), work); });
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
    if (device) {
      Context& owner = *machine().primary_contexts[static_cast<std::size_t>(device->ordinal)];
      if (machine().peers.has(owner)) machine().peers.drain(owner);
    }
    // Grids that used the memory have ended before it is reused.
    if (device) ++machine().primary_contexts[static_cast<std::size_t>(device->ordinal)]->waits;
    if (device && device->memory.free(address)) return;
    fail(CUDA_ERROR_INVALID_VALUE, hexadecimal(address) + " is not the start of an allocation");
  });
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return now("cuMemcpyHtoD", upload_work(to, from, bytes));
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return now("cuMemcpyDtoH", download_work(to, from, bytes));
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return now("cuMemcpyDtoD", copy_work(to, from, bytes));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return later(stream, upload_work(to, from, bytes));
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return call([&] {
    const std::shared_ptr<Stream> on = find_stream(stream);
    const bool is_captured = machine().captures.status(*on) != CU_STREAM_CAPTURE_STATUS_NONE;
    enqueue(*on, download_work(to, from, bytes));
    // Waits, as a real driver does if the memory is not pinned.
    if (!is_captured && machine().peers.has(on->context)) machine().peers.finish(*on);
  });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return later(stream, copy_work(to, from, bytes));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           std::size_t bytes, CUstream handle) {
  return call([&] {
    const auto check = [&](const char* what, CUdeviceptr address, CUcontext context) {
      if (bytes != 0 && &owner_of(what, address, bytes) != &machine().contexts.find(context)->device)
        fail(CUDA_ERROR_INVALID_VALUE, std::string(what) + " is no memory of its context's device");
    };
    check("the destination", to, to_context);
    check("the source", from, from_context);
    enqueue(*find_stream(handle), copy_work(to, from, bytes));
  });
}

CUresult cuStreamWriteValue32(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return call([&] {
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT)
      fail(CUDA_ERROR_NOT_SUPPORTED, "flags must be CU_STREAM_WRITE_VALUE_DEFAULT");
    check_aligned(address, 4);
    check_range("the address", address, sizeof value);
    enqueue(*find_stream(handle), alone([=] { fill(address, value, 4, 1); },
                                        [=](const Place& place) {
                                          place.group.write_value(place.queue, address, value, place.ended());
                                        }));
  });
}

CUresult cuStreamWaitValue32(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return call([&] {
    if (flags > CU_STREAM_WAIT_VALUE_NOR) fail(CUDA_ERROR_INVALID_VALUE, "flags name no comparison");
    const auto compare = static_cast<emulator::Group::Compare>(flags);
    check_aligned(address, 4);
    check_range("the address", address, sizeof value);
    enqueue(*find_stream(handle),
            alone(
                [=] {
                  std::uint32_t word = 0;
                  download(&word, address, sizeof word);
                  if (!emulator::Group::is_over(compare, word, value)) {
                    fail(CUDA_ERROR_LAUNCH_FAILED,
                         "the stream waits for a value that nothing will write: work is done "
                         "by the call that enqueues it, unless cuCtxEnablePeerAccess has "
                         "been called");
                  }
                },
                [=](const Place& place) {
                  place.group.wait_value(place.queue, address, value, compare, place.ended());
                }));
  });
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, std::size_t count) {
  return now("cuMemsetD8", fill_work(to, value, 1, count));
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned value, std::size_t count) {
  return now("cuMemsetD32", fill_work(to, value, 4, count));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return later(stream, fill_work(to, value, 1, count));
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return later(stream, fill_work(to, value, 4, count));
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
