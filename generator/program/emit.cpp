#include "generator/program/emit.h"

#include <cctype>

#include <fmt/format.h>

#include "generator/kernels/config_space.h"
#include "generator/program/functor_source.h"
#include "generator/program/wgmma_source.h"
#include "templates/base/element.cuh"
#include "templates/base/params.cuh"
#include "templates/forward_mma_sync/smem_layout.cuh"
#include "templates/forward_wgmma/smem_layout.cuh"
#include "templates/forward_wgmma/tensor_maps.cuh"

namespace jit {
namespace {

// A name that a person can read in a profiler: letters, digits and underscores.
std::string identifier_part(const std::string& text) {
  std::string part;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      part += c;
    } else if (!part.empty() && part.back() != '_') {
      part += '_';
    }
  }
  while (!part.empty() && part.back() == '_') part.pop_back();
  return part.substr(0, 40);
}

std::string problem_name(const AttentionSpec& spec) {
  std::string name = fmt::format("{}_d{}", to_string(spec.dtype), spec.head_dim);
  if (spec.value_head_dim() != spec.head_dim) name += fmt::format("v{}", spec.value_head_dim());
  if (spec.gqa_ratio != 1) name += fmt::format("_gqa{}", spec.gqa_ratio);
  if (spec.mask != Mask()) name += "_" + identifier_part(spec.mask.to_string());
  if (spec.score != Score()) name += "_" + identifier_part(spec.score.to_string());
  return name;
}

std::string line(std::string_view type, std::string_view name, const std::string& value,
                 std::string_view doc) {
  return fmt::format("  static constexpr {} {} = {};  // {}\n", type, name, value, doc);
}

std::string number_line(std::string_view name, int value, std::string_view doc) {
  return line("int", name, std::to_string(value), doc);
}

// What the spec fixes, in every kernel of that spec.
std::string spec_lines(const AttentionSpec& spec, const FunctorSource& functors) {
  std::string text;
  text += fmt::format("  using Element = {};\n", to_string(spec.dtype));
  text += fmt::format("  using Mask = {};  // {}\n", functors.mask_type, spec.mask.to_string());
  text += fmt::format("  using Score = {};  // {}\n", functors.score_type, spec.score.to_string());
  text += number_line("head_dim", spec.head_dim, "of q and k, elements");
  text += number_line("head_dim_v", spec.value_head_dim(), "of v and o, elements");
  text += number_line("gqa_ratio", spec.gqa_ratio, "query heads per KV head");
  text += number_line("alignment", spec.alignment, "of every row in global memory, bytes");
  text += number_line("seqlen_q", spec.seqlen_q, "0: a run-time argument");
  text += number_line("seqlen_kv", spec.seqlen_kv, "0: a run-time argument");
  return text;
}

std::string params_assertion() {
  return fmt::format(
      "static_assert(sizeof(AttentionParams) == {}, \"host and device disagree on the kernel's "
      "parameters\");\n",
      sizeof(AttentionParams));
}

std::string config_lines(const KernelConfig& config) {
  std::string text;
  for (const ConfigField& field : config_fields()) {
    // What the mainloop is, the included template says.
    if (field.name != "mainloop" && field.applies_to(config))
      text += line(field.cpp_type, field.name, field.emit(config), field.doc);
  }
  return text;
}

// What listings of the cache say of a forward kernel.
std::vector<std::pair<std::string, std::string>> facts(const AttentionSpec& spec,
                                                       const KernelConfig& config) {
  return {{"spec", to_string(spec)}, {"config", to_string(config)}};
}

