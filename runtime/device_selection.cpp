#include "runtime/device_selection.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <jit/error.h>

#include "runtime/emulated_driver/emulated_driver.h"

namespace jit {
namespace {

constexpr std::string_view emulated_prefix = "emulated:";

std::optional<Arch> find_arch(std::string_view name) {
  const std::vector<Arch>& archs = known_archs();
  const auto found =
      std::find_if(archs.begin(), archs.end(), [&](Arch arch) { return to_string(arch) == name; });
  return found == archs.end() ? std::nullopt : std::optional(*found);
}

std::optional<DeviceSelection> parse(std::string_view text) {
  if (text == "cuda") return DeviceSelection{};
  if (!text.starts_with(emulated_prefix)) return {};
  text.remove_prefix(emulated_prefix.size());
  DeviceSelection selection{.kind = DeviceSelection::Kind::emulated};
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::optional<Arch> arch = find_arch(text.substr(0, comma));
    if (!arch || selection.emulated.size() == emulated_driver::max_devices) return {};
    selection.emulated.push_back(*arch);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return selection;
}

}  // namespace

DeviceSelection parse_device_selection(std::string_view text) {
  if (std::optional<DeviceSelection> selection = parse(text)) return *std::move(selection);
  std::string archs;
  for (const Arch arch : known_archs()) archs += (archs.empty() ? "" : ", ") + to_string(arch);
  throw Error(ErrorCode::invalid_argument, "driver", "device",
              fmt::format("\"{}\" names no device; accepted: {}; the architectures are {}", text,
                          device_selections, archs));
}

bool is_device_selection(std::string_view text) { return parse(text).has_value(); }

std::string to_string(const DeviceSelection& selection) {
  if (selection.kind == DeviceSelection::Kind::cuda) return "cuda";
  std::string text(emulated_prefix);
  for (const Arch arch : selection.emulated) text += (text.ends_with(':') ? "" : ",") + to_string(arch);
  return text;
}

}  // namespace jit
