#include "runtime/emulated_driver/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/emulated_driver/emulated_driver.h"

namespace jit::emulated_driver {
namespace {

constexpr int mib = 1 << 20;
// Distance between the address ranges of devices, so that an address identifies its device.
constexpr std::uint64_t device_stride = std::uint64_t{1} << 40;
static_assert(emulator::global_begin + max_devices * device_stride <= emulator::global_end);

int usual_l2_bytes(Arch arch) {
  switch (arch.major) {
    case 8:
      if (arch.minor == 0) return 40 * mib;  // A100
      if (arch.minor == 6) return 6 * mib;   // RTX 3090
      if (arch.minor == 9) return 72 * mib;  // RTX 4090
      return 4 * mib;                        // Orin
    case 9:
      return 50 * mib;  // H100
    case 10:
      return 126 * mib;  // B200
    case 11:
      return 32 * mib;  // Thor
    default:
      return 96 * mib;  // RTX 5090
  }
}

}  // namespace

DeviceProperties properties_of(Arch arch) {
  const bool large = (arch.major == 8 && arch.minor == 0) || (arch.major >= 9 && arch.major <= 10);
  const bool is_ada = arch.major == 8 && arch.minor == 9;
  return {.sm_count = usual_sm_count(arch),
          .l2_bytes = usual_l2_bytes(arch),
          .smem_per_block_optin = smem_per_block_optin(arch),
          .smem_per_sm = smem_per_sm(arch),
          .threads_per_sm = large ? 2048 : 1536,
          .blocks_per_sm = large                        ? 32
                           : arch.major == 8 && !is_ada ? 16
                                                        : 24};
}

Device::Device(int ordinal_in, Arch arch_in, std::size_t memory_bytes)
    : ordinal(ordinal_in),
      arch(arch_in),
      properties(properties_of(arch)),
      memory(memory_bytes, emulator::global_begin + static_cast<std::uint64_t>(ordinal) * device_stride) {}

std::string Device::name() const { return "emulated " + to_string(arch); }

CUuuid Device::uuid() const {
  CUuuid uuid{};
  const std::string text = "emu " + to_string(arch);
  std::memcpy(uuid.bytes, text.data(), std::min(text.size(), sizeof(uuid.bytes) - 1));
  uuid.bytes[sizeof(uuid.bytes) - 1] = static_cast<char>(ordinal);
  return uuid;
}

std::size_t default_memory_bytes() {
  constexpr std::size_t most = std::size_t{16} << 30, granularity = std::size_t{1} << 20;
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  return std::clamp(pages * page / 2, granularity, most) / granularity * granularity;
}

}  // namespace jit::emulated_driver
