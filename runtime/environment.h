// Environment variables that the library reads besides the Settings of a Context.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jit {

/// Process-wide settings, read by the first call that needs a device.
struct DeviceSettings {
  std::string device = "cuda";      ///< as in use_device()
  std::uint64_t emulator_seed = 0;  ///< orders warps and the completion of asynchronous operations
  std::uint64_t emulator_step_limit = std::uint64_t{1} << 40;  ///< warp instructions per block or cluster
};
/// Reads JIT_ATTENTION_DEVICE and JIT_ATTENTION_EMULATOR_…. Throws the errors of settings_from_environment().
DeviceSettings device_settings_from_environment();

/// The value of any environment variable; empty when it is unset, and in a set-uid program.
std::string environment(const std::string& name);

/// The nonempty parts of a list such as PATH.
std::vector<std::string> split_paths(std::string_view text);

}  // namespace jit
