#include "generator/program/emit.h"

#include <cctype>

#include <fmt/format.h>

#include "generator/program/functor_source.h"
#include "templates/base/params.cuh"

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

std::string line(std::string_view type, std::string_view name, const std::string& value,
                 std::string_view doc) {
  return fmt::format("  static constexpr {} {} = {};  // {}\n", type, name, value, doc);
}

}  // namespace

std::string problem_name(const AttentionSpec& spec) {
  std::string name = fmt::format("{}_d{}", to_string(spec.dtype), spec.head_dim);
  if (spec.value_head_dim() != spec.head_dim) name += fmt::format("v{}", spec.value_head_dim());
  if (spec.gqa_ratio != 1) name += fmt::format("_gqa{}", spec.gqa_ratio);
  if (spec.mask != Mask()) name += "_" + identifier_part(spec.mask.to_string());
  if (spec.score != Score()) name += "_" + identifier_part(spec.score.to_string());
  return name;
}

std::string number_line(std::string_view name, int value, std::string_view doc) {
  return line("int", name, std::to_string(value), doc);
}

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
