// Which probabilities dropout keeps, on the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "templates/base/philox.cuh"

namespace jit::reference {

/// The random numbers of a call.
struct Dropout {
  double rate = 0;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;

  /// As templates/steps/dropout.cuh words it.
  bool keeps(int heads, int b, int h, int q, int k) const {
    const auto word = [](std::uint64_t number) { return static_cast<unsigned>(number); };
    const auto at = [](int number) { return static_cast<std::uint64_t>(number); };
    const std::uint64_t low = offset + (at(b) * at(heads) + at(h)) * 32 + at(q % 8 * 4 + k % 8 / 2);
    const PhiloxWords random = philox<7>({{word(low), word(low >> 32), word(at(q / 16)), word(at(k / 32))}},
                                         word(seed), word(seed >> 32));
    const unsigned byte = random.words[k % 32 / 8] >> (8 * (q % 16 / 8 * 2 + k % 2)) & 0xff;
    return byte <= std::floor(static_cast<float>(1 - rate) * 255.0);
  }
};

}  // namespace jit::reference
