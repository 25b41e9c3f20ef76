// stmatrix: four 8 × 8 matrices of 16-bit elements from registers to shared memory (PTX ISA, "stmatrix").
// Lane l gives the address of row l % 8 of matrix l / 8. Of each matrix it holds two elements of row l / 4:
// columns 2 (l % 4) and the next.
#pragma once

#include "base/prelude.cuh"

namespace jit {

__device__ __forceinline__ void stmatrix_x4(unsigned address, const unsigned (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

/// Stores transposed matrices: lane l gives the address of column l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4_trans(unsigned address, const unsigned (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

}  // namespace jit
