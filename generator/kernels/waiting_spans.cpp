#include "generator/kernels/waiting_spans.h"

#include "generator/launch/ceil_div.h"
#include "templates/split_keys/span_tree.cuh"

namespace jit {
namespace {

// Levels of the merge tree over the spans of the longest sequence.
int waiting_levels(const AttentionSpec& spec, const AttentionParams& params) {
  return span_levels(ceil_div(params.seqlen_kv, spec.split_keys)) - 1;
}

}  // namespace

std::size_t waiting_bytes(const AttentionSpec& spec, const AttentionParams& params, int threads, int rows) {
  const auto pairs = static_cast<std::size_t>(threads) *
                     static_cast<std::size_t>(span_node_pairs(spec.value_head_dim(), rows));
  return static_cast<std::size_t>(waiting_levels(spec, params)) * pairs * 2 * sizeof(float);
}

SpanMemory span_memory(const AttentionSpec& spec, const AttentionParams& params, void* workspace) {
  return {static_cast<float*>(workspace), waiting_levels(spec, params)};
}

}  // namespace jit
