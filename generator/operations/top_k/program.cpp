#include "generator/operations/top_k/program.h"

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/operations/spec_rules.h"
#include "templates/top_k/params.cuh"

namespace jit {

void validate(const TopKSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::fp32, DType::bf16, DType::fp16});
  check_range("k", spec.k, 1, most_top_k);
  check_range("init_blocks", spec.init_blocks, 0, spec.k);
  check_range("local_blocks", spec.local_blocks, 0, spec.k - spec.init_blocks);
  check_range("page_size", spec.page_size, 0, 65536);
}

Program top_k_program(const TopKSpec& spec, int cluster) {
  const std::string what =
      fmt::format("{} k{}{}{}{}", to_string(spec.dtype), spec.k,
                  spec.init_blocks > 0 ? fmt::format(" init{}", spec.init_blocks) : "",
                  spec.local_blocks > 0 ? fmt::format(" local{}", spec.local_blocks) : "",
                  spec.page_size > 0 ? fmt::format(" page{}", spec.page_size) : "");
  Program program;
  program.threads = top_k_threads;
  program.blocks_per_sm = 2;
  program.cluster = cluster;
  program.smem_bytes = top_k_smem(spec.k).total * 4;
  program.name = fmt::format("top_k_{}_{}{}", to_string(spec.dtype), spec.k, cluster > 1 ? "_few" : "");
  program.facts = {{"spec", fmt::format("top_k {}{}", what, cluster > 1 ? ", few rows" : "")}};
  std::string& source = program.source;
  source = fmt::format("// The largest scores of each row: {}. Generated: change the spec, not this file.\n",
                       what);
  source += "#include \"top_k/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {\n";
  source += type_line("Element", spec.dtype, "of scores");
  source += constant_line("int", "k", std::to_string(spec.k), "columns of a list");
  source +=
      constant_line("int", "init_blocks", std::to_string(spec.init_blocks), "first columns, always chosen");
  source +=
      constant_line("int", "local_blocks", std::to_string(spec.local_blocks), "last columns, always chosen");
  source += constant_line("int", "page_size", std::to_string(spec.page_size),
                          "of the table of slots; 0: there is none");
  source += constant_line("int", "cluster", std::to_string(cluster), "blocks that share a row");
  source += "};\n" +
            kernel_text(program, "TopKParams", sizeof(TopKParams), "choose_top_k",
                        fmt::format("static_assert(top_k_smem(Config::k).total * 4 == {}, \"host and device "
                                    "disagree on shared memory\");\n",
                                    program.smem_bytes));
  return program;
}

}  // namespace jit
