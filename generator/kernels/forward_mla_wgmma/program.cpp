#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/kernels/forward_mla_wgmma/family.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/base/element.cuh"
#include "templates/forward_mla_wgmma/smem_layout.cuh"
#include "templates/forward_mla_wgmma/tensor_maps.cuh"

namespace jit {
namespace {

// The products of tiles that the kernel consists of, as what its Config inherits.
SourceFile wgmma_products(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  std::string text =
      "// Products of tiles by wgmma, for one kernel. Generated: change the spec, not this file.\n"
      "#pragma once\n\nstruct WgmmaProducts {\n";
  text += wgmma_function("wgmma_qk", "D = A B: 64 rows of Q, tile_kv rows of K.",
                         {.dtype = spec.dtype,
                          .n = config.tile_kv,
                          .steps = padded_head_dim(spec.head_dim) / facts(spec.dtype).mma_k});
  WgmmaProduct pv{.dtype = spec.dtype,
                  .n = spec.value_head_dim() / forward_mla_wgmma::consumers,
                  .steps = config.tile_kv / facts(spec.dtype).mma_k,
                  .accumulate = true,
                  .b_along_rows = true};
  text += wgmma_function("wgmma_taken_pv", "D += A B: tile_kv columns of P, tile_kv rows of K.", pv);
  pv.a_in_registers = true;
  text += wgmma_function("wgmma_given_pv", "The same of P in registers.", pv);
  return {"wgmma_products.cuh", text + "};\n"};
}

}  // namespace

Program Family<ForwardMlaWgmma>::program(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  const FunctorSource functors = functor_source(spec);
  const forward_mla_wgmma::RegisterShares shares = forward_mla_wgmma::register_shares();
  const Footprint needs = footprint(spec, config);
  Program program;
  program.headers = {wgmma_products(spec, config)};
  program.threads = needs.threads;
  program.smem_bytes = needs.smem_bytes;
  program.name = fmt::format("attention_forward_mla_wgmma_{}_kv{}s{}", problem_name(spec), config.tile_kv,
                             config.stages);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source +=
      "#include \"forward_mla_wgmma/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace "
      "jit;\n\n";
  source += functors.definitions;
  source += "struct Config : WgmmaProducts {\n" + spec_lines(spec, functors) + config_lines(fields(), config);
  source += number_line("loader_registers", shares.loader, "per thread, once shared out");
  source += number_line("consumer_registers", shares.consumer, "the same for consumers");
  source += "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(sizeof(forward_mla_wgmma::KernelMemory) == {}, "
      "\"host and device disagree on the kernel's memory\");\n"
      "static_assert(forward_mla_wgmma::KernelTraits<Config>::layout.total == {}, "
      "\"host and device disagree on shared memory\");\n\n",
      sizeof(forward_mla_wgmma::KernelMemory), program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__(forward_mla_wgmma::KernelTraits<Config>::threads, 1)\n"
      "{}(const __grid_constant__ AttentionParams params,\n"
      "    const __grid_constant__ forward_mla_wgmma::KernelMemory memory) {{\n"
      "  forward_mla_wgmma::attention_forward<Config>(params, memory);\n}}\n",
      program.name);
  return program;
}

}  // namespace jit
