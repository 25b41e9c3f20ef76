#include <algorithm>
#include <array>
#include <bit>

#include "machine/shared_memory.h"

namespace jit::emulator {
namespace {

constexpr int bank_bytes = 4;
constexpr int row_bytes = 128;  // of all 32 banks

// A lane's unit of `1 << shift` bytes; a row of all banks has `places` units.
struct Units {
  SharedMemory::Offsets offsets;
  int shift;
  std::uint32_t places;

  std::uint32_t index(int lane) const { return offsets[static_cast<std::size_t>(lane)] >> shift; }
  std::uint32_t place(int lane) const { return index(lane) & (places - 1); }
};

// Passes of a phase: the most distinct units at one position.
int count_passes(const Units& units, std::uint32_t lanes) {
  std::array<std::array<std::uint32_t, 32>, 32> found;
  std::array<int, 32> counts = {};
  int most = 1;
  for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    auto& here = found[units.place(lane)];
    int& count = counts[units.place(lane)];
    if (std::find(here.begin(), here.begin() + count, units.index(lane)) != here.begin() + count) continue;
    here[static_cast<std::size_t>(count++)] = units.index(lane);
    most = std::max(most, count);
  }
  return most;
}

// Passes for the lanes of one phase; fast when each lane has a position of its own.
int passes(const Units& units, std::uint32_t lanes) {
  std::uint32_t taken = 0;
  for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
    taken |= 1u << units.place(std::countr_zero(left));
  }
  return std::popcount(taken) == std::popcount(lanes) ? 1 : count_passes(units, lanes);
}

}  // namespace

Wavefronts bank_wavefronts(std::span<const std::uint32_t, 32> offsets, std::uint32_t mask,
                           int bytes_per_lane) {
  const int unit = std::max(bytes_per_lane, bank_bytes);
  const int lanes = row_bytes / unit;
  const Units units{offsets, std::countr_zero(static_cast<unsigned>(unit)),
                    static_cast<std::uint32_t>(lanes)};
  const std::uint32_t phase = lanes == 32 ? ~0u : (1u << lanes) - 1;
  Wavefronts wavefronts;
  for (int first = 0; first < 32; first += lanes) {
    const std::uint32_t here = mask & phase << first;
    if (here == 0) continue;
    wavefronts.actual += passes(units, here);
    ++wavefronts.ideal;
  }
  return wavefronts;
}

}  // namespace jit::emulator
