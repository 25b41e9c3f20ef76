#include "generator/program/emit.h"

#include <cctype>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/program/functor_source.h"
#include "templates/base/dropout_params.cuh"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {
namespace {

// A part of a kernel name, readable in a profiler: letters, digits and underscores.
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
  std::string name;
  for (const SpecField& field : spec_fields()) {
    if (!field.name_label || (!field.is_always_shown && is_default(field, spec))) continue;
    name += *field.name_label;
    name += identifier_part(value_text(field, spec));
  }
  return name;
}

std::string number_line(std::string_view name, int value, std::string_view doc) {
  return line("int", name, std::to_string(value), doc);
}

namespace {

// Lines for a compiled-in spec field, equal in all kernels of a spec.
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
  std::string operator()(bool AttentionSpec::*) const {
    return line("bool", field_.name, value_text(field_, spec_), field_.comment);
  }
  std::string operator()(SequenceKind AttentionSpec::*) const {
    return line("SequenceKind", field_.name, "SequenceKind::" + value_text(field_, spec_), field_.comment);
  }
  std::string operator()(ScaleKind AttentionSpec::*) const {
    return line("ScaleKind", field_.name, "ScaleKind::" + value_text(field_, spec_), field_.comment);
  }
  std::string operator()(std::optional<DType> AttentionSpec::*dtype) const {
    if (dtype == &AttentionSpec::kv_dtype)
      return fmt::format("  using KvElement = {};\n", facts(spec_.key_dtype()).device_type);
    return output_dtype(spec_) == spec_.dtype
               ? ""
               : fmt::format("  using OutputElement = {};\n", facts(output_dtype(spec_)).device_type);
  }
  std::string operator()(Mask AttentionSpec::*mask) const {
    return fmt::format("  using Mask = {};  // {}\n", functors_.mask_type, (spec_.*mask).to_string());
  }
  std::string operator()(Score AttentionSpec::*score) const {
    return fmt::format("  using Score = {};  // {}\n", functors_.score_type, (spec_.*score).to_string());
  }
  std::string operator()(OutputFunctor AttentionSpec::*output) const {
    return fmt::format("  using OutputFunctor = {};  // {}\n", functors_.output_type,
                       (spec_.*output).to_string());
  }
  std::string operator()(std::optional<float> AttentionSpec::*) const { return ""; }  // a run-time argument

 private:
  const SpecField& field_;
  const AttentionSpec& spec_;
  const FunctorSource& functors_;
};

}  // namespace

std::string spec_lines(const AttentionSpec& spec, const FunctorSource& functors) {
  std::string text;
  for (const SpecField& field : spec_fields()) {
    if (field.is_line_if_set && is_default(field, spec)) continue;
    if (field.is_baked) text += std::visit(SpecLines(field, spec, functors), field.member);
  }
  if (!functors.places_type.empty())
    text += fmt::format("  using Places = {};  // where queries and keys stand\n", functors.places_type);
  if (!functors.arrivals_type.empty())
    text += fmt::format("  using Arrivals = {};  // which keys come when\n", functors.arrivals_type);
  if (!functors.lists_type.empty())
    text += fmt::format("  using Lists = {};  // the keys that each query sees\n", functors.lists_type);
  return text;
}

std::string params_assertion() {
  return fmt::format(
      "static_assert(sizeof(AttentionParams) == {}, "
      "\"host and device disagree on the kernel's parameters\");\n",
      sizeof(AttentionParams));
}

std::string gradient_params_assertion() {
  return fmt::format(
      "static_assert(sizeof(GradientParams) == {}, "
      "\"host and device disagree on the kernel's parameters\");\n",
      sizeof(GradientParams));
}

Program emit_reference(const AttentionSpec& spec) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  program.threads = 256;
  program.name = fmt::format("attention_reference_{}", problem_name(spec));
  program.facts = {{"spec", to_string(spec)}};
  std::string& source = program.source;
  source = fmt::format("// Attention reference: {}. Generated: change the spec, not this file.\n",
                       to_string(spec));
  source += "#include \"checks/reference_forward.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ ReferenceRows rows) {{\n"
      "  attention_reference<Config>(params, rows);\n}}\n",
      program.threads, program.name);
  return program;
}

