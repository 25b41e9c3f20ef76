// Bits in words. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

inline constexpr int bits_of_word = 32;

/// The bits of word i that are numbers [begin, end), of which bit j of it is 32 i + j.
JIT_HOST_DEVICE constexpr unsigned bits_between(int i, int begin, int end) {
  const int first = begin - i * bits_of_word, last = end - i * bits_of_word;
  const int low = first > 0 ? first : 0, high = last < bits_of_word ? last : bits_of_word;
  return low < high ? ~0u << low & ~0u >> (bits_of_word - high) : 0;
}

/// Words of a row of a block mask, for so many blocks of keys (problem/block_mask.cuh).
JIT_HOST_DEVICE constexpr int block_words_of(int key_blocks) {
  return 2 * ((key_blocks + bits_of_word - 1) / bits_of_word);
}

}  // namespace jit
