/// @file
/// GPU architectures as values, and their properties. All functions are pure and thread safe.
///
/// @code
/// const jit::Arch arch = jit::parse_arch("sm_90a");
/// assert(arch.major == 9 && jit::to_string(arch) == "sm_90a");
/// assert(jit::runs_on(arch, jit::parse_arch("sm_90")) && !jit::runs_on(arch, jit::parse_arch("sm_100")));
/// assert(jit::smem_per_block_optin(arch) == 227 * 1024 && jit::smem_per_sm(arch) == 228 * 1024);
/// assert(jit::usual_sm_count(arch) == 132);
/// for (const jit::Arch target : jit::known_archs()) std::puts(jit::to_string(target).c_str());
/// @endcode
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace jit {

/// A compute capability, as a compile target ("sm_90a") or as the property of a device ("sm_90").
struct Arch {
  int major = 0;  ///< 9 of sm_90a
  int minor = 0;  ///< 0 of sm_90a
  /// 0: plain, 'a': this capability alone, 'f': this family (same major, same or later minor).
  char suffix = 0;

  auto operator<=>(const Arch&) const = default;  ///< by major, minor and suffix
};

/// "sm_90a", "90a" and the like. Throws Error invalid_argument, naming what is accepted, for anything else.
Arch parse_arch(std::string_view text);

/// "sm_90a".
std::string to_string(Arch arch);

/// Every compile target of the library, in ascending order.
const std::vector<Arch>& known_archs();

/// True when a cubin built for `cubin` loads on `device`; the suffix of `device` plays no role.
bool runs_on(Arch cubin, Arch device);

/// Shared memory in bytes that one block may have at most (opt-in limit); 48 KiB for an unknown architecture.
int smem_per_block_optin(Arch arch);

/// Shared memory in bytes of one multiprocessor; 64 KiB for an unknown architecture.
int smem_per_sm(Arch arch);

/// Multiprocessors of the architecture's usual data-center or desktop part.
int usual_sm_count(Arch arch);

}  // namespace jit
