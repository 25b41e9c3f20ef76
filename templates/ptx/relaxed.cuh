// Words of global memory that blocks leave for one another: reads and writes that do not race, and order nothing (PTX ISA,
// "ld", "st", "Memory Consistency Model"). Of a vector each word is written at once, but not all of them together.
#pragma once

#include "base/host_device.cuh"

namespace jit {

JIT_DEVICE float2 load_relaxed(const float2* from) {
  float2 x;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(from) : "memory");
  return x;
}
JIT_DEVICE float4 load_relaxed(const float4* from) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"  // mutate: PlainLoads
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from)
               : "memory");
  return x;
}

JIT_DEVICE unsigned load_relaxed(const unsigned* from) {
  unsigned x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

JIT_DEVICE unsigned long long load_relaxed(const unsigned long long* from) {
  unsigned long long x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(from) : "memory");
  return x;
}

/// Adds one to a counter, which goes from `last` back to 0.
JIT_DEVICE void count_relaxed(unsigned* counter, unsigned last) {
  asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(last) : "memory");
}

JIT_DEVICE void store_relaxed(unsigned long long* to, unsigned long long x) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}
JIT_DEVICE void store_relaxed(unsigned* to, unsigned x) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
JIT_DEVICE void store_relaxed(float2* to, const float2& x) {
  // mutate: PlainStores
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x.x), "f"(x.y) : "memory");
}
JIT_DEVICE void store_relaxed(float4* to, const float4& x) {
  // mutate: StoresForTheBlockOnly
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z),
               "f"(x.w)
               : "memory");
}

}  // namespace jit
