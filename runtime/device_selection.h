// Devices that a process may compute on, as text and as a value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/arch.h>

namespace jit {

struct DeviceSelection {
  enum class Kind {
    cuda,
    emulated,
  };
  Kind kind = Kind::cuda;
  std::vector<Arch> emulated = {};  ///< an emulated device per architecture

  bool operator==(const DeviceSelection&) const = default;
};

/// Texts that parse_device_selection accepts.
inline constexpr std::string_view device_selections =
    "cuda, or emulated: and architectures, such as emulated:sm_90a or emulated:sm_90a,sm_80";

/// Parses a selection. Throws Error invalid_argument, naming the accepted texts.
DeviceSelection parse_device_selection(std::string_view text);
bool is_device_selection(std::string_view text);

/// The selection as parseable text: "emulated:sm_90a,sm_80".
std::string to_string(const DeviceSelection& selection);

}  // namespace jit
