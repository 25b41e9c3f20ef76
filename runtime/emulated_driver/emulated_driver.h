// A CUDA driver for emulated devices: the real driver's table of entry points, over emulator. The call that
// enqueues work also does it, unless the device has peers; correct programs see no other difference. Errors
// say more than a real driver's: cuGetErrorString describes the failure of the calling thread's last call.
#pragma once

#include <cstdint>
#include <vector>

#include <jit/arch.h>

namespace jit {

struct DriverApi;

namespace emulated_driver {

/// The address space has room for this many.
inline constexpr int max_devices = 64;

struct Options {
  std::vector<Arch> devices;  ///< one of each; not empty, at most max_devices
  std::uint64_t seed = 0;     ///< for the order of warps and of the completion of asynchronous operations
  std::uint64_t step_limit = std::uint64_t{1} << 40;  ///< warp instructions per block or cluster
};

/// Makes the devices, which live as long as the process, and fills the table. Call once in a process.
void start(const Options& options, DriverApi& api);

/// The requested architecture, with its suffix.
Arch arch_of_device(int ordinal);

}  // namespace emulated_driver
}  // namespace jit
