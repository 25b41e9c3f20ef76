#include "xla/arguments.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <jit/spec_table.h>

#include "generator/problem/argument_table.h"
#include "generator/tensors/tensor_checks.h"

namespace jit::xla {
namespace {

constexpr std::string_view tensors_prefix = "tensors.", gradients_prefix = "d_tensors.";

/// A tensor of a call, by name.
template <class Arguments>
struct Row {
  std::string_view name;
  TensorView Arguments::*view;
  bool is_result = false;
};

std::vector<Row<AttentionArguments>> forward_rows() {
  std::vector<Row<AttentionArguments>> rows;
  for (const ArgumentRow& row : argument_table) rows.push_back({row.name, row.view, row.is_output});
  return rows;
}

const std::vector<Row<BackwardArguments>> backward_rows = {
    {"do", &BackwardArguments::d_o},
    {"q", &BackwardArguments::q},
    {"k", &BackwardArguments::k},
    {"v", &BackwardArguments::v},
    {"o", &BackwardArguments::o},
    {"lse", &BackwardArguments::lse},
    {"dlse", &BackwardArguments::d_lse},
    {"cu_seqlens_q", &BackwardArguments::cu_seqlens_q},
    {"cu_seqlens_k", &BackwardArguments::cu_seqlens_k},
    {"seqused_q", &BackwardArguments::seqused_q},
    {"seqused_k", &BackwardArguments::seqused_k},
    {"sinks", &BackwardArguments::sinks},
    {"rng_state", &BackwardArguments::rng_state},
    {"dq", &BackwardArguments::dq, true},
    {"dk", &BackwardArguments::dk, true},
    {"dv", &BackwardArguments::dv, true},
    {"d_sinks", &BackwardArguments::d_sinks, true},
};

// (batch, heads, seqlen, head_dim), or without head_dim, as (batch, seqlen, heads, head_dim).
TensorView tokens_first(TensorView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

TensorView in_layout(const Problem& problem, const NamedBuffer& buffer) {
  static constexpr std::string_view operands[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
  const auto is_in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), buffer.name) != std::end(names);
  };
  if (!problem.heads_first) return buffer.view;
  if (is_in(operands)) return buffer.view.rank == 4 ? tokens_first(buffer.view) : buffer.view;
  // Values with fp8 queries have no scale per row.
  const bool has_rows = buffer.name == "q_descale" || buffer.name == "k_descale" ||
                        (buffer.name == "v_descale" && !has_fp8_queries(problem.spec));
  return has_rows && buffer.view.rank == 3 ? tokens_first(buffer.view) : buffer.view;
}

template <class Arguments>
std::string names_of(const std::vector<Row<Arguments>>& rows, bool results) {
  std::string names;
  for (const Row<Arguments>& row : rows) {
    if (row.is_result == results) names += std::string(row.name) + ", ";
  }
  return names;
}

// Adds a tensor that mask or score reads.
void add(NamedTensors& tensors, const NamedBuffer& buffer, std::string_view prefix) {
  const std::string_view name = buffer.name.substr(prefix.size());
  for (const NamedTensor& other : tensors) {
    if (other.name == name) refuse(buffer.name, "is given twice");
  }
  tensors.add({name, buffer.view});
}

template <class Arguments>
void set(Arguments& arguments, const std::vector<Row<Arguments>>& rows, const Problem& problem,
         const NamedBuffer& buffer, bool is_result, std::string_view prefix) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row<Arguments>& known) {
    return known.name == buffer.name && known.is_result == is_result;
  });
  if (row == rows.end())
    refuse(buffer.name, fmt::format("is no {} of this call; there are {}{}NAME",
                                    is_result ? "result" : "operand", names_of(rows, is_result), prefix));
  TensorView& view = arguments.*row->view;
  if (view.is_present()) refuse(buffer.name, "is given twice");
  view = in_layout(problem, buffer);
}

// Whether an operand is a result's initial contents.
bool is_aliased(const NamedBuffer& operand, const std::vector<NamedBuffer>& results) {
  for (const NamedBuffer& result : results) {
    if (result.name != operand.name) continue;
    if (result.view.data != operand.view.data)
      refuse(operand.name, "is both an operand and a result, and they are not the same memory; alias them");
    return true;
  }
  return false;
}

template <class Arguments>
void set_operands(Arguments& arguments, const std::vector<Row<Arguments>>& rows, const Problem& problem,
                  const CallBuffers& buffers) {
  for (const NamedBuffer& operand : buffers.operands) {
    if (is_aliased(operand, buffers.results)) continue;
    if (operand.name.starts_with(tensors_prefix)) {
      add(arguments.tensors, operand, tensors_prefix);
    } else {
      set(arguments, rows, problem, operand, /*is_result=*/false, tensors_prefix);
    }
  }
}

}  // namespace

AttentionArguments forward_arguments(const Problem& problem, const CallBuffers& buffers) {
  static const std::vector<Row<AttentionArguments>>& rows = *new std::vector(forward_rows());
  AttentionArguments arguments{.q = {},
                               .k = {},
                               .o = {},
                               .dropout_p = problem.dropout_p,
                               .num_splits = problem.num_splits,
                               .zero_padding = problem.zero_padding};
  set_operands(arguments, rows, problem, buffers);
  for (const NamedBuffer& result : buffers.results)
    set(arguments, rows, problem, result, /*is_result=*/true, "");
  return arguments;
}

BackwardArguments backward_arguments(const Problem& problem, const CallBuffers& buffers) {
  BackwardArguments arguments{};
  arguments.dropout_p = problem.dropout_p;
  arguments.deterministic = problem.deterministic;
  set_operands(arguments, backward_rows, problem, buffers);
  for (const NamedBuffer& result : buffers.results) {
    if (result.name.starts_with(gradients_prefix)) {
      add(arguments.d_tensors, result, gradients_prefix);
    } else {
      set(arguments, backward_rows, problem, result, /*is_result=*/true, gradients_prefix);
    }
  }
  return arguments;
}

}  // namespace jit::xla
