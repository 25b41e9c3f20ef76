// Tensor memory and the tensor core instructions that use it, for sm_100a and sm_103a (PTX ISA, "TensorCore 5th
// Generation Family Instructions"). An address of tensor memory has a lane in its upper half and a column in the lower
// one; a warp loads and stores the 32 lanes that its index modulo 4 gives it.
//
// Fences and waits stand where PTX asks for them. The assembler makes nothing of most of them.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/fp8.cuh"

namespace jit {

inline constexpr int tmem_lanes = 128;
inline constexpr int tmem_columns = 512;

/// Whether the lane is the one that speaks for its warp: the same one each time. By a whole warp.
JIT_DEVICE bool elect_one() {
  unsigned is_elected;
  asm volatile(
      "{.reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(is_elected)
      :
      : "memory");
  return is_elected != 0;
}

// `blocks` is 2 where a pair of blocks multiplies together (".cta_group::2"): those of a cluster whose ranks differ in the
// last bit. The even one of them, the leader, starts products and commits; either block allocates and gives back its own
// columns.

/// Allocates columns, a power of 2 from 32 on, and leaves their address at a shared address. Waits while other blocks of
/// the multiprocessor have them. By a whole warp, which gives them back.
template <int columns, int blocks = 1>
JIT_DEVICE void tcgen05_alloc(unsigned place) {
  static_assert(columns >= 32 && columns <= tmem_columns && (columns & (columns - 1)) == 0);
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(place),
               "n"(columns), "n"(blocks)
               : "memory");
}
/// The block allocates no more. By a whole warp.
template <int blocks = 1>
JIT_DEVICE void tcgen05_relinquish_alloc_permit() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(blocks) : "memory");
}
template <int columns, int blocks = 1>
JIT_DEVICE void tcgen05_dealloc(unsigned address) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(columns),
               "n"(blocks)
               : "memory");
}

/// Between a thread's instructions of tensor memory and its arrival at a barrier, and between a wait at a barrier and
/// instructions of tensor memory behind it.
JIT_DEVICE void tcgen05_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
JIT_DEVICE void tcgen05_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

/// Waits for all loads, or stores, of tensor memory that the thread has started. By a whole warp.
JIT_DEVICE void tcgen05_wait_load() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
JIT_DEVICE void tcgen05_wait_store() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

/// Starts to load 16 columns of the thread's lane. The numbers are there behind tcgen05_wait_load().
JIT_DEVICE void tcgen05_load(float (&to)[16], unsigned address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, "
      "%15}, [%16];"
      : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]), "=f"(to[4]), "=f"(to[5]), "=f"(to[6]),
        "=f"(to[7]), "=f"(to[8]), "=f"(to[9]), "=f"(to[10]), "=f"(to[11]), "=f"(to[12]), "=f"(to[13]),
        "=f"(to[14]), "=f"(to[15])
      : "r"(address)
      : "memory");
}
/// Ties numbers that were loaded to the place behind the wait: the compiler moves no use of them in front of it.
JIT_DEVICE void tcgen05_hold(float (&loaded)[16]) {
  asm volatile(""
               : "+f"(loaded[0]), "+f"(loaded[1]), "+f"(loaded[2]), "+f"(loaded[3]), "+f"(loaded[4]),
                 "+f"(loaded[5]), "+f"(loaded[6]), "+f"(loaded[7]), "+f"(loaded[8]), "+f"(loaded[9]),
                 "+f"(loaded[10]), "+f"(loaded[11]), "+f"(loaded[12]), "+f"(loaded[13]), "+f"(loaded[14]),
                 "+f"(loaded[15])::"memory");
}

/// Starts to store 8, or 16, columns of the thread's lane, which are there behind tcgen05_wait_store().
JIT_DEVICE void tcgen05_store(unsigned address, const unsigned (&from)[8]) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"r"(address),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(from[4]), "r"(from[5]),
               "r"(from[6]), "r"(from[7])
               : "memory");
}
JIT_DEVICE void tcgen05_store(unsigned address, const unsigned (&from)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, "
      "%15, %16};" ::"r"(address),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(from[4]), "r"(from[5]), "r"(from[6]),
      "r"(from[7]), "r"(from[8]), "r"(from[9]), "r"(from[10]), "r"(from[11]), "r"(from[12]), "r"(from[13]),
      "r"(from[14]), "r"(from[15])
      : "memory");
}
JIT_DEVICE void tcgen05_store(unsigned address, const float (&from)[16]) {
  unsigned bits[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) bits[i] = static_cast<unsigned>(__float_as_int(from[i]));
  tcgen05_store(address, bits);
}

