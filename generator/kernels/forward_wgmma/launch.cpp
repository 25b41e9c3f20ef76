#include "generator/kernels/persistent/launch.h"
#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_wgmma/family.h"
#include "generator/kernels/waiting_spans.h"
#include "generator/launch/kernel_launch.h"

namespace jit {
std::size_t forward_wgmma::span_bytes(const AttentionSpec& spec, const ForwardWgmma& config,
                                      const AttentionParams& params, int sm_count) {
  constexpr int warpgroup_threads = 128;
  const auto blocks = static_cast<std::size_t>(sm_count) * static_cast<std::size_t>(config.blocks_per_sm);
  return blocks * waiting_bytes(spec, params, consumers_of(config) * warpgroup_threads);
}

void Family<ForwardWgmma>::launch(const KernelLaunch& launch, const ForwardWgmma& config) {
  AttentionParams params = launch.params;
  if (config.upcast_ahead) {
    params = launch_upcast_keys(launch);
  } else {
    params = converter_params(launch.spec, launch.params);
  }
  if (config.dropout_mask_ahead)
    params = launch_dropout_mask(launch, forward_wgmma::dropout_mask_tiles(config), launch.workspace);
  SpanMemory spans{};
  if (launch.spec.split_keys != 0) spans = span_memory(launch.spec, params, launch.workspace);
  launch_persistent(launch, forward_wgmma::read_spec(launch.spec, config),
                    {config.tile_q, config.tile_kv, config.blocks_per_sm}, params,
                    launch.spec.split_keys != 0 ? &spans : nullptr);
}

}  // namespace jit
