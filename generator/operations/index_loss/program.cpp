#include "generator/operations/index_loss/program.h"

#include <string>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/operations/spec_rules.h"
#include "templates/index_loss/params.cuh"

namespace jit {

void validate(const IndexLossSpec& spec) {
  constexpr int most_heads = 128;
  check_choice("dtype", spec.dtype, {DType::bf16, DType::fp16});
  check_range("heads", spec.heads, 1, most_heads);
  if (spec.head_dim != 64 && spec.head_dim != 128)
    refuse_spec("head_dim", std::to_string(spec.head_dim), "must be 64 or 128",
                spec.head_dim < 64 ? "64" : "128");
  if (spec.part_bytes < 1)
    refuse_spec("part_bytes", std::to_string(spec.part_bytes), "must be at least 1", "1");
}

Program index_loss_program(const IndexLossSpec& spec) {
  const std::string what = fmt::format("{} h{} d{}", to_string(spec.dtype), spec.heads, spec.head_dim);
  Program program;
  program.threads = index_loss_threads;
  program.smem_bytes = index_loss_smem(spec.heads, spec.head_dim).total;
  program.name = fmt::format("index_loss_{}_h{}_d{}", to_string(spec.dtype), spec.heads, spec.head_dim);
  program.facts = {{"spec", "index_loss " + what}};
  std::string& source = program.source;
  source = fmt::format("// The loss of an indexer: {}. Generated: change the spec, not this file.\n", what);
  source += "#include \"index_loss/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {\n";
  source += type_line("Element", spec.dtype, "of q and k");
  source += constant_line("int", "heads", std::to_string(spec.heads), "of q");
  source += constant_line("int", "head_dim", std::to_string(spec.head_dim), "of q and k");
  source += "};\n" + kernel_text(program, "IndexLossParams", sizeof(IndexLossParams), "index_loss");
  return program;
}

}  // namespace jit
