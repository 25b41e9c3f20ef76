// The gradients of an output functor (backward/output_gradients.cuh) in front of gradients whose first kernel does not make
// them. A block has a tile of queries.
#pragma once

#include "backward/output_gradients.cuh"
#include "backward/query_tile.cuh"
#include "base/gradient_params.cuh"
#include "base/row_pieces.cuh"
#include "problem/gradients.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::backward_output {

template <class Config, int threads>
JIT_DEVICE void differentiate_output(const AttentionParams& params, const GradientParams& gradient_params,
                                     const RawGradient& raw) {
  using Element = typename Config::Element;
  griddepcontrol_wait();  // mutate: GradientsOfTheOutput
  griddepcontrol_launch_dependents();
  const auto [batch, head, first_query] = query_tile<Config>(params);
  const SequencesOf<Config> sequences(params, batch);
  const Gradients<Config> gradients(params, gradient_params, sequences);
  const BlockContext context = sequences.context(batch, head);
  if (has_entry_lengths<Config> && (first_query < 0 || first_query >= context.seqlen_q)) return;
  const auto do_rows = gradients.do_rows(batch, head);
  const auto o_rows = sequences.output_rows(batch, head);
  Element* const d_o = raw_gradient_rows<Config>(raw, context);
#pragma unroll 1
  for (int row = threadIdx.x / row_lanes; row < Config::tile_q; row += threads / row_lanes) {
    const int query = first_query + row;
    const bool exists = query < context.seqlen_q;
    RowGradients<Config> own(context, gradient_params, query);
    if (exists)
      for_pieces<Config>(own, do_rows.at(query), o_rows.at(query), [&](auto& piece, int d) {
        own.differentiate(piece, d);
        leave_rounded(d_o + query * raw.strides.seq + d, piece.y);
      });
    own.write_sums(exists);
  }
}

}  // namespace jit::backward_output
