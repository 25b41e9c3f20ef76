// How many multiprocessors decode where another kernel of the call prefills beside them. Compiled by the host and by NVRTC.
//
// Decoding is bound by memory, prefill by the tensor cores. Some of the multiprocessors draw nearly all of the memory's
// rate: more of them do not decode much faster, but do not prefill meanwhile. So as many decode as make both end at the
// same time, and at least those that draw most of the rate. When they are done they prefill, too.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Pairs of a query and a key that one query head multiplies while memory brings one key and value of 16 bits of a KV
/// head: 650 TFLOP/s over 4.3 TB/s.
inline constexpr float pairs_of_a_key = 151;

/// Of so many blocks, one on each multiprocessor, those that decode at least.
JIT_HOST_DEVICE constexpr int least_decoding_blocks(int blocks) { return blocks - blocks / 2; }

/// Of so many blocks those that decode, where all of them would decode in time `own` and prefill in time `others`.
JIT_HOST_DEVICE constexpr int decoding_blocks(int blocks, float own, float others) {
  const int least = least_decoding_blocks(blocks);
  if (!(others < own)) return least;
  const int wanted = blocks - static_cast<int>(static_cast<float>(blocks) * (others / own));
  return wanted > least ? wanted : least;
}

}  // namespace jit
