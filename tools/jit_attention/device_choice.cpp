#include "device_choice.h"

#include <charconv>
#include <string_view>

#include <fmt/format.h>
#include <jit/error.h>
#include <CLI/CLI.hpp>

#include "command.h"

namespace jit::tool {

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option(
      "--device", device,
      "cuda:N for GPU number N, or an emulated one such as emulated:sm_90a; default: the first that "
      "JIT_ATTENTION_DEVICE names");
}

DeviceInfo choose_device(const std::string& choice) {
  if (choice.empty()) return device_info(0);
  if (choice.starts_with("emulated:")) {
    use_device(choice);
    return device_info(0);
  }
  constexpr std::string_view prefix = "cuda:";
  int ordinal = 0;
  const char* const end = choice.data() + choice.size();
  const bool named = choice.starts_with(prefix);
  const auto result = named ? std::from_chars(choice.data() + prefix.size(), end, ordinal)
                            : std::from_chars_result{end, std::errc::invalid_argument};
  if (result.ec != std::errc{} || result.ptr != end || ordinal < 0) {
    throw BadInput(fmt::format("--device must be cuda:N or emulated:ARCH, not '{}'", choice));
  }
  use_device("cuda");
  return device_info(ordinal);
}

DeviceInfo choose_timed_device(const std::string& choice, std::string_view command) {
  DeviceInfo device = choose_device(choice);
  if (!device.emulated) return device;
  throw Error(
      ErrorCode::unsupported_device, "tune", "device",
      fmt::format("{} measures time, which an emulated device does not model; it needs a GPU", command));
}

std::string device_name(const DeviceInfo& device) {
  return device.emulated ? "emulated:" + to_string(device.arch) : fmt::format("cuda:{}", device.ordinal);
}

}  // namespace jit::tool
