#include "generator/operations/merge/program.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/operations/spec_rules.h"
#include "templates/base/row_lanes.cuh"
#include "templates/merge/params.cuh"

namespace jit {

void validate(const MergeSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::fp32, DType::bf16, DType::fp16});
  check_choice("out_dtype", spec.out_dtype, {DType::bf16, DType::fp16, DType::fp32});
  check_range("head_dim_v", spec.head_dim_v, 1, 1024);
  check_alignment(spec.alignment);
  check_range("views", spec.views, 1, max_merge_views);
}

namespace {

// Each lane of the kernel for any number of states loads as many states at once: more hide memory latency, but take
// registers.
constexpr int most_ahead = 8;
constexpr unsigned few_states = 4;

RowLanes general_lanes(const MergeSpec& spec) {
  return row_lanes(spec.head_dim_v, spec.head_dim_v, std::max(size_of(spec.dtype), size_of(spec.out_dtype)));
}

RowLanes lanes_of(const MergeSpec& spec, bool few) {
  return few ? halved(general_lanes(spec)) : general_lanes(spec);
}

Program merge_program(const MergeSpec& spec, bool few) {
  const std::string what =
      fmt::format("{} to {} d{} align{} views{}{}", to_string(spec.dtype), to_string(spec.out_dtype),
                  spec.head_dim_v, spec.alignment, spec.views, few ? ", few states" : "");
  Program program;
  program.threads = merge_rows_per_block(spec) * lanes_of(spec, few).lanes;
  program.name = fmt::format("merge_{}_{}_d{}_v{}{}", to_string(spec.dtype), to_string(spec.out_dtype),
                             spec.head_dim_v, spec.views, few ? "_few" : "");
  program.facts = {{"spec", "merge " + what}};
  std::string& source = program.source;
  source =
      fmt::format("// Merge of attention states: {}. Generated: change the spec, not this file.\n", what);
  source += fmt::format("#include \"merge/{}.cuh\"\n\nusing namespace jit;\n\nstruct Config {{\n",
                        few ? "few_states" : "kernel");
  source += type_line("Element", spec.dtype, "of o of the partial states");
  source += type_line("OutputElement", spec.out_dtype, "of o");
  source += constant_line("int", "head_dim_v", std::to_string(spec.head_dim_v), "of o, elements");
  source += constant_line("int", "alignment", std::to_string(spec.alignment), "of every row of o, bytes");
  source +=
      constant_line("int", "views", std::to_string(spec.views), "that partial states are given in, at most");
  if (few) {
    source += constant_line("int", "few", std::to_string(few_states), "states, at most");
  } else {
    source += constant_line("int", "ahead",
                            std::to_string(std::clamp(general_lanes(spec).lanes / 2, 2, most_ahead)),
                            "states whose rows a lane asks for at once, if a row is one piece for each lane");
  }
  source += "};\n" +
            kernel_text(program, "MergeParams<Config::views>",
                        sizeof(MergeParams<1>) + static_cast<std::size_t>(spec.views - 1) * sizeof(MergeView),
                        few ? "merge_few_states" : "merge_states");
  return program;
}

}  // namespace

int merge_rows_per_block(const MergeSpec& spec) { return 256 / general_lanes(spec).lanes; }

bool has_few_states(unsigned states) { return states <= few_states; }

OperationPrograms merge_programs(const MergeSpec& spec) {
  return {merge_program(spec, false), merge_program(spec, true)};
}

}  // namespace jit
