#include "tests/extending/forward_plain.h"

#include <fmt/format.h>

#include "generator/launch/ceil_div.h"
#include "generator/launch/kernel_launch.h"
#include "generator/program/emit.h"
#include "runtime/launch.h"

namespace jit {
namespace {

constexpr std::array rows = {
    field<&ForwardPlain::queries>("queries", "queries per block, a thread each",
                                  {multiples(32, 256), Affects::tiling, 128}),
};
static_assert(rows.size() == member_count<ForwardPlain>(), "each member has a row");

}  // namespace

std::span<const ConfigField<ForwardPlain>> Family<ForwardPlain>::fields() { return rows; }

std::string Family<ForwardPlain>::rejection(const Case& problem, const ForwardPlain&) {
  if (problem.spec.alignment >= 4) return "";
  return fmt::format("{} writes words and needs rows aligned to 4 bytes; spec.alignment is {}", name,
                     problem.spec.alignment);
}

std::vector<ForwardPlain> Family<ForwardPlain>::space(const Case&) {
  return {{.queries = 64}, {.queries = 128}};
}

Footprint Family<ForwardPlain>::footprint(const AttentionSpec&, const ForwardPlain& config) {
  return {.threads = config.queries, .registers = 64, .register_cap = max_registers_per_thread};
}

double Family<ForwardPlain>::cycles(const Case& problem, const ProblemShape& shape, const ForwardPlain&) {
  const double scores = static_cast<double>(shape.batch * shape.heads_q) *
                        static_cast<double>(shape.seqlen_q) * static_cast<double>(shape.seqlen_kv);
  return scores * (problem.spec.head_dim + problem.spec.value_head_dim()) / problem.limits.sm_count;
}

Program Family<ForwardPlain>::program(const AttentionSpec& spec, const ForwardPlain& config) {
  const FunctorSource functors = functor_source(spec);
  Program program;
  program.name = "attention_forward_plain_" + problem_name(spec);
  program.threads = config.queries;
  program.source = "#include \"forward_plain/kernel.cuh\"\n\nusing namespace jit;\n\n" +
                   functors.definitions + "struct Config {\n" + spec_lines(spec, functors) +
                   config_lines(fields(), config) + "};\n" + params_assertion() + functors.assertions;
  program.source += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__(Config::queries)\n"
      "{}(const __grid_constant__ AttentionParams params, float* sums) {{\n"
      "  forward_plain::attention_forward<Config>(params, sums);\n}}\n",
      program.name);
  return program;
}

std::size_t Family<ForwardPlain>::workspace_bytes(const AttentionSpec& spec, const ForwardPlain&,
                                                  const AttentionParams& params, int /*sm_count*/) {
  const std::size_t rows = static_cast<std::size_t>(params.batch) * static_cast<std::size_t>(params.heads_q) *
                           static_cast<std::size_t>(params.seqlen_q);
  return rows * static_cast<std::size_t>(spec.value_head_dim()) * sizeof(float);
}

void Family<ForwardPlain>::launch(const KernelLaunch& launch, const ForwardPlain& config) {
  void* sums = launch.workspace;
  void* arguments[] = {&launch.params, &sums};
  const auto size = [](int count) { return static_cast<unsigned>(count); };
  jit::launch(launch.kernel.kernel.handle(),
              {.grid = {size(ceil_div(launch.params.seqlen_q, config.queries)), size(launch.params.heads_q),
                        size(launch.params.batch)},
               .block = {launch.kernel.threads, 1, 1}},
              arguments, launch.stream);
}

}  // namespace jit
