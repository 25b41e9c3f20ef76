// Which device a command computes on: the one place that knows.
#pragma once

#include <string>

#include <jit/device.h>

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

void add_device_option(CLI::App& app, std::string& device);

/// The device that `choice` names: "auto" is the first GPU, "cuda:1" the second. Throws BadInput for other
/// text and an ordinal that there is not, Error driver_unavailable when there is no GPU.
DeviceInfo choose_device(const std::string& choice);

}  // namespace jit::tool
