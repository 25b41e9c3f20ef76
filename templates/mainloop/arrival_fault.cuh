// Timeouts of waits for a word of another device: the first wait that times out reports it to the host, and all later
// waits return at once.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/arrival_table.cuh"
#include "ptx/atomic.cuh"
#include "ptx/relaxed.cuh"
#include "ptx/system.cuh"

namespace jit {

/// Whether to give up waiting for `word`, the call's i-th, since `begin` (0 at first): the timeout has passed, or
/// another wait on this device, in this call or an earlier one, has timed out.
JIT_DEVICE bool has_timed_out(ArrivalHeader& header, unsigned long long timeout, const unsigned* word, int i,
                              unsigned epoch, unsigned long long& begin) {
  const unsigned long long now = global_timer();
  if (begin == 0) begin = now;
  if (load_relaxed(&header.broken) != 0) return true;
  if (now - begin <= timeout) return false;
  if (atomic_cas_relaxed(reinterpret_cast<int*>(&header.broken), 0, static_cast<int>(epoch)) == 0) {
    header.fault_word = i;
    header.fault_seen = load_acquire_sys(word);
    if (header.fault != nullptr) store_release_sys(header.fault, epoch);  // mutate: FaultUntold
  }
  return true;
}

}  // namespace jit
