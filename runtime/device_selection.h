// Which devices a process may compute on, as text and as a value.
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
  std::vector<Arch> emulated = {};  ///< one device of each

  bool operator==(const DeviceSelection&) const = default;
};

/// Texts that parse_device_selection accepts.
inline constexpr std::string_view device_selections =
    "cuda, or emulated: and architectures, such as emulated:sm_90a or emulated:sm_90a,sm_80";

/// Throws Error invalid_argument, naming what is accepted.
DeviceSelection parse_device_selection(std::string_view text);
bool is_device_selection(std::string_view text);

/// As it is parsed: "emulated:sm_90a,sm_80".
std::string to_string(const DeviceSelection& selection);

}  // namespace jit
