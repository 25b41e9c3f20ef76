#include "generator/operations/matmul/program.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/operations/spec_rules.h"
#include "generator/tensors/tensor_checks.h"
#include "templates/matmul/params.cuh"
#include "templates/matmul/tiles.cuh"

namespace jit {
namespace {

/// A step's properties for the host; templates/matmul/NAME.cuh defines its function multiply_NAME.
struct Step {
  MatmulStep named;
  int stages = 0;         ///< of dynamic shared memory
  int blocks_per_sm = 0;  ///< for launch bounds; 0: unspecified
  int threads = matmul::WarpTiles::threads;
};

const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {{"smem_tiles", "tiles in shared memory"}, 0, 0, matmul::ThreadTiles::threads},
      {{"tensor_cores", "mma.sync"}, 1},
      {{"ldmatrix", "ldmatrix, and a swizzle against bank conflicts"}, 1},
      {{"cp_async", "cp.async in three stages"}, matmul::pipeline_stages, 2},
      {{"double_buffer", "fragments of the next 16 columns are loaded during products"},
       matmul::pipeline_stages,
       2},
      {{"split_k", "blocks share a tile of C"}, matmul::pipeline_stages, 2}};
  return all;
}

Program program_of(const std::string& header, const std::string& name) {
  Program program;
  program.name = name;
  program.facts = {{"spec", "matrix product, " + header}};
  program.source = fmt::format(
      "// Matrix product C = A Bᵀ in bf16. Generated: change templates/matmul/{0}.cuh, not this file.\n"
      "#include \"matmul/{0}.cuh\"\n\nusing namespace jit;\n\nstruct Config {{\n",
      header);
  program.source += type_line("Element", DType::bf16, "of a, b and c") + "};\n";
  return program;
}

Program with_kernel(Program program, const std::string& function) {
  const std::string stages =
      program.smem_bytes > matmul::WarpTiles::stage_bytes ? "matmul::pipeline_stages" : "1";
  const std::string assertion = program.smem_bytes == 0
                                    ? ""
                                    : fmt::format(
                                          "static_assert({} * matmul::WarpTiles::stage_bytes == {}, \"host "
                                          "and device disagree on shared "
                                          "memory\");\n",
                                          stages, program.smem_bytes);
  program.source +=
      kernel_text(program, "MatmulParams", sizeof(MatmulParams), "matmul::" + function, assertion);
  return program;
}

}  // namespace

const std::vector<MatmulStep>& matmul_ladder() {
  static const std::vector<MatmulStep> names = [] {
    std::vector<MatmulStep> all;
    for (const Step& step : steps()) all.push_back(step.named);
    return all;
  }();
  return names;
}

std::size_t matmul_step_index(std::string_view name) {
  const std::vector<MatmulStep>& all = matmul_ladder();
  const auto found = std::ranges::find(all, name, &MatmulStep::name);
  if (found != all.end()) return static_cast<std::size_t>(found - all.begin());
  std::vector<std::string_view> names;
  for (const MatmulStep& step : all) names.push_back(step.name);
  refuse("step",
         fmt::format("'{}' is no step of the matrix product; steps are {}", name, fmt::join(names, ", ")));
}

bool splits_k(std::size_t step) { return steps()[step].named.name == "split_k"; }

Program matmul_program(std::size_t index) {
  const Step& step = steps()[index];
  const std::string& name = step.named.name;
  Program written = program_of(name, "matmul_" + name);
  written.threads = step.threads;
  written.blocks_per_sm = step.blocks_per_sm;
  written.smem_bytes = step.stages * matmul::WarpTiles::stage_bytes;
  return with_kernel(std::move(written), "multiply_" + name);
}

Program sum_splits_program() {
  Program written = program_of("sum_splits", "matmul_sum_splits");
  written.threads = matmul::sum_threads;
  return with_kernel(std::move(written), "sum_splits");
}

}  // namespace jit
