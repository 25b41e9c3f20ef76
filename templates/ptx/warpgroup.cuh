// A warpgroup is four warps that multiply together. Registers move between warpgroups, and named barriers
// order them (PTX ISA, "setmaxnreg", "bar").
#pragma once

#include "base/prelude.cuh"

namespace jit {

inline constexpr int warpgroup_size = 4 * warp_size;

/// Gives registers back, down to `registers` a thread. By a whole warpgroup.
template <int registers>
JIT_DEVICE void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

/// Waits for registers that others give back, up to `registers` a thread. By a whole warpgroup.
template <int registers>
JIT_DEVICE void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/// Gives registers back or waits for some, up or down to `registers` a thread, where a block of so many threads has a
/// multiprocessor's. By a whole warpgroup.
template <int registers, int threads>
JIT_DEVICE void setmaxnreg_of_launched() {
  constexpr int launched = 65536 / threads;
  if constexpr (registers > launched) {
    setmaxnreg_inc<registers>();
  } else {
    setmaxnreg_dec<registers>();
  }
}

/// Waits at named barrier `id` until `threads` threads have synced or arrived there; 0 is __syncthreads'.
JIT_DEVICE void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Arrives at named barrier `id` without waiting.
JIT_DEVICE void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Arrives behind what `known`, alike in a warp, is made of: the assembler would put that behind waits that come later.
JIT_DEVICE void bar_arrive_behind(bool known, int id, int threads) {
  asm volatile(
      "{.reg .pred known;\n"
      "setp.ne.u32 known, %2, 0;\n"
      "@known bar.arrive %0, %1;\n"
      "@!known bar.arrive %0, %1;\n"  // mutate: OrderKeptWhereMaximaStay
      "}" ::"r"(id),
      "r"(threads), "r"(static_cast<unsigned>(known))
      : "memory");
}

}  // namespace jit
