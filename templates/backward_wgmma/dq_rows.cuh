// Where a part of a tile of dQ goes when it has been summed: scaled and rounded, to rows of dQ.
#pragma once

#include "backward_wgmma/traits.cuh"
#include "problem/gradients.cuh"
#include "steps/dropout.cuh"
#include "steps/store_rows.cuh"

namespace jit::backward_wgmma {

/// What sums are multiplied by.
template <class Config>
__device__ __forceinline__ float dq_scale(const AttentionParams& params, const DropoutParams& dropout) {
  return over_kept_share<Config>(params.softmax_scale, dropout);
}

/// Stores part `part` of a tile whose first query is `first_query`, as a warpgroup holds it in registers: `thread` is
/// counted in that.
template <class Config>
__device__ __forceinline__ void store_dq_part(const AttentionParams& params, const DropoutParams& dropout,
                                              const typename KernelTraits<Config>::QueryGradient& dq,
                                              const DenseRows<typename Config::Element>& rows, int part,
                                              int thread, int first_query, int row_end) {
  using Traits = KernelTraits<Config>;
  constexpr int columns = Traits::dq_columns;
  constexpr int parts_of_columns = Traits::has_many_queries ? 1 : Traits::dq_parts;
  const int first_column = part % parts_of_columns * columns;
  const int first_row = first_query + part / parts_of_columns * rows_per_warpgroup + thread / warp_size * 16;
  const float scale = dq_scale<Config>(params, dropout);
  constexpr int last_columns = Config::head_dim - (parts_of_columns - 1) * columns;
  if (part % parts_of_columns + 1 < parts_of_columns) {
    store_rows<columns>(dq, scale, rows.from(0, first_column), first_row, row_end);
  } else if constexpr (last_columns > 0) {
    store_rows<last_columns>(dq, scale, rows.from(0, first_column), first_row, row_end);
  }
}

/// The same of the sums of a tile of dQᵀ at `sums`, as a warpgroup held them whose rows are columns of dQ: a quad has two
/// queries' numbers of columns r and r + 8 of a warp's 16. A thread reads these of all r, so that it has two rows of 16
/// columns. Then neighbours exchange halves of them, so that both write 32 bytes of a row side by side.
template <class Config>
__device__ __forceinline__ void store_turned_dq(const AttentionParams& params, const DropoutParams& dropout,
                                                const float* sums,
                                                const DenseRows<typename Config::Element>& rows, int thread,
                                                int first_query, int row_end) {
  using Element = typename Config::Element;
  constexpr int step = 16, half = step / 2;  // columns
  const float scale = dq_scale<Config>(params, dropout);
  // Bits of the thread: the lower one of the place of its 16 columns, two of its quad's lane, the upper one, and three of
  // the block of 8 queries.
  const int side = thread % 2, lane = thread / 2 % 4, columns = thread / 8 % 2 * 2, block = thread / 16;
  const float4* const own =
      reinterpret_cast<const float4*>(sums) + block * warpgroup_size + (columns + side) * warp_size + lane;
  float x[2][step];  // of each query
#pragma unroll
  for (int r = 0; r < half; ++r) {
    const float4 four = own[r * 4];
    x[0][r] = four.x * scale;
    x[1][r] = four.y * scale;
    x[0][r + half] = four.z * scale;
    x[1][r + half] = four.w * scale;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    unsigned words[2][4];  // of its lower 8 columns, and of the upper ones
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[0][j] = pack<Element>(x[i][2 * j], x[i][2 * j + 1]);
      words[1][j] = pack<Element>(x[i][half + 2 * j], x[i][half + 2 * j + 1]);
      const unsigned received = __shfl_xor_sync(full_warp, side == 0 ? words[1][j] : words[0][j], 1);
      (side == 0 ? words[1][j] : words[0][j]) = received;
    }
    const int row = first_query + block * 8 + lane * 2 + i;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int column = (columns + k) * step + side * half;
      if (row < row_end && column < Config::head_dim)
        *reinterpret_cast<uint4*>(rows.at(row) + column) =
            make_uint4(words[k][0], words[k][1], words[k][2], words[k][3]);
    }
  }
}

}  // namespace jit::backward_wgmma
