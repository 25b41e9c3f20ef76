#include "generator/problem/tma_operands.h"

#include <algorithm>

#include "templates/base/varlen_tiles.cuh"

namespace jit {
namespace {

// Upper bounds of varlen tiles have the limit of tiles.
bool has_few_places(const AttentionParams& params) {
  const SequenceParams& sequences = params.sequences;
  const auto places = [&](const int* boundaries, int total) {
    return boundaries == nullptr ? 0 : varlen_tiles(params.batch, total, fewest_tile_rows);
  };
  const long long most = std::max(places(sequences.cu_seqlens_q, sequences.total_q),
                                  places(sequences.cu_seqlens_k, sequences.total_k));
  return params.heads_q == 0 || most <= max_work_tiles / params.heads_q;
}

}  // namespace

GradientOperands tma_operands(const AttentionParams& params, const GradientParams& gradients) {
  const auto& [q, k, v, o] = tma_operands(params);
  return {.d_o = {"do", gradients.d_o, gradients.do_strides, q.batch, q.seqlen, q.heads},
          .dk = {"dk", gradients.dk, gradients.dk_strides, k.batch, k.seqlen, k.heads},
          .dv = {"dv", gradients.dv, gradients.dv_strides, v.batch, v.seqlen, v.heads}};
}

bool can_map(const AttentionParams& params) {
  // A box cannot begin in the middle of a page.
  if (params.sequences.page_table != nullptr && params.sequences.cache_leftpad != nullptr) return false;
  const auto all = tma_operands(params);
  return std::all_of(all.begin(), all.end(), [](const TmaOperand& each) { return is_mappable(each); }) &&
         has_few_tiles(params);
}

bool can_map(const AttentionParams& params, const GradientParams& gradients) {
  const auto& [d_o, dk, dv] = tma_operands(params, gradients);
  return can_map(params) && is_mappable(d_o) && is_mappable(dk) && is_mappable(dv) && has_few_places(params);
}

}  // namespace jit
