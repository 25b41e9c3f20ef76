#include "generator/program/emit.h"

#include <cctype>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

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
  std::string name;
  for (const SpecField& field : spec_fields()) {
    if (!field.name_label || (!field.is_always_shown && is_default(field, spec))) continue;
    name += *field.name_label;
    name += identifier_part(value_text(field, spec));
  }
  return name;
}

std::string line(std::string_view type, std::string_view name, const std::string& value,
                 std::string_view doc) {
  return fmt::format("  static constexpr {} {} = {};  // {}\n", type, name, value, doc);
}

std::string number_line(std::string_view name, int value, std::string_view doc) {
  return line("int", name, std::to_string(value), doc);
}

// What the spec fixes, in every kernel of that spec: a line for each field that is baked.
class SpecLines {
 public:
  SpecLines(const SpecField& field, const AttentionSpec& spec, const FunctorSource& functors)
      : field_(field), spec_(spec), functors_(functors) {}

  std::string operator()(DType AttentionSpec::*dtype) const {
    return fmt::format("  using Element = {};\n", facts(spec_.*dtype).device_type);
  }
  std::string operator()(int AttentionSpec::*) const {
    return line("int", field_.name, value_text(field_, spec_), field_.comment);
  }
  std::string operator()(Mask AttentionSpec::*mask) const {
    return fmt::format("  using Mask = {};  // {}\n", functors_.mask_type, (spec_.*mask).to_string());
  }
  std::string operator()(Score AttentionSpec::*score) const {
    return fmt::format("  using Score = {};  // {}\n", functors_.score_type, (spec_.*score).to_string());
  }
  std::string operator()(std::optional<float> AttentionSpec::*) const { return ""; }  // a run-time argument

 private:
  const SpecField& field_;
  const AttentionSpec& spec_;
  const FunctorSource& functors_;
};

std::string spec_lines(const AttentionSpec& spec, const FunctorSource& functors) {
  std::string text;
  for (const SpecField& field : spec_fields()) {
    if (field.is_baked) text += std::visit(SpecLines(field, spec, functors), field.member);
  }
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

Program emit_forward_sm80(const AttentionSpec& spec, const KernelConfig& config) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  program.threads = config.warps * 32;
  program.smem_bytes = smem_bytes(spec, config);
  program.kernel_name = fmt::format("attn_fwd_sm80_{}_q{}kv{}w{}k{}v{}", problem_name(spec), config.tile_q,
                                    config.tile_kv, config.warps, config.stages_k, config.stages_v);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_mma_sync/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(config) + "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "static_assert(forward_mma_sync::smem_layout<Config>().total == {}, \"host and device disagree on "
      "shared memory\");\n\n",
      program.smem_bytes);
  source += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__(Config::warps * warp_size, Config::blocks_per_sm)\n"
      "{}(const __grid_constant__ AttentionParams params) {{\n  "
      "forward_mma_sync::attention_forward<Config>(params);\n}}\n",
      program.kernel_name);
  return program;
}

Program emit_forward_sm90(const AttentionSpec& spec, const KernelConfig& config) {
  const FunctorSource functors = functor_source(spec);
  const RegisterShares shares = register_shares(spec, config);
  Program program;
  program.threads = threads_per_block(config);
  program.smem_bytes = smem_bytes(spec, config);
  program.kernel_name = fmt::format("attn_fwd_sm90_{}_q{}kv{}k{}v{}", problem_name(spec), config.tile_q,
                                    config.tile_kv, config.stages_k, config.stages_v);

  std::string& source = program.source;
  source =
      fmt::format("// Attention forward: {}. Generated: change the spec, not this file.\n", to_string(spec));
  source += "#include \"forward_wgmma/kernel.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + config_lines(config);
  source += number_line("producer_registers", shares.producer, "per thread, once shared out; 0: as launched");
  source += number_line("consumer_registers", shares.consumer, "the same for consumers");
  source += wgmma_function("wgmma_qk", "D = A B: 64 rows of Q, tile_kv rows of K.",
                           {.dtype = spec.dtype,
                            .n = config.tile_kv,
                            .steps = padded_head_dim(spec.head_dim) / facts(spec.dtype).mma_k,
                            .a_in_registers = config.q_in_registers});
  WgmmaProduct pv{.dtype = spec.dtype,
                  .n = padded_head_dim(spec.value_head_dim()),
                  .steps = config.tile_kv / facts(spec.dtype).mma_k,
                  .accumulate = true,
                  .a_in_registers = config.p_in_registers,
                  .b_along_rows = true};
  source += wgmma_function("wgmma_pv", "D += A B: tile_kv columns of P, tile_kv rows of V.", pv);
  pv.steps = forward_wgmma::lower_key_steps(config.tile_kv);
  source += wgmma_function("wgmma_pv_lower", "The same without the upper half of the keys.", pv);
  source += "};\n";
  source += params_assertion() + functors.assertions;
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
      program.kernel_name);
  return program;
}

}  // namespace

Program emit_forward(const AttentionSpec& spec, const KernelConfig& config) {
  return config.mainloop == Mainloop::wgmma ? emit_forward_sm90(spec, config)
                                            : emit_forward_sm80(spec, config);
}

Program emit_reference(const AttentionSpec& spec) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  program.threads = 256;
  program.kernel_name = fmt::format("attn_reference_{}", problem_name(spec));
  std::string& source = program.source;
  source = fmt::format("// Attention reference: {}. Generated: change the spec, not this file.\n",
                       to_string(spec));
  source += "#include \"checks/reference_forward.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n{}(const __grid_constant__ AttentionParams "
      "params, "
      "const __grid_constant__ ReferenceRows rows) {{\n  attention_reference<Config>(params, rows);\n}}\n",
      program.threads, program.kernel_name);
  return program;
}

Program emit_random_fill(DType dtype) {
  Program program;
  program.threads = 256;
  program.kernel_name = fmt::format("random_fill_{}", to_string(dtype));
  program.source = fmt::format(
      "// Random numbers. Generated.\n#include \"checks/random_fill.cuh\"\n\nusing namespace jit;\n\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n{}(unsigned* pairs, long long count, unsigned "
      "seed) {{\n"
      "  random_fill<{}>(pairs, count, seed);\n}}\n",
      program.threads, program.kernel_name, to_string(dtype));
  return program;
}

}  // namespace jit
