#include "generator/launch/fault_slot.h"

#include <utility>

#include "generator/launch/memory_sizes.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"

namespace jit {
namespace {

void clear(const DeviceBuffer& slot, CUstream stream) {
  check(driver().cuMemsetD8Async(slot.address(), 0, slot.size(), stream), "cuMemsetD8Async");
}

ArrayFault read(const DeviceBuffer& slot, CUstream stream) {
  ArrayFault noted{};
  check(driver().cuMemcpyDtoHAsync(&noted, slot.address(), sizeof(noted), stream), "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return noted;
}

bool is_fault(const ArrayFault& noted) { return noted.array != SequenceArrayId::none; }

}  // namespace

std::unique_ptr<const DeviceBuffer> FaultSlots::take(int device) const {
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<const DeviceBuffer>>& free = slots_[device].free;
    if (!free.empty()) {
      std::unique_ptr<const DeviceBuffer> slot = std::move(free.back());
      free.pop_back();
      return slot;
    }
  }
  const RelaxedCapture relaxed;
  return std::make_unique<const DeviceBuffer>(device, sizeof(ArrayFault));
}

void FaultSlots::give_back(int device, std::unique_ptr<const DeviceBuffer> slot) const {
  const std::lock_guard lock(mutex_);
  slots_[device].free.push_back(std::move(slot));
}

const DeviceBuffer& FaultSlots::of_graphs(int device) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const DeviceBuffer>& slot = slots_[device].of_graphs;
  if (slot == nullptr) slot = make_filled(device, sizeof(ArrayFault), 0);
  return *slot;
}

std::optional<ArrayFault> FaultSlots::take_of_graphs(int device, CUstream stream) const {
  const std::lock_guard taking(taking_);
  const DeviceBuffer* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    slot = slots_[device].of_graphs.get();
  }
  if (slot == nullptr) return std::nullopt;
  const ArrayFault noted = read(*slot, stream);
  if (!is_fault(noted)) return std::nullopt;
  clear(*slot, stream);
  check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  return noted;
}

FaultSlot::FaultSlot(const FaultSlots& slots, int device, CUstream stream)
    : slots_(slots), device_(device), stream_(stream) {
  if (is_capturing(stream)) return;
  own_ = slots.take(device);
  clear(*own_, stream);
}

FaultSlot::~FaultSlot() {
  if (own_ == nullptr) return;
  if (!is_done_) driver().cuStreamSynchronize(stream_);
  slots_.give_back(device_, std::move(own_));
}

ArrayFault* FaultSlot::address() const {
  return static_cast<ArrayFault*>((own_ ? *own_ : slots_.of_graphs(device_)).data());
}

std::optional<ArrayFault> FaultSlot::take() {
  if (own_ == nullptr) return std::nullopt;
  const ArrayFault noted = read(*own_, stream_);
  is_done_ = true;
  if (is_fault(noted)) return noted;
  return slots_.take_of_graphs(device_, stream_);
}

}  // namespace jit
