// Philox4x32: random numbers that are a function of a counter and a key, without a state ("Parallel Random Numbers: As
// Easy as 1, 2, 3", Salmon et al.). Compiled by the host, whose tests know its published values, and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

struct PhiloxWords {
  unsigned words[4];
};

/// The four words for counter and key. 7 rounds are the fewest that pass all tests of the paper, and what
/// flash-attention's dropout takes; 10 are usual elsewhere.
template <int rounds>
JIT_HOST_DEVICE constexpr PhiloxWords philox(PhiloxWords counter, unsigned key_low, unsigned key_high) {
  for (int round = 0; round < rounds; ++round) {
    const unsigned long long a = 0xD2511F53ull * counter.words[0], b = 0xCD9E8D57ull * counter.words[2];
    counter = {{static_cast<unsigned>(b >> 32) ^ counter.words[1] ^ key_low, static_cast<unsigned>(b),
                static_cast<unsigned>(a >> 32) ^ counter.words[3] ^ key_high, static_cast<unsigned>(a)}};
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace jit
