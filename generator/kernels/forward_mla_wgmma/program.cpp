#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/program/wgmma_source.h"
#include "templates/base/element.cuh"
#include "templates/forward_mla_wgmma/smem_layout.cuh"
#include "templates/split_keys/split_params.cuh"

namespace jit {
namespace {

std::string wgmma_products(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  const int mma_k = facts(spec.dtype).mma_k;
  return wgmma_function(
             "wgmma_qk", "D = A B: 64 rows of Q, tile_kv rows of K.",
             {.dtype = spec.dtype, .n = config.tile_kv, .steps = padded_head_dim(spec.head_dim) / mma_k}) +
         wgmma_function("wgmma_pv", "D += A B: tile_kv columns of P, tile_kv rows of K.",
                        {.dtype = spec.dtype,
                         .n = spec.value_head_dim() / forward_mla_wgmma::consumers,
                         .steps = config.tile_kv / mma_k,
                         .accumulate = true,
                         .a_in_registers = true,
                         .b_along_rows = true});
}

}  // namespace

Program Family<ForwardMlaWgmma>::program(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  return split_wgmma_program(spec, {.family = name,
                                    .tiles = fmt::format("kv{}s{}", config.tile_kv, config.stages),
                                    .products = wgmma_products(spec, config),
                                    .config = config_lines(fields(), config),
                                    .registers = forward_mla_wgmma::register_shares(config),
                                    .needs = footprint(spec, config),
                                    .memory_bytes = sizeof(KernelMemory)});
}

}  // namespace jit
