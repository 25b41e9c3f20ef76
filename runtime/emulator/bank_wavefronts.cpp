#include <algorithm>
#include <array>
#include <bit>

#include "runtime/emulator/shared_memory.h"

namespace jit::emulator {
namespace {

constexpr int bank_bytes = 4;
constexpr int row_bytes = 128;  // of all 32 banks

// Different units of `unit` bytes in the fullest place of a row, for the lanes of one phase.
int passes(std::span<const std::uint32_t, 32> offsets, std::uint32_t lanes, int unit) {
  const auto places = static_cast<std::uint32_t>(row_bytes / unit);
  const int shift = std::countr_zero(static_cast<unsigned>(unit));
  std::array<std::uint32_t, row_bytes / bank_bytes> first;
  std::uint32_t taken = 0, crowded = 0;
  for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
    const std::uint32_t index = offsets[static_cast<std::size_t>(std::countr_zero(left))] >> shift;
    const std::uint32_t place = index & (places - 1);
    if ((taken >> place & 1) == 0) {
      taken |= 1u << place;
      first[place] = index;
    } else if (first[place] != index) {
      crowded |= 1u << place;
    }
  }
  int most = 1;
  for (; crowded != 0; crowded &= crowded - 1) {
    const auto place = static_cast<std::uint32_t>(std::countr_zero(crowded));
    std::array<std::uint32_t, 32> found;
    std::size_t count = 0;
    for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
      const std::uint32_t index = offsets[static_cast<std::size_t>(std::countr_zero(left))] >> shift;
      if ((index & (places - 1)) == place) found[count++] = index;
    }
    std::sort(found.begin(), found.begin() + count);
    most =
        std::max(most, static_cast<int>(std::unique(found.begin(), found.begin() + count) - found.begin()));
  }
  return most;
}

}  // namespace

Wavefronts bank_wavefronts(std::span<const std::uint32_t, 32> offsets, std::uint32_t mask,
                           int bytes_per_lane) {
  const int unit = std::max(bytes_per_lane, bank_bytes);
  const int lanes = row_bytes / unit;
  const std::uint32_t phase = lanes == 32 ? ~0u : (1u << lanes) - 1;
  Wavefronts wavefronts;
  for (int first = 0; first < 32; first += lanes) {
    const std::uint32_t here = mask & phase << first;
    if (here == 0) continue;
    wavefronts.actual += passes(offsets, here, unit);
    ++wavefronts.ideal;
  }
  return wavefronts;
}

}  // namespace jit::emulator
