// Libraries: loaded PTX, as a module per device.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <cuda.h>

#include <emulator/module.h>

namespace jit::emulated_driver {

struct Device;
struct Library;
struct Machine;

/// A kernel of a library. Its handle is valid as long as the library is loaded.
struct LoadedEntry {
  LoadedEntry(std::shared_ptr<Library> library, std::string name, std::size_t device_count);

  /// The code for a device. Fails with CUDA_ERROR_INVALID_PTX if the device cannot run the library's PTX.
  emulator::Function code(const Device& device) const;

  /// The most dynamic shared memory of a launch in bytes; until it is set, the default limit of a block.
  int dynamic_smem_limit(const Device& device) const;
  /// Fails with CUDA_ERROR_INVALID_VALUE if a block of the device cannot have that much.
  void set_dynamic_smem_limit(const Device& device, int bytes);

  const std::shared_ptr<Library> library;
  const std::string name;

 private:
  std::vector<std::atomic<int>> dynamic_smem_limits_;  // by device; −1: not set
};

/// The kernel of a handle. Fails with CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<LoadedEntry> find_entry(CUfunction function);

struct Library {
  /// Fails with CUDA_ERROR_INVALID_PTX if no device of the machine can run the text.
  Library(const std::string& ptx, Machine& machine);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Whether some device has a kernel of that name.
  bool has(const std::string& name) const;
  /// The device's module. Fails with CUDA_ERROR_INVALID_PTX if the device cannot run the library's PTX.
  const emulator::Module& module(const Device& device) const;
  /// Creates the library's variables on the device unless they exist.
  void make_variables(Device& device) const;

  struct OnDevice {
    std::optional<emulator::Module> module;
    std::string refusal;  ///< why there is no module
  };

  std::mutex mutex;  // guards `entries`
  std::map<std::string, CUkernel, std::less<>> entries;

 private:
  Machine& machine_;
  const std::vector<OnDevice> modules_;  // by ordinal
};

}  // namespace jit::emulated_driver
