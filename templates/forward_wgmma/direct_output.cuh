// O from the accumulators of wgmma straight to global memory.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/traits.cuh"
#include "forward_wgmma/work.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_wgmma {

/// Two floats of a row, 0 for one without keys.
__device__ __forceinline__ void store_pair(float* columns, float x, float y, float inverse) {
  const auto word = [&](float value) {
    return keep_if_has_keys(static_cast<unsigned>(__float_as_int(value)), inverse);
  };
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(columns), "r"(word(x)), "r"(word(y)) : "memory");
}

/// Calls f(column, values) for each four neighbours that the lane has of its row `r`, counting columns from the lane's
/// first one. They have been multiplied by `inverse`, and their columns are finished on the way.
template <class Config, class F>
__device__ __forceinline__ void for_each_four(typename KernelTraits<Config>::Output& output, int r,
                                              const typename KernelTraits<Config>::Columns& columns,
                                              float inverse, F f) {
  using Traits = KernelTraits<Config>;
  using Output = typename Traits::Output;
  using Layout = typename Output::Layout;
  static_assert(is_same<Layout, EvenOddLayout>, "a lane has four neighbours of a row");
  const auto kept = [&](int n, int i) {
    const float x = output.at(r, n, i);
    return Traits::may_lack_keys ? keep_if_has_keys(x, inverse) : x;
  };
#pragma unroll
  for (int n = 0; n < Output::column_blocks; n += 2) {
    const int column = Layout::column(0, n, 0);
    const bool may_end = column + 2 * Layout::block_columns > Config::head_dim_v;
    if (may_end && Layout::lane_column(reread_thread_index()) + column >= Config::head_dim_v) break;
    columns.finish(output, r, n);
    columns.finish(output, r, n + 1);
    f(column, make_float4(kept(n, 0), kept(n + 1, 0), kept(n, 1), kept(n + 1, 1)));
  }
}

/// Writes the rows of a warp, of which `first_row` of the sequence is the first, and which have been multiplied by
/// `inverse`, and finishes their columns on the way. Each quad of lanes has pieces of 8 columns of a row in 4 words:
/// transposed, every lane writes whole pieces. Of floats a quad has whole sectors as it is, and of any type where a lane
/// has four neighbours.
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
    if constexpr (is_same<Layout, EvenOddLayout>) {
      if (row >= seqlen_q) continue;
      Element* const own = rows.first + row * rows.stride + Layout::lane_column(lane);
      for_each_four<Config>(output, r, value_columns, inverse[r], [&](int column, const float4& values) {
        store_four<Config::alignment>(own + column, values);
      });
      continue;
    }
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
      transpose_quad(words);                                            // mutate: QuadsAreNotTransposed
      if (row < seqlen_q && (d + lane % 4) * 8 < Config::head_dim_v) {  // mutate: WritesWhatIsNone
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(columns + d * 8), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
      }
    }
  }
}

}  // namespace jit::forward_wgmma
