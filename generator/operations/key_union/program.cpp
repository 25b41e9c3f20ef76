#include "generator/operations/key_union/program.h"

#include <fmt/format.h>

#include "generator/operations/spec_rules.h"
#include "templates/key_union/params.cuh"

namespace jit {

void validate(const KeyUnionSpec& spec) { check_range("queries", spec.queries, 2, max_list_queries); }

Program key_union_program(const KeyUnionSpec& spec) {
  constexpr int counts_bytes = key_union_threads / 32 * 4;
  Program program;
  program.threads = key_union_threads;
  program.smem_bytes = key_union_bytes + counts_bytes;
  program.name = fmt::format("key_union_{}", spec.queries);
  program.facts = {{"spec", fmt::format("key_union queries={}", spec.queries)}};
  program.source =
      "// Unions of lists of keys. Generated: change the spec, not this file.\n"
      "#include \"key_union/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {\n" +
      constant_line("int", "queries", std::to_string(spec.queries), "that share a list") + "};\n";
  program.source += kernel_text(program, "KeyUnionParams", sizeof(KeyUnionParams), "unite_keys");
  return program;
}

}  // namespace jit
