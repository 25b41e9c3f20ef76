// Counters in global memory, and how they order what lies around them (PTX ISA, "atom", "Memory Consistency Model").
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Adds 1 to the counter, or sets it to 0 when it is `last`, and returns what it was. What the thread's past holds,
/// also by way of barriers of its block, is visible to threads that see the new value by such an operation.
JIT_DEVICE unsigned atomic_inc_acq_rel(unsigned* counter, unsigned last) {
  unsigned old;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(counter), "r"(last)
               : "memory");
  return old;
}

/// Adds to the counter, modulo 2^32, and orders as the one above.
JIT_DEVICE unsigned atomic_add_acq_rel(unsigned* counter, unsigned x) {
  unsigned old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(counter), "r"(x) : "memory");
  return old;
}

/// Adds to the counter, modulo 2^32, and orders nothing.
JIT_DEVICE unsigned atomic_add_relaxed(unsigned* counter, unsigned x) {
  unsigned old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(counter), "r"(x) : "memory");
  return old;
}

/// Orders what the thread does before it with what it does behind it, for all threads of the device. What other grids had
/// written that had ended by then is read anew.
JIT_DEVICE void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/// Sets a word to `value` if it is `expected`, returns what it was, and orders nothing.
JIT_DEVICE int atomic_cas_relaxed(int* word, int expected, int value) {
  int old;
  asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(word), "r"(expected), "r"(value)
               : "memory");
  return old;
}

/// The value of a counter; writes before the release that set it are visible afterwards.
JIT_DEVICE int load_acquire(const int* counter) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

/// Adds 1 to a counter; what the thread's past holds is visible to threads that acquire the new value.
JIT_DEVICE void add_one_release(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

/// Adds to a number, modulo 2^64, and orders nothing.
JIT_DEVICE void atomic_add_relaxed(long long* number, long long x) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(number), "l"(x) : "memory");
}

/// Adds to four floats side by side, from a multiple of 16 bytes on, each by itself, and orders nothing. For sm_90.
JIT_DEVICE void atomic_add_relaxed(float* numbers, const float (&x)[4]) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(numbers), "f"(x[0]),
               "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}

/// Sets a number to `x` if that is larger, and orders nothing.
JIT_DEVICE void atomic_max_relaxed(unsigned* number, unsigned x) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(number), "r"(x) : "memory");
}

/// Raises a float to `x` if that is larger, and orders nothing. As integers, floats with their sign bit clear have their own
/// order, others the reverse, and stand below as signed and above as unsigned numbers. A NaN raises nothing.
JIT_DEVICE void atomic_max_relaxed(float* number, float x) {
  x += 0.0f;  // −0 would be the least of all signed integers  // mutate: NegativeZeroIsLeast
  if (x >= 0) {
    asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" ::"l"(number), "r"(__float_as_int(x)) : "memory");
  } else if (x < 0) {
    asm volatile("red.relaxed.gpu.global.min.u32 [%0], %1;" ::"l"(number), "r"(__float_as_uint(x))
                 : "memory");
  }
}

/// Sets a counter that other threads add to by atomic operations, and orders nothing. A plain store would race with
/// these.
JIT_DEVICE void store_relaxed(int* counter, int value) {
  asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

}  // namespace jit
