#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_split_wgmma/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/program/wgmma_source.h"
#include "templates/base/element.cuh"
#include "templates/split_keys/split_params.cuh"

namespace jit {
namespace {

// Columns of O per wgmma if the launch's registers do not suffice for all; 0: all.
int output_columns_at_once(const AttentionSpec& spec, const ForwardSplitWgmma& config) {
  constexpr int panel = 64;
  const int begun_with =
      launched_registers(Family<ForwardSplitWgmma>::footprint(spec, config).threads, config.blocks_per_sm);
  return padded_head_dim(spec.value_head_dim()) / 2 + forward_split_wgmma::instruction_registers > begun_with
             ? panel
             : 0;
}

std::string wgmma_products(const AttentionSpec& spec, const ForwardSplitWgmma& config) {
  const int mma_k = facts(spec.dtype).mma_k;
  return wgmma_function(
             "wgmma_qk", "D = A B: 64 rows of Q, tile_kv rows of K.",
             {.dtype = spec.dtype, .n = config.tile_kv, .steps = padded_head_dim(spec.head_dim) / mma_k}) +
         wgmma_function(
             "wgmma_pv", "D += A B: tile_kv columns of P, tile_kv rows of V.",
             {.dtype = has_narrow_keys(spec) && !has_converted_scales(spec) ? DType::fp16 : spec.dtype,
              .n = padded_head_dim(spec.value_head_dim()),
              .steps = config.tile_kv / mma_k,
              .accumulate = true,
              .a_in_registers = true,
              .b_along_rows = true,
              .columns_at_once = output_columns_at_once(spec, config)});
}

}  // namespace

Program Family<ForwardSplitWgmma>::program(const AttentionSpec& spec, const ForwardSplitWgmma& config) {
  return split_wgmma_program(
      spec, {.family = name,
             .tiles = fmt::format("r{}kv{}s{}", config.tile_rows, config.tile_kv, config.stages),
             .products = wgmma_products(spec, config),
             .config = config_lines(fields(), config) + converted_scales_line(spec),
             .registers = forward_split_wgmma::register_shares(spec, config),
             .needs = footprint(spec, config),
             .memory_bytes = sizeof(KernelMemory)});
}

}  // namespace jit
