#include "runtime/emulated_driver/library.h"

#include <algorithm>
#include <utility>

#include "runtime/emulated_driver/call.h"
#include "runtime/emulated_driver/device.h"
#include "runtime/emulated_driver/limits.h"
#include "runtime/emulated_driver/machine.h"

namespace jit::emulated_driver {
namespace {

std::vector<Library::OnDevice> load_on_all(const std::string& ptx, const Machine& machine) {
  std::vector<Library::OnDevice> modules;
  for (const auto& device : machine.devices) {
    Library::OnDevice& loaded = modules.emplace_back();
    // Devices of one architecture share the immutable module.
    const auto twin = std::find_if(machine.devices.begin(), machine.devices.begin() + device->ordinal,
                                   [&](const auto& other) { return other->arch == device->arch; });
    if ((*twin)->ordinal < device->ordinal) {
      loaded = modules[static_cast<std::size_t>((*twin)->ordinal)];
      continue;
    }
    try {
      loaded.module.emplace(ptx, device->target());
    } catch (const emulator::PtxError& error) {
      loaded.refusal = error.what();
    }
  }
  const bool is_usable = std::any_of(modules.begin(), modules.end(), [](const Library::OnDevice& loaded) {
    return loaded.module.has_value();
  });
  if (!is_usable) fail(CUDA_ERROR_INVALID_PTX, modules.front().refusal);
  return modules;
}

}  // namespace

LoadedEntry::LoadedEntry(std::shared_ptr<Library> library_in, std::string name_in, std::size_t device_count)
    : library(std::move(library_in)), name(std::move(name_in)), dynamic_smem_limits_(device_count) {
  for (std::atomic<int>& bytes : dynamic_smem_limits_) bytes = -1;
}

emulator::Function LoadedEntry::code(const Device& device) const {
  return library->module(device).function(name);
}

int LoadedEntry::dynamic_smem_limit(const Device& device) const {
  const int set = dynamic_smem_limits_[static_cast<std::size_t>(device.ordinal)];
  if (set >= 0) return set;
  return std::max(0, default_smem_bytes - static_cast<int>(code(device).static_smem_bytes()));
}

void LoadedEntry::set_dynamic_smem_limit(const Device& device, int bytes) {
  const int most =
      device.properties.smem_per_block_optin - static_cast<int>(code(device).static_smem_bytes());
  if (bytes < 0 || bytes > most) {
    fail(CUDA_ERROR_INVALID_VALUE, std::to_string(bytes) + " bytes of dynamic shared memory for " + name +
                                       "; a block of " + device.name() + " may have 0 to " +
                                       std::to_string(most) + " beside its static ones");
  }
  dynamic_smem_limits_[static_cast<std::size_t>(device.ordinal)] = bytes;
}

std::shared_ptr<LoadedEntry> find_entry(CUfunction function) {
  return machine().kernels.find(reinterpret_cast<CUkernel>(function));
}

Library::Library(const std::string& ptx, Machine& machine)
    : machine_(machine), modules_(load_on_all(ptx, machine)) {}

Library::~Library() {
  for (const auto& device : machine_.devices) {
    const OnDevice& loaded = modules_[static_cast<std::size_t>(device->ordinal)];
    if (loaded.module) device->memory.unload(*loaded.module);
  }
}

bool Library::has(const std::string& name) const {
  return std::any_of(modules_.begin(), modules_.end(),
                     [&](const OnDevice& loaded) { return loaded.module && loaded.module->find(name); });
}

const emulator::Module& Library::module(const Device& device) const {
  const OnDevice& loaded = modules_[static_cast<std::size_t>(device.ordinal)];
  if (!loaded.module) fail(CUDA_ERROR_INVALID_PTX, loaded.refusal);
  return *loaded.module;
}

void Library::make_variables(Device& device) const {
  if (!device.memory.load(module(device))) {
    fail(CUDA_ERROR_OUT_OF_MEMORY, "memory is short for the variables of the library");
  }
}

}  // namespace jit::emulated_driver
