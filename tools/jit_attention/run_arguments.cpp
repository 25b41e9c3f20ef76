#include "run_arguments.h"

#include <utility>

#include "operand_files.h"

namespace jit::tool {
namespace {

// Sets sequence lengths and boundaries, whose names all operations share.
template <class Arguments>
void place_lengths(RunArrays& arrays, Arguments& arguments, const Place& place) {
  for (const auto& [array, view_of] : {std::pair{&arrays.cu_seqlens_q, &arguments.cu_seqlens_q},
                                       {&arrays.cu_seqlens_k, &arguments.cu_seqlens_k},
                                       {&arrays.seqused_q, &arguments.seqused_q},
                                       {&arrays.seqused_k, &arguments.seqused_k}}) {
    if (!array->shape.empty()) *view_of = view(*array, place(*array));
  }
}

}  // namespace

AttentionArguments forward_arguments(RunProblem& problem, bool with_lse, const Place& place) {
  RunArrays& arrays = problem.arrays;
  AttentionArguments arguments{.q = view(arrays.q, place(arrays.q)),
                               .k = view(arrays.k, place(arrays.k)),
                               .o = view(arrays.o, place(arrays.o)),
                               .dropout_p = problem.dropout_p,
                               .num_splits = problem.num_splits};
  if (!problem.spec.values_in_keys) arguments.v = view(arrays.v, place(arrays.v));
  if (with_lse) arguments.lse = view(arrays.lse, place(arrays.lse));
  for (auto& [name, array] : arrays.tensors) arguments.tensors.add({name, view(array, place(array))});
  place_lengths(arrays, arguments, place);
  for (const auto& [array, view_of] : {std::pair{&arrays.cache_leftpad, &arguments.cache_leftpad},
                                       {&arrays.page_table, &arguments.page_table},
                                       {&arrays.sinks, &arguments.sinks},
                                       {&arrays.rng_state, &arguments.rng_state},
                                       {&arrays.scales.q_descale, &arguments.q_descale},
                                       {&arrays.scales.k_descale, &arguments.k_descale},
                                       {&arrays.scales.v_descale, &arguments.v_descale},
                                       {&arrays.scales.v_mean, &arguments.v_mean},
                                       {&arrays.scales.lse_shift, &arguments.lse_shift}}) {
    if (!array->shape.empty()) *view_of = view(*array, place(*array));
  }
  return arguments;
}

QuantizeArguments quantize_arguments(RunProblem& problem, const Place& place) {
  RunArrays& arrays = problem.arrays;
  QuantizeArguments arguments =
      quantize_arguments(*problem.quantizer, arrays.q, arrays.k, arrays.v, arrays.scales, place);
  place_lengths(arrays, arguments, place);
  return arguments;
}

BackwardArguments backward_arguments(RunProblem& problem, const Place& place) {
  RunArrays& arrays = problem.arrays;
  Gradients& gradients = arrays.gradients;
  BackwardArguments arguments{.d_o = view(gradients.d_o, place(gradients.d_o)),
                              .q = view(arrays.q, place(arrays.q)),
                              .k = view(arrays.k, place(arrays.k)),
                              .v = view(arrays.v, place(arrays.v)),
                              .o = view(arrays.o, place(arrays.o)),
                              .lse = view(arrays.lse, place(arrays.lse)),
                              .dq = view(gradients.dq, place(gradients.dq)),
                              .dk = view(gradients.dk, place(gradients.dk)),
                              .dv = view(gradients.dv, place(gradients.dv)),
                              .dropout_p = problem.dropout_p,
                              .deterministic = problem.deterministic};
  for (const auto& [array, view_of] : {std::pair{&arrays.rng_state, &arguments.rng_state},
                                       {&arrays.sinks, &arguments.sinks},
                                       {&gradients.d_lse, &arguments.d_lse},
                                       {&gradients.d_sinks, &arguments.d_sinks}}) {
    if (!array->shape.empty()) *view_of = view(*array, place(*array));
  }
  for (auto& [name, array] : arrays.tensors) arguments.tensors.add({name, view(array, place(array))});
  for (auto& [name, array] : gradients.d_tensors) arguments.d_tensors.add({name, view(array, place(array))});
  place_lengths(arrays, arguments, place);
  return arguments;
}

BlockMaskArguments block_mask_arguments(RunProblem& problem, const Place& place) {
  RunArrays& arrays = problem.arrays;
  BlockMaskArguments arguments = block_mask_arguments(*problem.block_map, arrays.tensors, place);
  place_lengths(arrays, arguments, place);
  if (!arrays.cache_leftpad.shape.empty())
    arguments.cache_leftpad = view(arrays.cache_leftpad, place(arrays.cache_leftpad));
  if (is_varlen(arrays.q)) arguments.total_q = arrays.q.shape[0];
  if (is_varlen(arrays.k)) arguments.total_k = arrays.k.shape[0];
  return arguments;
}

void check(RunProblem& problem) {
  const Place on_host = [](Array& array) -> void* { return array.bytes.data(); };
  if (problem.quantizer) check_arguments(problem.quantizer->spec, quantize_arguments(problem, on_host));
  if (problem.block_map) check_arguments(problem.block_map->spec, block_mask_arguments(problem, on_host));
  check_arguments(problem.spec, forward_arguments(problem, true, on_host));
  if (problem.backward) check_backward_arguments(problem.spec, backward_arguments(problem, on_host));
}

}  // namespace jit::tool
