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
  std::vector<Library::OnDevice> programs;
  for (const auto& device : machine.devices) {
    Library::OnDevice& loaded = programs.emplace_back();
    // Devices of one architecture share the program, which never changes.
    const auto twin = std::find_if(machine.devices.begin(), machine.devices.begin() + device->ordinal,
                                   [&](const auto& other) { return other->arch == device->arch; });
    if ((*twin)->ordinal < device->ordinal) {
      loaded = programs[static_cast<std::size_t>((*twin)->ordinal)];
      continue;
    }
    try {
      loaded.program = emulator::load_program(ptx, device->target());
    } catch (const emulator::ptx::PtxError& error) {
      loaded.refusal = error.what();
    }
  }
  const bool is_usable = std::any_of(programs.begin(), programs.end(), [](const Library::OnDevice& loaded) {
    return loaded.program != nullptr;
  });
  if (!is_usable) fail(CUDA_ERROR_INVALID_PTX, programs.front().refusal);
  return programs;
}

}  // namespace

LoadedEntry::LoadedEntry(std::shared_ptr<Library> library_in, std::string name_in, std::size_t device_count)
    : library(std::move(library_in)), name(std::move(name_in)), dynamic_smem_limits_(device_count) {
  for (std::atomic<int>& bytes : dynamic_smem_limits_) bytes = -1;
}

DeviceCode LoadedEntry::code(const Device& device) const {
  const Library::OnDevice& loaded = library->programs[static_cast<std::size_t>(device.ordinal)];
  if (!loaded.program) fail(CUDA_ERROR_INVALID_PTX, loaded.refusal);
  const emulator::Kernel* const kernel = loaded.program->find(name);
  return {loaded.program, *kernel};
}

int LoadedEntry::dynamic_smem_limit(const Device& device) const {
  const int set = dynamic_smem_limits_[static_cast<std::size_t>(device.ordinal)];
  if (set >= 0) return set;
  return std::max(0, default_smem_bytes - static_cast<int>(code(device).kernel.static_smem_bytes));
}

void LoadedEntry::set_dynamic_smem_limit(const Device& device, int bytes) {
  const int most =
      device.properties.smem_per_block_optin - static_cast<int>(code(device).kernel.static_smem_bytes);
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

Library::Library(const std::string& ptx, const Machine& machine) : programs(load_on_all(ptx, machine)) {}

Library::~Library() {
  for (const auto& [device, address] : addresses) {
    if (address != 0) device->memory.free(address);
  }
}

bool Library::has(const std::string& name) const {
  return std::any_of(programs.begin(), programs.end(), [&](const OnDevice& loaded) {
    return loaded.program && loaded.program->find(name) != nullptr;
  });
}

std::uint64_t Library::variables(Device& device) {
  const OnDevice& loaded = programs[static_cast<std::size_t>(device.ordinal)];
  if (!loaded.program) fail(CUDA_ERROR_INVALID_PTX, loaded.refusal);
  const std::lock_guard lock(mutex);
  std::uint64_t& address = addresses[&device];
  if (address == 0 && !loaded.program->globals.empty()) {
    address = emulator::place_globals(*loaded.program, device.memory);
    if (address == 0) fail(CUDA_ERROR_OUT_OF_MEMORY, "memory is short for the variables of the library");
  }
  return address;
}

}  // namespace jit::emulated_driver