/// Arrives at a barrier, a shared address, once all products that the thread has started are done. By one thread.
JIT_DEVICE void tcgen05_commit(unsigned barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
               : "memory");
}
/// Arrives at the barrier in either block of a pair. Products must have been started since the thread last learned that
/// all were done: else silicon arrives in its own block alone.
JIT_DEVICE void tcgen05_commit_pair(unsigned barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::
          "r"(barrier),
      "h"(static_cast<unsigned short>(3))  // mutate: CommitsToTheLeaderAlone
      : "memory");
}

/// The code of an element's type in an instruction descriptor.
template <class Element>
inline constexpr unsigned tcgen05_type = is_same<Element, bf16> || is_same<Element, fp8_e5m2> ? 1 : 0;

/// The description of products of A and B that are summed in fp32, of `m` rows and `n` columns. A and B lie with the sum
/// along their columns unless it lies along their rows.
template <class A, class B>
JIT_HOST_DEVICE constexpr unsigned tcgen05_products(int m, int n, bool b_along_rows,
                                                    bool a_along_rows = false) {
  static_assert(sizeof(A) == sizeof(B));
  constexpr unsigned fp32_sums = 1;
  return fp32_sums << 4 | tcgen05_type<A> << 7 | tcgen05_type<B> << 10 |
         static_cast<unsigned>(a_along_rows) << 15 | static_cast<unsigned>(b_along_rows) << 16 |
         static_cast<unsigned>(n / 8) << 17 | static_cast<unsigned>(m / 16) << 24;
}
/// The descriptor of a tile in shared memory, of wgmma's: a version, and the swizzle's code, which has the same bits.
JIT_HOST_DEVICE constexpr unsigned long long tcgen05_descriptor(unsigned long long of_wgmma) {
  return of_wgmma | 1ull << 46;  // mutate: DescriptorWithoutVersion
}

/// Starts D = A B, or D += A B where it `accumulates`, of one k-step: D in tensor memory, A and B in shared memory. By one
/// thread; products of a thread are computed one behind another. Of a pair, each block has half of the rows of A and D and
/// half of the columns of B, at the same addresses.
template <class Element, int blocks = 1>
JIT_DEVICE void tcgen05_mma(unsigned d, unsigned long long a, unsigned long long b, unsigned products,
                            bool accumulates) {
  if constexpr (sizeof(Element) == 2) {
    asm volatile(
        "{.reg .pred accumulates;\n"
        "setp.ne.u32 accumulates, %4, 0;\n"
        "tcgen05.mma.cta_group::%5.kind::f16 [%0], %1, %2, %3, accumulates;\n"
        "}" ::"r"(d),
        "l"(a), "l"(b), "r"(products), "r"(static_cast<unsigned>(accumulates)), "n"(blocks)
        : "memory");
  } else {
    asm volatile(
        "{.reg .pred accumulates;\n"
        "setp.ne.u32 accumulates, %4, 0;\n"
        "tcgen05.mma.cta_group::%5.kind::f8f6f4 [%0], %1, %2, %3, accumulates;\n"
        "}" ::"r"(d),
        "l"(a), "l"(b), "r"(products), "r"(static_cast<unsigned>(accumulates)), "n"(blocks)
        : "memory");
  }
}
/// Multiplies A in tensor memory, whose columns hold two 16-bit elements, or four of FP8.
template <class Element, int blocks = 1>
JIT_DEVICE void tcgen05_mma(unsigned d, unsigned a, unsigned long long b, unsigned products,
                            bool accumulates) {
  if constexpr (sizeof(Element) == 2) {
    asm volatile(
        "{.reg .pred accumulates;\n"
        "setp.ne.u32 accumulates, %4, 0;\n"
        "tcgen05.mma.cta_group::%5.kind::f16 [%0], [%1], %2, %3, accumulates;\n"
        "}" ::"r"(d),
        "r"(a), "l"(b), "r"(products), "r"(static_cast<unsigned>(accumulates)), "n"(blocks)
        : "memory");
  } else {
    asm volatile(
        "{.reg .pred accumulates;\n"
        "setp.ne.u32 accumulates, %4, 0;\n"
        "tcgen05.mma.cta_group::%5.kind::f8f6f4 [%0], [%1], %2, %3, accumulates;\n"
        "}" ::"r"(d),
        "r"(a), "l"(b), "r"(products), "r"(static_cast<unsigned>(accumulates)), "n"(blocks)
        : "memory");
  }
}

}  // namespace jit