Program emit_forward_sm80(const AttentionSpec& spec, const KernelConfig& config) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  program.facts = facts(spec, config);
  program.threads = config.warps * 32;
  program.smem_bytes = smem_bytes(spec, config);
  program.name = fmt::format("attn_fwd_sm80_{}_q{}kv{}w{}k{}v{}", problem_name(spec), config.tile_q,
                             config.tile_kv, config.warps, config.stages_k, config.stages_v);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_mma_sync/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(config) + "};\n";
  source += params_assertion();
  source += fmt::format(
      "static_assert(forward_mma_sync::smem_layout<Config>().total == {}, \"host and device disagree on "
      "shared memory\");\n\n",
      program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__(Config::warps * warp_size, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params) {{\n  "
      "forward_mma_sync::attention_forward<Config>(params);\n}}\n",
      program.name);
  return program;
}

// The products of tiles that a wgmma kernel consists of, as what its Config inherits.
SourceFile wgmma_products(const AttentionSpec& spec, const KernelConfig& config) {
  std::string text =
      "// Products of tiles by wgmma, for one kernel. Generated: change the spec, not this file.\n"
      "#pragma once\n\nstruct WgmmaProducts {\n";
  text += wgmma_function("wgmma_qk", "D = A B: 64 rows of Q, tile_kv rows of K.",
                         {.dtype = spec.dtype,
                          .n = config.tile_kv,
                          .steps = padded_head_dim(spec.head_dim) / 16,
                          .a_in_registers = config.q_in_registers});
  WgmmaProduct pv{.dtype = spec.dtype,
                  .n = padded_head_dim(spec.value_head_dim()),
                  .steps = config.tile_kv / 16,
                  .accumulate = true,
                  .a_in_registers = config.p_in_registers,
                  .b_along_rows = true};
  text += wgmma_function("wgmma_pv", "D += A B: tile_kv columns of P, tile_kv rows of V.", pv);
  pv.steps = forward_wgmma::lower_key_steps(config.tile_kv);
  text += wgmma_function("wgmma_pv_lower", "The same without the upper half of the keys.", pv);
  return {"wgmma_products.cuh", text + "};\n"};
}

Program emit_forward_sm90(const AttentionSpec& spec, const KernelConfig& config) {
  const FunctorSource functors = functor_source(spec);
  const RegisterShares shares = register_shares(spec, config);
  Program program;
  program.facts = facts(spec, config);
  program.headers = {wgmma_products(spec, config)};
  program.threads = threads_per_block(config);
  program.smem_bytes = smem_bytes(spec, config);
  program.name = fmt::format("attn_fwd_sm90_{}_q{}kv{}k{}v{}", problem_name(spec), config.tile_q,
                             config.tile_kv, config.stages_k, config.stages_v);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source +=
      "#include \"forward_wgmma/kernel.cuh\"\n#include \"wgmma_products.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config : WgmmaProducts {\n" + spec_lines(spec, functors) + config_lines(config);
  source += number_line("producer_registers", shares.producer, "per thread, once shared out; 0: as launched");
  source += number_line("consumer_registers", shares.consumer, "the same for consumers");
  source += "};\n";
  source += params_assertion();
  source += fmt::format(
      "static_assert(sizeof(forward_wgmma::TensorMaps) == {}, \"host and device disagree on the tensor "
      "maps\");\n"
      "static_assert(forward_wgmma::KernelTraits<Config>::layout.total == {}, \"host and device disagree on "
      "shared "
      "memory\");\n\n",
      sizeof(forward_wgmma::TensorMaps), program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__(forward_wgmma::KernelTraits<Config>::threads, "
      "Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ forward_wgmma::TensorMaps "
      "maps) {{\n"
      "  forward_wgmma::attention_forward<Config>(params, maps);\n}}\n",
      program.name);
  return program;
}

}  // namespace

Program emit_forward(const AttentionSpec& spec, const KernelConfig& config) {
  return config.mainloop == Mainloop::wgmma ? emit_forward_sm90(spec, config)
                                            : emit_forward_sm80(spec, config);
}

std::vector<std::string_view> forward_entries(Arch arch, bool tma) {
  std::vector<std::string_view> entries = {"forward_mma_sync/kernel.cuh"};
  if (arch == Arch{9, 0, 'a'} && tma) entries.push_back("forward_wgmma/kernel.cuh");
  return entries;
}

Program emit_reference(const AttentionSpec& spec) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  program.threads = 256;
  program.name = fmt::format("attn_reference_{}", problem_name(spec));
  program.facts = {{"spec", to_string(spec)}};
  std::string& source = program.source;
  source = fmt::format("// Attention reference: {}. Generated: change the spec, not this file.\n",
                       to_string(spec));
  source += "#include \"checks/reference_forward.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + "};\n";
  source += params_assertion();
  source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n{}(const __grid_constant__ AttentionParams "
      "params, "
      "const __grid_constant__ ReferenceRows rows) {{\n  attention_reference<Config>(params, rows);\n}}\n",
      program.threads, program.name);
  return program;
}

Program emit_random_fill(DType dtype) {
  Program program;
  program.threads = 256;
  program.name = fmt::format("random_fill_{}", to_string(dtype));
  program.source = fmt::format(
      "// Random numbers. Generated.\n#include \"checks/random_fill.cuh\"\n\nusing namespace jit;\n\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n{}(unsigned* pairs, long long count, unsigned "
      "seed) {{\n"
      "  random_fill<{}>(pairs, count, seed);\n}}\n",
      program.threads, program.name, to_string(dtype));
  return program;
}

}  // namespace jit
