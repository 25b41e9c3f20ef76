// The choice of a command's device, in one place.
#pragma once

#include <string>
#include <string_view>

#include <jit/device.h>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

void add_device_option(CLI::App& app, std::string& device);

/// The device that `choice` names: "cuda:1" is the second GPU, "emulated:sm_90a" an emulated one, "" the
/// first that JIT_ATTENTION_DEVICE names. Sets the process's device. Throws BadInput for other text and
/// invalid ordinals, Error driver_unavailable without a GPU.
DeviceInfo choose_device(const std::string& choice);

/// Chooses a device for a command that measures time; throws Error unsupported_device, starting with
/// `command`, for an emulated one.
DeviceInfo choose_timed_device(const std::string& choice, std::string_view command);

/// The device's --device text: "cuda:0", "emulated:sm_90a".
std::string device_name(const DeviceInfo& device);

}  // namespace jit::tool
