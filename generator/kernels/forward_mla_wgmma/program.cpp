#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/base/element.cuh"
#include "templates/forward_mla_wgmma/smem_layout.cuh"
#include "templates/split_keys/split_params.cuh"

namespace jit {

using namespace forward_mla_wgmma;

namespace {

std::string wgmma_products(const AttentionSpec& spec, bool seesaws) {
  const int mma_k = facts(spec.dtype).mma_k;
  const int part = part_columns(spec.value_head_dim()),
            alone = padded_head_dim(spec.head_dim) - spec.value_head_dim();
  const WgmmaProduct of_part{.dtype = spec.dtype, .n = tile_kv, .steps = part / mma_k, .accumulate = true};
  const WgmmaProduct of_values{
      .dtype = spec.dtype, .n = part, .steps = tile_kv / mma_k, .accumulate = true, .b_along_rows = true};
  WgmmaProduct of_alone = of_part, held = of_part, held_p = of_values;
  of_alone.steps = alone / mma_k;
  held.a_in_registers = held_p.a_in_registers = true;
  WgmmaProduct first = seesaws ? of_part : held;
  first.accumulate = false;
  std::string text = alone > 0 ? wgmma_function("wgmma_qk_alone",
                                                "D += A B: columns that are keys alone, and of Q.", of_alone)
                               : std::string();
  text += wgmma_function("wgmma_qk", "D += A B: a part of the columns of values, and of Q.", of_part);
  if (!seesaws) text += wgmma_function("wgmma_qk_held", "D += A B: the same of Q in registers.", held);
  text += wgmma_function("wgmma_qk_first", "D = A B: the same.", first);
  text += wgmma_function("wgmma_pv", "D += A B: P, and tile_kv rows of a part of the values.", of_values);
  if (seesaws) text += wgmma_function("wgmma_pv_held", "D += A B: the same of P in registers.", held_p);
  return text;
}

}  // namespace

Program Family<ForwardMlaWgmma>::program(const AttentionSpec& stored, const ForwardMlaWgmma& config) {
  const AttentionSpec spec = read_spec(stored, config);
  const bool converts = converts_rows(stored, config);
  std::string lines = config_lines(fields(), config) + number_line("tile_kv", tile_kv, "keys per step");
  if (converts)
    lines += fmt::format("  using StoredLatent = {};  // as rows are stored\n",
                         facts(stored.key_dtype()).device_type);
  Program program =
      split_wgmma_program(spec, {.family = name,
                                 .tiles = fmt::format("s{}{}", config.stages, config.pair ? "_pair" : "") +
                                          (converts ? fmt::format("_{}", to_string(stored.key_dtype())) : ""),
                                 .products = wgmma_products(spec, seesaws(stored, config)),
                                 .config = lines,
                                 .registers = register_shares(stored, config),
                                 .needs = footprint(stored, config),
                                 .memory_bytes = sizeof(KernelMemory),
                                 .cluster = config.pair ? 2 : 1});
  if (upcasts_ahead(stored, config)) {
    program.ahead = upcast_keys_name(program.name);
    program.source += std::string("\n") + upcast_keys_include +
                      upcast_keys_source(stored, functor_source(stored), program.name);
  }
  return program;
}

}  // namespace jit
