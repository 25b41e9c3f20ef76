// Libraries: PTX that was loaded, as each device of the machine runs it.
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

/// A kernel of a library. Its handle is good for as long as the library is loaded.
struct LoadedEntry {
  LoadedEntry(std::shared_ptr<Library> library, std::string name, std::size_t device_count);

  /// Fails with CUDA_ERROR_INVALID_PTX when the device does not run the library's text.
  emulator::Function code(const Device& device) const;

  /// Bytes of dynamic shared memory that a launch may ask for; what a block may have without asking, until
  /// set.
  int dynamic_smem_limit(const Device& device) const;
  /// Fails with CUDA_ERROR_INVALID_VALUE when a block of the device cannot have as much.
  void set_dynamic_smem_limit(const Device& device, int bytes);

  const std::shared_ptr<Library> library;
  const std::string name;

 private:
  std::vector<std::atomic<int>> dynamic_smem_limits_;  // by device; −1: not set
};

/// Fails with CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<LoadedEntry> find_entry(CUfunction function);

struct Library {
  /// Fails with CUDA_ERROR_INVALID_PTX when no device of the machine runs the text.
  Library(const std::string& ptx, Machine& machine);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Whether some device has a kernel of that name.
  bool has(const std::string& name) const;
  /// Fails with CUDA_ERROR_INVALID_PTX when the device does not run the library's text.
  const emulator::Module& module(const Device& device) const;
  /// Makes the library's variables on the device, unless they are there.
  void make_variables(Device& device) const;

  struct OnDevice {
    std::optional<emulator::Module> module;
    std::string refusal;  ///< why there is none
  };

  std::mutex mutex;  // guards what follows
  std::map<std::string, CUkernel, std::less<>> entries;

 private:
  Machine& machine_;
  const std::vector<OnDevice> modules_;  // by ordinal
};

}  // namespace jit::emulated_driver
