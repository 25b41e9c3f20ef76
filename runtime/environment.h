// Variables that the library itself reads from the environment, beside the Settings of a Context.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jit {

/// Settings that are decided once for a whole process, by the first call that needs a device.
struct DeviceSettings {
  std::string device = "cuda";      ///< as use_device() takes it
  std::uint64_t emulator_seed = 0;  ///< of the order in which warps run and asynchronous operations complete
  std::uint64_t emulator_step_limit = std::uint64_t{1} << 40;  ///< warp instructions of one block, or cluster
};
/// From JIT_ATTENTION_DEVICE and JIT_ATTENTION_EMULATOR_…. Throws as settings_from_environment() does.
DeviceSettings device_settings_from_environment();

/// The value of any environment variable; empty when it is unset, and in a set-uid program.
std::string environment(const std::string& name);

/// The parts of a list like that of PATH, without the empty ones.
std::vector<std::string> split_paths(std::string_view text);

}  // namespace jit
