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
#pragma once

#include "base/prelude.cuh"

namespace jit {

template <class Element>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  static_assert(is_same<Element, bf16> || is_same<Element, fp16>, "mma_m16n8k16 multiplies bf16 or fp16");
  if constexpr (is_same<Element, bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace jit
