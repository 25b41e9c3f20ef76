// mma.sync.m16n8k16: D[16×8] += A[16×16] · B[16×8], fp32 accumulators (PTX ISA, "mma.m16n8k16").
// Lane l of a warp holds, with g = l / 4 and t = l % 4:
//
//     A   a[0]        row g        columns 2t, 2t + 1
//         a[1]        row g + 8    columns 2t, 2t + 1
//         a[2]        row g        columns 2t + 8, 2t + 9
//         a[3]        row g + 8    columns 2t + 8, 2t + 9
//     B   b0          column g     rows 2t, 2t + 1
//         b1          column g     rows 2t + 8, 2t + 9
//     D   d[0], d[1]  row g        columns 2t, 2t + 1
//         d[2], d[3]  row g + 8    columns 2t, 2t + 1
//
// mma.sync.m16n8k32, elements of 8 bits ("mma.m16n8k32"): the same bytes of rows of A and columns of B, so that a
// register holds four neighbors instead of two.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/fp8.cuh"

namespace jit {

// The instruction of a shape and types, which are words of it that no template can write.
#define JIT_MMA(shape_and_types)                                                      \
  asm volatile("mma.sync.aligned." shape_and_types                                    \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
// Behind A and B their scales, each with the byte and the lanes of a quad that hold it: all hold the same.
#define JIT_ANY_SCALE "{0, 0}"  // mutate: ScaleSelectors
#define JIT_BLOCK_SCALED_MMA(types)                                                                    \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32." types \
               ".f32.ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, "           \
               "%10, " JIT_ANY_SCALE ", %10, " JIT_ANY_SCALE ";"                                       \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(unit_scales))

template <class Element>
JIT_DEVICE void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  static_assert(is_same<Element, bf16> || is_same<Element, fp16>, "mma_m16n8k16 multiplies bf16 or fp16");
  if constexpr (is_same<Element, bf16>) {
    JIT_MMA("m16n8k16.row.col.f32.bf16.bf16");
  } else {
    JIT_MMA("m16n8k16.row.col.f32.f16.f16");
  }
}

/// Whether tensor cores multiply elements of 8 bits for mma.sync. PTX has the instruction from sm_89 on, but of
/// sm_90, sm_100, sm_103 and sm_110 the assembler makes conversions to fp16, two products of these and a further sum.
#if __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200
inline constexpr bool has_fp8_mma = true;
#else
inline constexpr bool has_fp8_mma = false;
#endif

/// Whether they multiply blocks of such elements that have a scale each, of 32 along k. GeForce has that product at twice
/// the rate of the one without scales.
#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
inline constexpr bool has_block_scaled_mma = true;
#else
inline constexpr bool has_block_scaled_mma = false;
#endif

/// Scales of 1, ue8m0, of four blocks: a lane's own, whichever of its bytes and which lanes of a quad are asked for.
inline constexpr unsigned unit_scales = 0x7f7f7f7f;  // mutate: ScalesOfTwo

/// A product of 8-bit elements, A's and B's of a type each. Where tensor cores have no such product, two of
/// fp16, which holds these numbers exactly: the first of the even pairs along k, the second of the odd ones.
template <class A, class B>
JIT_DEVICE void mma_m16n8k32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  static_assert(is_fp8<A> && is_fp8<B>, "mma_m16n8k32 multiplies e4m3 and e5m2");
  if constexpr (has_block_scaled_mma) {
    if constexpr (is_same<B, fp8_e4m3>) {
      static_assert(is_same<A, fp8_e4m3>, "e5m2 is not multiplied by e4m3");
      JIT_BLOCK_SCALED_MMA("e4m3.e4m3");
    } else if constexpr (is_same<A, fp8_e4m3>) {
      JIT_BLOCK_SCALED_MMA("e4m3.e5m2");
    } else {
      JIT_BLOCK_SCALED_MMA("e5m2.e5m2");
    }
  } else if constexpr (!has_fp8_mma) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      unsigned wide[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) wide[i] = upcast_fp8<fp16, A>(a[i] >> 16 * odd);  // mutate: EvenPairsTwice
      mma_m16n8k16<fp16>(d, wide, upcast_fp8<fp16, B>(b0 >> 16 * odd), upcast_fp8<fp16, B>(b1 >> 16 * odd));
    }
  } else if constexpr (is_same<B, fp8_e4m3>) {
    static_assert(is_same<A, fp8_e4m3>, "e5m2 is not multiplied by e4m3");
    JIT_MMA("m16n8k32.row.col.f32.e4m3.e4m3");
  } else if constexpr (is_same<A, fp8_e4m3>) {
    JIT_MMA("m16n8k32.row.col.f32.e4m3.e5m2");
  } else {
    JIT_MMA("m16n8k32.row.col.f32.e5m2.e5m2");
  }
}

#undef JIT_MMA
#undef JIT_BLOCK_SCALED_MMA
#undef JIT_ANY_SCALE

/// Over 32 bytes of a row, whatever the elements.
template <class Element>
JIT_DEVICE void mma_m16n8(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (is_fp8<Element>) {
    mma_m16n8k32<Element, Element>(d, a, b0, b1);
  } else {
    mma_m16n8k16<Element>(d, a, b0, b1);
  }
}

}  // namespace jit
