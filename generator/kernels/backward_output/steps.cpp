#include "generator/kernels/backward_output/steps.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/launch/raw_gradient.h"
#include "generator/launch/sequence_grid.h"
#include "generator/problem/tma_operands.h"
#include "generator/program/emit.h"
#include "generator/program/functor_source.h"
#include "runtime/launch.h"

namespace jit::backward_output {
namespace {

constexpr int threads = 256;
constexpr int tile_q = 32;  // eight threads per row

// The spec of this kernel's inputs. Functors' tensors keep their slots.
AttentionSpec own_spec(const AttentionSpec& spec) {
  AttentionSpec own = spec;
  own.sinks = own.dropout = own.checked = own.max_logit = own.row_max = own.mean_score = false;
  own.split_keys = 0;
  own.gqa_ratio = 1;
  own.head_dim = own.head_dim_v = spec.value_head_dim();
  return own;
}

}  // namespace

Program program(const AttentionSpec& spec) {
  const AttentionSpec own = own_spec(spec);
  const FunctorSource functors = functor_source(own, ScoreNumbers::duals);
  Program program;
  program.threads = threads;
  program.may_fuse = false;
  program.name = fmt::format("attention_backward_output_{}", problem_name(own));
  program.facts = {{"spec", to_string(own)}};
  program.source =
      fmt::format("// Attention backward, gradients of the output functor: {}. Generated.\n", to_string(own));
  program.source +=
      "#include \"backward_output/kernel.cuh\"\n#include \"problem/masks.cuh\"\n"
      "#include \"problem/scores.cuh\"\n\nusing namespace jit;\n\n" +
      functors.definitions + "struct Config {\n" + spec_lines(own, functors) +
      number_line("tile_q", tile_q, "queries of a block") + "};\n" + params_assertion() +
      gradient_params_assertion();
  program.source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({0})\n"
      "{1}(const __grid_constant__ AttentionParams params, const __grid_constant__ GradientParams "
      "gradients,\n"
      "    const __grid_constant__ RawGradient raw) {{\n"
      "  backward_output::differentiate_output<Config, {0}>(params, gradients, raw);\n}}\n",
      threads, program.name);
  return program;
}

void launch(const AttentionSpec& spec, const KernelLaunch& launch) {
  AttentionParams& params = launch.params;
  RawGradient raw = raw_gradient(spec, params, launch.kept);
  void* arguments[] = {&params, launch.gradients, &raw};
  const SequenceGrid grid = query_grid(spec, params, tile_q);
  const std::int64_t of_entry = std::int64_t{params.heads_q} * grid.tiles;
  if (of_entry > 0) {
    const int entries =
        static_cast<int>(std::clamp<std::int64_t>(max_work_tiles / of_entry, 1, std::max(1, grid.entries)));
    for (params.batch_begin = 0; params.batch_begin < grid.entries; params.batch_begin += entries) {
      const int count = std::min(grid.entries - params.batch_begin, entries);
      jit::launch(launch.kernel.kernel.handle(),
                  {.grid = {static_cast<unsigned>(count * of_entry), 1, 1},
                   .block = {launch.kernel.threads, 1, 1},
                   .dependent = true},
                  arguments, launch.stream);
    }
    params.batch_begin = 0;
  }
  launch.gradients->d_o = raw.data;
  launch.gradients->do_strides = raw.strides;
}

}  // namespace jit::backward_output
