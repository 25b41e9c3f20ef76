#include "generator/launch/query_statistics.h"

namespace jit {
namespace {

std::size_t numbers(const AttentionParams& params) {
  const auto heads = static_cast<std::size_t>(params.heads_q);
  if (params.sequences.cu_seqlens_q != nullptr)
    return heads * static_cast<std::size_t>(varlen_statistic_rows(params.batch, params.sequences.total_q));
  return static_cast<std::size_t>(params.batch) * heads *
         static_cast<std::size_t>(statistic_rows(params.seqlen_q));
}

}  // namespace

std::size_t statistics_bytes(const AttentionParams& params) {
  return numbers(params) * (2 * sizeof(float) + sizeof(RowOrigin));
}

void place_statistics(const AttentionParams& params, void* workspace, GradientParams& gradients) {
  gradients.lse_log2 = static_cast<float*>(workspace);
  gradients.delta = gradients.lse_log2 + numbers(params);
  gradients.origins = reinterpret_cast<RowOrigin*>(gradients.delta + numbers(params));
}

void place_large_rows(StreamLease& memory, std::uint64_t blocks, GradientParams& gradients) {
  gradients.large_rows = reinterpret_cast<unsigned*>(memory.counters(3) + 1);
  gradients.large_row_blocks = static_cast<unsigned>(blocks);
}

}  // namespace jit
