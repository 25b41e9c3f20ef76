#include "generator/kernels/persistent/launch.h"
#include "generator/kernels/forward_wgmma/family.h"
#include "generator/launch/ceil_div.h"
#include "generator/launch/kernel_launch.h"
#include "templates/split_keys/span_memory.cuh"
#include "templates/split_keys/span_tree.cuh"

namespace jit {
namespace forward_wgmma {
namespace {

constexpr std::size_t warpgroup_threads = 128;

// Levels of the tree above the spans of the longest sequence.
int waiting_levels(const AttentionSpec& spec, const AttentionParams& params) {
  return span_levels(static_cast<int>(ceil_div(params.seqlen_kv, spec.split_keys))) - 1;
}

}  // namespace

std::size_t span_bytes(const AttentionSpec& spec, const ForwardWgmma& config, const AttentionParams& params,
                       int sm_count) {
  const auto blocks = static_cast<std::size_t>(sm_count) * static_cast<std::size_t>(config.blocks_per_sm);
  const auto threads = static_cast<std::size_t>(consumers_of(config)) * warpgroup_threads;
  const auto pairs = static_cast<std::size_t>(span_node_pairs(spec.value_head_dim()));
  return blocks * static_cast<std::size_t>(waiting_levels(spec, params)) * threads * pairs * 2 *
         sizeof(float);
}

}  // namespace forward_wgmma

void Family<ForwardWgmma>::launch(const KernelLaunch& launch, const ForwardWgmma& config) {
  AttentionParams params = launch.params;
  if (config.upcast_ahead) params = launch_upcast_keys(launch);
  if (config.dropout_mask_ahead)
    params = launch_dropout_mask(launch, forward_wgmma::dropout_mask_tiles(config), launch.workspace);
  SpanMemory spans{};
  if (launch.spec.split_keys != 0)
    spans = {static_cast<float*>(launch.workspace), forward_wgmma::waiting_levels(launch.spec, params)};
  launch_persistent(launch, forward_wgmma::read_spec(launch.spec, config),
                    {config.tile_q, config.tile_kv, config.blocks_per_sm}, params,
                    launch.spec.split_keys != 0 ? &spans : nullptr);
}

}  // namespace jit