Program emit_gradient_reference(const AttentionSpec& spec) {
  const FunctorSource functors = functor_source(spec, ScoreNumbers::duals);
  Program program;
  program.threads = 256;
  program.name = fmt::format("attention_gradient_reference_{}", problem_name(spec));
  program.facts = {{"spec", to_string(spec)}};
  std::string& source = program.source;
  source = fmt::format("// Attention backward, reference: {}. Generated: change the spec, not this file.\n",
                       to_string(spec));
  source += "#include \"checks/reference_gradients.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(spec, functors) + "};\n";
  source += params_assertion() + gradient_params_assertion() + functors.assertions;
  source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams gradients, "
      "const __grid_constant__ ReferenceGradientRows rows) {{\n"
      "  gradient_reference<Config>(params, gradients, rows);\n}}\n",
      program.threads, program.name);
  return program;
}

namespace {

// The spec of a check's inputs. All tensors keep their slots: positions come first, the score's last.
AttentionSpec checked_spec(const AttentionSpec& spec, const Mask& mask) {
  return {.seqlen_q = spec.seqlen_q,
          .seqlen_kv = spec.seqlen_kv,
          .sequences_q = spec.sequences_q,
          .sequences_kv = spec.sequences_kv,
          .page_size = spec.page_size,
          .q_positions = spec.q_positions,
          .k_positions = spec.k_positions,
          .mask = mask};
}

// The kernel of templates/checks/check_`what`.cuh, which records an ArrayFault.
Program emit_array_check(const AttentionSpec& asked, std::string_view name, std::string_view what) {
  const FunctorSource functors = functor_source(asked);
  Program program;
  program.threads = 128;
  program.name = fmt::format("{}_check_{}", name, problem_name(asked));
  program.facts = {{"spec", to_string(asked)}};
  program.source = fmt::format(
      "// Check of {0}. Generated: change the spec, not this file.\n"
      "#include \"checks/check_{0}.cuh\"\n\nusing namespace jit;\n\n"
      "{1}struct Config {{\n{2}}};\n{3}",
      what, functors.definitions, spec_lines(asked, functors), params_assertion());
  program.source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ AttentionParams params, ArrayFault* fault) {{\n"
      "  check_{}<Config>(params, fault);\n}}\n",
      program.threads, program.name, what);
  return program;
}

}  // namespace

Program emit_position_check(const AttentionSpec& spec) {
  return emit_array_check(checked_spec(spec, mask::none()), "position", "positions");
}

Program emit_tree_check(const AttentionSpec& spec) {
  return emit_array_check(checked_spec(spec, spec.mask), "tree", "tree");
}

Program emit_mask_check(const AttentionSpec& spec) {
  const AttentionSpec asked = checked_spec(spec, spec.mask);
  const FunctorSource functors = functor_source(asked);
  Program program;
  program.threads = 128;
  program.name = fmt::format("mask_check_{}", problem_name(asked));
  program.facts = {{"spec", to_string(asked)}};
  std::string& source = program.source;
  source = fmt::format("// Check of the mask {}. Generated: change the spec, not this file.\n",
                       spec.mask.to_string());
  source += "#include \"checks/check_mask.cuh\"\n\nusing namespace jit;\n\n";
  source += functors.definitions;
  source += "struct Config {\n" + spec_lines(asked, functors) + "};\n";
  source += params_assertion() + functors.assertions;
  source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ AttentionParams params, MaskFault* fault) {{\n"
      "  check_mask<Config>(params, fault);\n}}\n",
      program.threads, program.name);
  return program;
}

Program emit_random_fill(DType dtype) {
  Program program;
  program.threads = 256;
  program.name = fmt::format("random_fill_{}", to_string(dtype));
  program.source = fmt::format(
      "// Random numbers. Generated.\n#include \"checks/random_fill.cuh\"\n\nusing namespace jit;\n\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(unsigned* words, long long count, unsigned seed) {{\n"
      "  random_fill<{}>(words, count, seed);\n}}\n",
      program.threads, program.name, facts(dtype).device_type);
  return program;
}

}  // namespace jit
