#include "device_choice.h"

#include <charconv>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command.h"

namespace jit::tool {

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "auto, or cuda:N for GPU number N")->capture_default_str();
}

DeviceInfo choose_device(const std::string& choice) {
  if (choice == "auto") return device_info(0);
  constexpr std::string_view prefix = "cuda:";
  int ordinal = 0;
  const char* const end = choice.data() + choice.size();
  const bool named = choice.starts_with(prefix);
  const auto result = named ? std::from_chars(choice.data() + prefix.size(), end, ordinal)
                            : std::from_chars_result{end, std::errc::invalid_argument};
  if (result.ec != std::errc{} || result.ptr != end) {
    throw BadInput(fmt::format("--device must be auto or cuda:N, not '{}'", choice));
  }
  return device_info(ordinal);
}

}  // namespace jit::tool
