#include <jit/arch.h>
#include <jit/error.h>

#include <fmt/format.h>

namespace jit {

std::string to_string(Arch arch) {
  std::string text = fmt::format("sm_{}{}", arch.major, arch.minor);
  if (arch.suffix != 0) text += arch.suffix;
  return text;
}

const std::vector<Arch>& known_archs() {
  static const std::vector<Arch> archs = {
      {8, 0},       {8, 6},  {8, 7},       {8, 8},       {8, 9},  {9, 0},
      {9, 0, 'a'},  {10, 0}, {10, 0, 'a'}, {10, 0, 'f'}, {10, 3}, {10, 3, 'a'},
      {10, 3, 'f'}, {11, 0}, {11, 0, 'a'}, {11, 0, 'f'}, {12, 0}, {12, 0, 'a'},
      {12, 0, 'f'}, {12, 1}, {12, 1, 'a'}, {12, 1, 'f'},
  };
  return archs;
}

Arch parse_arch(std::string_view text) {
  std::string accepted;
  for (Arch arch : known_archs()) {
    const std::string name = to_string(arch);
    if (text == name || text == std::string_view(name).substr(3)) return arch;
    accepted += (accepted.empty() ? "" : ", ") + name;
  }
  throw Error(
      ErrorCode::invalid_argument, "validate", "arch",
      fmt::format("\"{}\" is no architecture that kernels are written for; accepted: {}", text, accepted));
}

bool runs_on(Arch cubin, Arch device) {
  if (cubin.major != device.major) return false;
  return cubin.suffix == 'a' ? cubin.minor == device.minor : cubin.minor <= device.minor;
}

int smem_per_sm(Arch arch) {
  constexpr int kib = 1024;
  switch (arch.major) {
    case 8:
      return (arch.minor == 0 || arch.minor == 7 ? 164 : 100) * kib;
    case 9:
    case 10:
    case 11:
      return 228 * kib;
    case 12:
      return 100 * kib;
    default:
      return 64 * kib;
  }
}

int usual_sm_count(Arch arch) {
  if (arch.major == 8 && arch.minor == 6) return 84;   // RTX 3090 / A40
  if (arch.major == 8 && arch.minor == 9) return 128;  // RTX 4090
  if (arch.major == 9) return 132;                     // H100, H200
  if (arch.major == 10) return 148;                    // B200
  if (arch.major == 11) return 20;                     // Thor
  if (arch.major == 12) return 170;                    // RTX 5090
  return 108;                                          // A100
}

int smem_per_block_optin(Arch arch) {
  constexpr int kib = 1024;
  // The driver reserves 1 KiB per block.
  return arch.major >= 8 && arch.major <= 12 ? smem_per_sm(arch) - kib : 48 * kib;
}

}  // namespace jit
