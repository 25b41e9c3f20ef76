// Replacements of the standard library for kernels. Nothing outside templates/ is included: a kernel compiles
// without any CUDA header. Device only; files that the host compiles, too, say so and include others that do.
#pragma once

#include "base/element.cuh"

namespace jit {

template <class A, class B>
inline constexpr bool is_same = false;
template <class A>
inline constexpr bool is_same<A, A> = true;

template <bool condition, class A, class B>
struct ChosenType {
  using type = A;
};
template <class A, class B>
struct ChosenType<false, A, B> {
  using type = B;
};

namespace detail {
template <class Pointer>
struct PointeeOf;
template <class T>
struct PointeeOf<const T*> {
  using type = T;
};
}  // namespace detail
/// T of a const T*.
template <class Pointer>
using Pointee = typename detail::PointeeOf<Pointer>::type;

inline constexpr int warp_size = 32;
inline constexpr unsigned full_warp = 0xffffffffu;
inline constexpr float log2_e = 1.4426950408889634f;
inline constexpr float ln_2 = 0.6931471805599453f;

JIT_DEVICE float negative_infinity() { return __int_as_float(0xff800000); }

JIT_DEVICE int lane_id() { return threadIdx.x % warp_size; }
JIT_DEVICE int warp_id() { return threadIdx.x / warp_size; }

/// threadIdx.x, read again at each call, so that values derived from it in a rare branch are not kept in registers
/// through the mainloop.
JIT_DEVICE int reread_thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

/// lane_id(), for the same reason.
JIT_DEVICE int reread_lane() { return reread_thread_index() % warp_size; }

/// blockIdx.x, read anew at each call, for the same reason.
JIT_DEVICE int reread_block_index() {
  int index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

template <class T>
JIT_DEVICE constexpr T minimum(T a, T b) {
  return a < b ? a : b;
}
template <class T>
JIT_DEVICE constexpr T maximum(T a, T b) {
  return a < b ? b : a;
}

}  // namespace jit
