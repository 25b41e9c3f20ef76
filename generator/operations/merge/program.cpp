#include "generator/operations/merge/program.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/operations/spec_rules.h"
#include "templates/merge/params.cuh"

namespace jit {

void validate(const MergeSpec& spec) {
  check_choice("dtype", spec.dtype, {DType::fp32, DType::bf16, DType::fp16});
  check_choice("out_dtype", spec.out_dtype, {DType::bf16, DType::fp16, DType::fp32});
  check_range("head_dim_v", spec.head_dim_v, 1, 1024);
  check_alignment(spec.alignment);
  check_range("views", spec.views, 1, max_merge_views);
}

RowLanes merge_lanes(const MergeSpec& spec) {
  return row_lanes(spec.head_dim_v, spec.head_dim_v, std::max(size_of(spec.dtype), size_of(spec.out_dtype)));
}

namespace {

constexpr unsigned many_states = 16;

// With long rows a lane has several pieces per state; with short rows there are too few lanes to read states.
bool can_ask_for_many(const MergeSpec& spec) {
  const RowLanes share = merge_lanes(spec);
  return share.iterations == 1 && share.lanes >= 8;
}

// States that a lane loads at once. More hide memory latency, but take registers and so reduce the rows in
// flight, without use for calls of few states.
int states_ahead(const MergeSpec& spec, bool many) {
  return many ? std::min(8, merge_lanes(spec).lanes / 2) : 2;
}

Program merge_program(const MergeSpec& spec, bool many) {
  const std::string what =
      fmt::format("{} to {} d{} align{} views{}{}", to_string(spec.dtype), to_string(spec.out_dtype),
                  spec.head_dim_v, spec.alignment, spec.views, many ? ", many states" : "");
  Program program;
  program.threads = 128;
  if (merge_lanes(spec).iterations == 1) program.blocks_per_sm = merge_blocks_per_sm(many);
  program.name = fmt::format("merge_{}_{}_d{}_v{}{}", to_string(spec.dtype), to_string(spec.out_dtype),
                             spec.head_dim_v, spec.views, many ? "_many" : "");
  program.facts = {{"spec", "merge " + what}};
  std::string& source = program.source;
  source =
      fmt::format("// Merge of attention states: {}. Generated: change the spec, not this file.\n", what);
  source += "#include \"merge/kernel.cuh\"\n\nusing namespace jit;\n\nstruct Config {\n";
  source += type_line("Element", spec.dtype, "of o of the partial states");
  source += type_line("OutputElement", spec.out_dtype, "of o");
  source += constant_line("int", "head_dim_v", std::to_string(spec.head_dim_v), "of o, elements");
  source += constant_line("int", "alignment", std::to_string(spec.alignment), "of every row of o, bytes");
  source +=
      constant_line("int", "views", std::to_string(spec.views), "that partial states are given in, at most");
  source += constant_line("int", "ahead", std::to_string(states_ahead(spec, many)),
                          "states whose rows a lane asks for at once, if a row is one piece for each lane");
  source += "};\n" +
            kernel_text(program, "MergeParams<Config::views>",
                        sizeof(MergeParams<1>) + static_cast<std::size_t>(spec.views - 1) * sizeof(MergeView),
                        "merge_states");
  return program;
}

}  // namespace

bool is_of_many_states(const MergeSpec& spec, unsigned states) {
  return states >= many_states && can_ask_for_many(spec);
}

int merge_blocks_per_sm(bool many) { return many ? 3 : 8; }

std::vector<Program> merge_programs(const MergeSpec& spec) {
  std::vector<Program> programs = {merge_program(spec, false)};
  if (can_ask_for_many(spec)) programs.push_back(merge_program(spec, true));
  return programs;
}

}  // namespace jit
