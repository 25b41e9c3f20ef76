// A CUDA driver whose devices are emulated: the same table of entry points as the real one, over
// emulator. Work is done by the call that enqueues it; nothing else differs for a correct program.
// Errors say more than a real driver's: cuGetErrorString gives what was found in the calling thread's last
// call.
#pragma once

#include <cstdint>
#include <vector>

#include <jit/arch.h>

namespace jit {

struct DriverApi;

namespace emulated_driver {

/// As many find room in the address space.
inline constexpr int max_devices = 64;

struct Options {
  std::vector<Arch> devices;  ///< one of each; not empty, at most max_devices
  std::uint64_t seed = 0;     ///< of the order in which warps run and asynchronous operations complete
  std::uint64_t step_limit = std::uint64_t{1} << 40;  ///< warp instructions of one block, or cluster
};

/// Makes the devices, which live as long as the process, and fills the table. Call once in a process.
void start(const Options& options, DriverApi& api);

/// The architecture that was asked for, with suffix.
Arch arch_of_device(int ordinal);

}  // namespace emulated_driver
}  // namespace jit
