#include "generator/operations/transpose_lists/program.h"

#include "generator/operations/spec_rules.h"
#include "templates/transpose_lists/params.cuh"

namespace jit {

Program transpose_lists_program() {
  constexpr int sums_bytes = 32 * 4;
  Program program;
  program.threads = transpose_threads;
  program.smem_bytes = transpose_bytes + sums_bytes;
  program.name = "transpose_lists";
  program.facts = {{"spec", "transpose_lists"}};
  program.source =
      "// Transposes lists of keys. Generated.\n"
      "#include \"transpose_lists/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {};\n";
  program.source +=
      kernel_text(program, "TransposeListsParams", sizeof(TransposeListsParams), "transpose_lists");
  return program;
}

}  // namespace jit
