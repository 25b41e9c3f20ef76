#include "runtime/emulated_driver/machine.h"

#include <string>

#include "runtime/emulated_driver/entries.h"

namespace jit::emulated_driver {
namespace {

// Never destroyed: buffers with static storage may outlive any static object here.
Machine*& instance() {
  static Machine* machine = nullptr;
  return machine;
}

}  // namespace

Machine::Machine(const Options& options)
    : seed(options.seed), step_limit(options.step_limit), peers(options.seed) {
  for (const Arch arch : options.devices) {
    const int ordinal = static_cast<int>(devices.size());
    devices.push_back(std::make_unique<Device>(ordinal, arch, default_memory_bytes()));
    primary_contexts.push_back(std::make_shared<Context>(*devices.back()));
    primary_handles.push_back(contexts.add(primary_contexts.back()));
  }
}

Device& Machine::device(CUdevice ordinal) const {
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) {
    fail(CUDA_ERROR_INVALID_DEVICE,
         "there is no device " + std::to_string(ordinal) + " among " + std::to_string(devices.size()));
  }
  return *devices[static_cast<std::size_t>(ordinal)];
}

Device* Machine::device_of(CUdeviceptr address) const {
  for (const auto& device : devices) {
    if (device->memory.allocation_of(address).bytes > 0) return device.get();
  }
  return nullptr;
}

Machine& machine() { return *instance(); }

void start(const Options& options, DriverApi& api) {
  instance() = new Machine(options);
  constexpr int version = 13000;  // entry points behave as in that driver
  api.version = version;
  api.emulated = true;
#define JIT_EMULATED_ADDRESS(function, since) api.function = &emulated_driver::function;
  JIT_DRIVER_ENTRIES(JIT_EMULATED_ADDRESS)
  JIT_PEER_ENTRIES(JIT_EMULATED_ADDRESS)
#undef JIT_EMULATED_ADDRESS
}

Arch arch_of_device(int ordinal) { return machine().device(ordinal).arch; }

}  // namespace jit::emulated_driver
