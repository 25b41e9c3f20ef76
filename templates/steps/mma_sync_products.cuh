// The two products of attention by mma.sync, for the rows of one warp, out of tiles in shared memory.
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mma.cuh"
#include "steps/e4m3_weights.cuh"
#include "steps/no_dropout.cuh"
#include "tiles/accumulator.cuh"

namespace jit {

/// S += Q Kᵀ over the keys of `k_tile`, the shared address of the first key's row. `q.get(a, step)` returns the A
/// fragments of 32 bytes of rows from 32 · step on; rows are zero from `steps` on.
template <class Element, class KTile, int steps = KTile::chunks / 2, class Scores, class Queries>
JIT_DEVICE void add_qk(Scores& scores, const Queries& q, unsigned k_tile) {
  const int lane = lane_id();
  // mutate: SwizzleOnTheWritingSideOnly
  const unsigned address = k_tile + KTile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    unsigned a[Scores::row_blocks][4];
    q.get(a, step);
#pragma unroll
    for (int n = 0; n < Scores::column_blocks; n += 2) {
      unsigned b[4];
      ldmatrix_x4(b, KTile::advance(address, 8 * n, 2 * step));
#pragma unroll
      for (int m = 0; m < Scores::row_blocks; ++m) {
        mma_m16n8<Element>(scores.registers[m][n], a[m], b[0], b[1]);
        mma_m16n8<Element>(scores.registers[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// S = Q Kᵀ.
template <class Element, class KTile, int steps = KTile::chunks / 2, class Scores, class Queries>
JIT_DEVICE void multiply_qk(Scores& scores, const Queries& q, unsigned k_tile) {
  scores.clear();
  add_qk<Element, KTile, steps>(scores, q, k_tile);
}

/// P of 16 rows and 32 keys as the A operand of products with 8-bit values, whose keys are in the lanes' order
/// (`pack_e4m3_step`): e4m3 if tensor cores support it, else fp16, to which values are converted.
template <class Element, bool multiplies_bytes = has_fp8_mma>
struct WeightFragment {
  unsigned words[4];

  template <class Scores>
  JIT_DEVICE void pack_step(const Scores& p, int m, int step) {
    pack_e4m3_step(p, words, m, step);
  }
  JIT_DEVICE void multiply(float (&d)[4], unsigned b0, unsigned b1) const {
    mma_m16n8k32<fp8_e4m3, Element>(d, words, b0, b1);
  }
};

template <class Element>
struct WeightFragment<Element, false> {
  unsigned words[2][4];  // of the first eight keys of each 16, and of the others

  template <class Scores>
  JIT_DEVICE void pack_step(const Scores& p, int m, int step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        // mutate: HalvesOfProbabilitiesExchanged
        words[half][i] = p.template pack_pair<fp16>(2 * m + i % 2, 4 * step + i / 2 * 2 + half);
    }
  }
  JIT_DEVICE void multiply(float (&d)[4], unsigned b0, unsigned b1) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mma_m16n8k16<fp16>(d, words[half], upcast_fp8<fp16, Element>(b0 >> 16 * half),
                         upcast_fp8<fp16, Element>(b1 >> 16 * half));
    }
  }
};

/// O += P V over the keys of `v_tile`. Accumulators of S, packed to 16 bits, are A fragments of P; `kept` applies
/// dropout.
template <class Element, class VTile, class Output, class Scores, class Kept = NoDropout>
JIT_DEVICE void multiply_pv(Output& output, const Scores& p, unsigned v_tile, const Kept& kept = {}) {
  constexpr int mma_k = ElementTraits<Element>::mma_k;
  const int lane = lane_id();
  const unsigned address = v_tile + VTile::offset(lane % 16, lane / 16);
#pragma unroll
  for (int step = 0; step < Scores::column_blocks * 8 / mma_k; ++step) {
    unsigned a[Scores::row_blocks][4];
#pragma unroll
    for (int m = 0; m < Scores::row_blocks; ++m) {
      p.template pack_step<Element>(a[m], m, step);
      drop_step(kept, a[m], m, step);
    }
#pragma unroll
    for (int d = 0; d < Output::column_blocks; d += 2) {
      unsigned b[4];
      ldmatrix_x4_trans(b, VTile::advance(address, mma_k * step, d));
#pragma unroll
      for (int m = 0; m < Scores::row_blocks; ++m) {
        mma_m16n8k16<Element>(output.registers[m][d], a[m], b[0], b[1]);
        mma_m16n8k16<Element>(output.registers[m][d + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// O += P V with 8-bit P and V. mma.sync needs four adjacent keys in a register, but a row of V belongs to one key:
/// ldmatrix.trans transposes pairs of bytes, and the bytes of one column from the registers of keys 2t, 2t + 1 and 2t +
/// 8, 2t + 9 form a word. So keys are in the order in which a lane has them in S (`pack_e4m3_step`), and even and odd
/// columns are separate, as in EvenOddLayout.
template <class Element, class VTile, class Output, class Scores>
JIT_DEVICE void multiply_pv_fp8(Output& output, const Scores& p, unsigned v_tile) {
  static_assert(is_same<typename Output::Layout, EvenOddLayout>);
  constexpr int mma_k = ElementTraits<Element>::mma_k;
  constexpr unsigned bytes_of_columns[2] = {0x6420, 0x7531};  // even, odd  // mutate: UpcastBytes
  const int lane = lane_id();
  const unsigned address = v_tile + VTile::offset(lane, 0);
#pragma unroll
  for (int step = 0; step < Scores::column_blocks * 8 / mma_k; ++step) {
    WeightFragment<Element> weights[Scores::row_blocks];
#pragma unroll
    for (int m = 0; m < Scores::row_blocks; ++m) weights[m].pack_step(p, m, step);
#pragma unroll
    for (int chunk = 0; chunk < VTile::chunks; ++chunk) {
      unsigned pairs[4];
      // mutate: ValuesOfAnotherStep
      ldmatrix_x4_trans(pairs, VTile::advance(address, mma_k * step, chunk));
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const unsigned b0 = pick_bytes(pairs[0], pairs[1], bytes_of_columns[odd]);
        const unsigned b1 = pick_bytes(pairs[2], pairs[3], bytes_of_columns[odd]);
#pragma unroll
        for (int m = 0; m < Scores::row_blocks; ++m)
          weights[m].multiply(output.registers[m][2 * chunk + odd], b0, b1);
      }
    }
  }
}

}  // namespace jit
