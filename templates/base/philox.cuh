// Philox4x32: random numbers that are a function of a counter and a key, without a state ("Parallel Random Numbers: As
// Easy as 1, 2, 3", Salmon et al.). Compiled by the host, whose tests know its published values, and by NVRTC.
#pragma once

#include "base/host_device.cuh"
#include "base/upper_product.cuh"

namespace jit {

struct PhiloxWords {
  unsigned words[4];
};

/// The four words for counter and key. 7 rounds are the fewest that pass all tests of the paper, and what
/// flash-attention's dropout takes; 10 are usual elsewhere.
template <int rounds>
JIT_HOST_DEVICE inline PhiloxWords philox(PhiloxWords counter, unsigned key_low, unsigned key_high) {
  for (int round = 0; round < rounds; ++round) {
    constexpr unsigned a = 0xD2511F53u, b = 0xCD9E8D57u;
    counter = {{upper_product(b, counter.words[2]) ^ counter.words[1] ^ key_low, b * counter.words[2],
                upper_product(a, counter.words[0]) ^ counter.words[3] ^ key_high, a * counter.words[0]}};
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return counter;
}

}  // namespace jit
