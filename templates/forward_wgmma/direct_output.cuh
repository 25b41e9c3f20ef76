// O from the accumulators of wgmma straight to global memory.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/traits.cuh"
#include "forward_wgmma/work.cuh"

namespace jit::forward_wgmma {

/// Two floats of a row, 0 for one without keys.
__device__ __forceinline__ void store_pair(float* columns, float x, float y, float inverse) {
  const auto word = [&](float value) {
    return keep_if_has_keys(static_cast<unsigned>(__float_as_int(value)), inverse);
  };
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(columns), "r"(word(x)), "r"(word(y)) : "memory");
}

/// Writes the rows of a warp, of which `first_row` of the sequence is the first, and which have been multiplied by
/// `inverse`, and finishes their columns on the way. Each quad of lanes has pieces of 8 columns of a row in 4 words:
/// transposed, every lane writes whole pieces. Of floats a quad has whole sectors as it is.
template <class Config>
__device__ __forceinline__ void store_output_rows(
    const AttentionParams& params, const Work<Config>& work, int first_row,
    typename KernelTraits<Config>::Output& output,
    const typename KernelTraits<Config>::Columns& value_columns,
    const float (&inverse)[KernelTraits<Config>::Output::rows]) {
  using Element = OutputElement<Config>;
  using Output = typename KernelTraits<Config>::Output;
  using Layout = typename Output::Layout;
  const int lane = lane_id();
  const int seqlen_q = query_count<Config>(params, work);
  const auto rows = output_rows<Config>(params, work);
#pragma unroll
  for (int r = 0; r < Output::rows; ++r) {
    const int row = Layout::row(first_row + Layout::lane_row(lane), 0, r);
    if constexpr (is_same<Element, float>) {
      float* const own = rows.first + row * rows.stride + Layout::lane_column(lane);
#pragma unroll
      for (int n = 0; n < Output::column_blocks; ++n) {
        value_columns.finish(output, r, n);
        if (row < seqlen_q && Layout::column(0, n, 0) < Config::head_dim_v)
          store_pair(own + Layout::column(0, n, 0), output.at(r, n, 0), output.at(r, n, 1), inverse[r]);
      }
      continue;
    }
    Element* columns = rows.first + row * rows.stride + lane % 4 * 8;
#pragma unroll
    for (int d = 0; d < Output::column_blocks; d += 4) {
      unsigned words[4] = {};
#pragma unroll
      for (int i = 0; i < 4 && d + i < Output::column_blocks; ++i) {
        value_columns.finish(output, r, d + i);
        words[i] = keep_if_has_keys(output.template pack_pair<Element>(r, d + i), inverse[r]);
      }
      transpose_quad(words);
      if (row < seqlen_q && (d + lane % 4) * 8 < Config::head_dim_v) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(columns + d * 8), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
      }
    }
  }
}

}  // namespace jit::forward_wgmma
