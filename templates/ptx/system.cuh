// Words that devices leave for one another, and the time that all of a device share (PTX ISA, "Memory Consistency Model",
// "%globaltimer").
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Sets a word, of this device or of another one. What the thread's past holds, also by way of barriers of its block, is
/// visible to threads of any device that acquire the value.
JIT_DEVICE void store_release_sys(unsigned long long* to, unsigned long long x) {
  // mutate: ReleaseSys
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}

/// Sets a word of 32 bits, likewise.
JIT_DEVICE void store_release_sys(unsigned* to, unsigned x) {
  // mutate: ReleaseSysWord
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

/// The value of a word; writes of any device before the release that set it are visible afterwards.
JIT_DEVICE unsigned long long load_acquire_sys(const unsigned long long* from) {
  unsigned long long x;
  // mutate: AcquireSys
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
  return x;
}

/// The value of a word of 32 bits, likewise.
JIT_DEVICE unsigned load_acquire_sys(const unsigned* from) {
  unsigned x;
  // mutate: AcquireSysWord
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

/// Nanoseconds since some time, the same clock for all threads of the device.
JIT_DEVICE unsigned long long global_timer() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

}  // namespace jit
