#include "generator/operations/merge/program.h"

#include <algorithm>
#include <optional>
#include <utility>

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

enum class Kind { any, pair, many };
constexpr unsigned many_states = 16;

RowLanes general_lanes(const MergeSpec& spec) {
  return row_lanes(spec.head_dim_v, spec.head_dim_v, std::max(size_of(spec.dtype), size_of(spec.out_dtype)));
}

RowLanes lanes_of(const MergeSpec& spec, Kind kind) {
  return kind == Kind::pair ? halved(general_lanes(spec)) : general_lanes(spec);
}

// With long rows a lane has several pieces per state; with short rows there are too few lanes to read states.
bool can_ask_for_many(const MergeSpec& spec) {
  const RowLanes share = general_lanes(spec);
  return share.iterations == 1 && share.lanes >= 8;
}

// States that a lane loads at once. More hide memory latency, but take registers and instructions.
int states_ahead(const MergeSpec& spec, Kind kind) {
  return kind == Kind::many ? std::min(general_lanes(spec).lanes / 2, 8) : 2;
}

Program merge_program(const MergeSpec& spec, Kind kind) {
  const char* const states = kind == Kind::any ? "" : kind == Kind::pair ? "two" : "many";
  const bool is_pair = kind == Kind::pair;
  const std::string what = fmt::format("{} to {} d{} align{} views{}{}", to_string(spec.dtype),
                                       to_string(spec.out_dtype), spec.head_dim_v, spec.alignment, spec.views,
                                       kind == Kind::any ? "" : fmt::format(", {} states", states));
  Program program;
  program.threads = merge_rows_per_block(spec) * lanes_of(spec, kind).lanes;
  program.name =
      fmt::format("merge_{}_{}_d{}_v{}{}", to_string(spec.dtype), to_string(spec.out_dtype), spec.head_dim_v,
                  spec.views, kind == Kind::any ? "" : fmt::format("_{}", states));
  program.facts = {{"spec", "merge " + what}};
  std::string& source = program.source;
  source =
      fmt::format("// Merge of attention states: {}. Generated: change the spec, not this file.\n", what);
  source += fmt::format("#include \"merge/{}.cuh\"\n\nusing namespace jit;\n\nstruct Config {{\n",
                        is_pair ? "pair" : "kernel");
  source += type_line("Element", spec.dtype, "of o of the partial states");
  source += type_line("OutputElement", spec.out_dtype, "of o");
  source += constant_line("int", "head_dim_v", std::to_string(spec.head_dim_v), "of o, elements");
  source += constant_line("int", "alignment", std::to_string(spec.alignment), "of every row of o, bytes");
  if (is_pair) {
    source += "};\n" + kernel_text(program, "MergePairParams", sizeof(MergePairParams), "merge_pair");
    return program;
  }
  source +=
      constant_line("int", "views", std::to_string(spec.views), "that partial states are given in, at most");
  source += constant_line("int", "ahead", std::to_string(states_ahead(spec, kind)),
                          "states whose rows a lane asks for at once, if a row is one piece for each lane");
  source += "};\n" +
            kernel_text(program, "MergeParams<Config::views>",
                        sizeof(MergeParams<1>) + static_cast<std::size_t>(spec.views - 1) * sizeof(MergeView),
                        "merge_states");
  return program;
}

}  // namespace

int merge_rows_per_block(const MergeSpec& spec) { return 256 / general_lanes(spec).lanes; }

OperationProgram merge_program_for(const MergeSpec& spec, unsigned states) {
  if (states == 2) return OperationProgram::some_sizes;
  return states >= many_states && can_ask_for_many(spec) ? OperationProgram::other_sizes
                                                         : OperationProgram::every_size;
}

OperationPrograms merge_programs(const MergeSpec& spec) {
  std::optional<Program> many;
  if (can_ask_for_many(spec)) many = merge_program(spec, Kind::many);
  return {merge_program(spec, Kind::any), merge_program(spec, Kind::pair), std::move(many)};
}

}  // namespace jit
