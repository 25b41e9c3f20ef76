// ldmatrix: a warp loads 8×8 matrices of 16-bit elements from shared memory into mma fragments (PTX ISA,
// "ldmatrix"). Lanes 8i … 8i+7 give the row addresses of matrix i; register i of each lane receives its part
// of matrix i.
#pragma once

#include "base/prelude.cuh"

namespace jit {

JIT_DEVICE void ldmatrix_x4(unsigned (&r)[4], unsigned smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem)
               : "memory");
}

JIT_DEVICE void ldmatrix_x4_trans(unsigned (&r)[4], unsigned smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem)
               : "memory");
}

JIT_DEVICE void ldmatrix_x2(unsigned& r0, unsigned& r1, unsigned smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(smem)
               : "memory");
}

JIT_DEVICE void ldmatrix_x2_trans(unsigned& r0, unsigned& r1, unsigned smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(smem)
               : "memory");
}

/// The transpose of an 8×8 matrix that lies in registers as ldmatrix leaves it (PTX ISA, "movmatrix").
JIT_DEVICE unsigned transpose_matrix(unsigned word) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

// stmatrix: four 8 × 8 matrices of 16-bit elements from registers to shared memory (PTX ISA, "stmatrix").
// Lane l gives the address of row l % 8 of matrix l / 8. Of each matrix it holds two elements of row l / 4:
// columns 2 (l % 4) and the next.

JIT_DEVICE void stmatrix_x4(unsigned address, const unsigned (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

/// Stores transposed matrices: lane l gives the address of column l % 8 of matrix l / 8.
JIT_DEVICE void stmatrix_x4_trans(unsigned address, const unsigned (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

}  // namespace jit
