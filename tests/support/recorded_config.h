// Configs as records of earlier versions have them.
#pragma once

#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include <jit/error.h>
#include <jit/kernel_config.h>

namespace jit::testing {

/// The config of a recorded text, which may name retired fields with the values that hold now; nothing where it was of a
/// kernel that there is no more.
inline std::optional<KernelConfig> recorded_config(const std::string& text) {
  static const std::set<std::string_view> holding = {
      "q_in_registers=false",  "p_in_registers=true",    "overlap=true",      "persistent=true",
      "dependent_launch=true", "dependent_launch=false", "polynomial_exp2=0", "swizzle=xor_chunks",
      "ldmatrix_matrices=4",   "separate_o=false",       "direct_o=false"};
  const bool has_own = text.find("family=forward_mma_sync") != std::string::npos;  // a q_in_registers
  std::istringstream words(text);
  std::string kept;
  for (std::string word; words >> word;) {
    if (word == "separate_o=true") word = "output=separate";
    if (word == "direct_o=true") word = "output=direct";
    if (!holding.contains(word) || (has_own && word == "q_in_registers=false")) kept += word + " ";
  }
  try {
    const KernelConfig config = parse_config(kept);
    const auto* const wgmma = std::get_if<ForwardWgmma>(&config);
    if (wgmma != nullptr && wgmma->rescale == Rescale::always) return std::nullopt;
    return config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace jit::testing
