#include "generator/problem/gradient_arguments.h"

#include <array>
#include <string_view>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/problem/argument_table.h"
#include "generator/problem/arguments.h"
#include "generator/problem/functor_gradients.h"
#include "generator/problem/tma_operands.h"
#include "generator/tensors/dims.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

/// A tensor of BackwardArguments that forward does not have.
struct GradientRow {
  std::string_view name;
  TensorView BackwardArguments::*view;
  Dims (*dims)(const AttentionSpec&);
  void (*set)(GradientParams&, void*, const TensorStrides&);
  bool is_output = true;
};

template <auto data, auto strides>
void set(GradientParams& params, void* address, const TensorStrides& given) {
  params.*data = address;
  params.*strides = given;
}

constexpr std::array gradient_table = {
    GradientRow{.name = "do",
                .view = &BackwardArguments::d_o,
                .dims = [](const AttentionSpec& spec) { return dims_of_queries(spec, true); },
                .set = set<&GradientParams::d_o, &GradientParams::do_strides>,
                .is_output = false},
    GradientRow{.name = "dq",
                .view = &BackwardArguments::dq,
                .dims = [](const AttentionSpec& spec) { return dims_of_queries(spec, false); },
                .set = set<&GradientParams::dq, &GradientParams::dq_strides>},
    GradientRow{.name = "dk",
                .view = &BackwardArguments::dk,
                .dims = [](const AttentionSpec& spec) { return dims_of_keys(spec, false); },
                .set = set<&GradientParams::dk, &GradientParams::dk_strides>},
    GradientRow{.name = "dv",
                .view = &BackwardArguments::dv,
                .dims = [](const AttentionSpec& spec) { return dims_of_keys(spec, true); },
                .set = set<&GradientParams::dv, &GradientParams::dv_strides>},
};

// Numbers of tiles must fit an int.
void check_sequences(const BackwardArguments& arguments) {
  constexpr std::int64_t most = 1 << 30;
  for (const auto& [name, array] :
       {std::pair{"cu_seqlens_q", &arguments.cu_seqlens_q}, {"cu_seqlens_k", &arguments.cu_seqlens_k}}) {
    if (array->is_present() && array->shape[0] > most)
      refuse(name, fmt::format("has {} elements; at most {} fit", array->shape[0], most));
  }
}

void check_gradient(const AttentionSpec& spec, const GradientRow& row, const TensorView& tensor,
                    const Extents& sizes) {
  const Dims dims = row.dims(spec);
  check_rank(row.name, tensor, dims);
  check_dtype(row.name, tensor, row.is_output ? output_dtype(spec) : input_dtype(spec));
  for (int i = 0; i < tensor.rank; ++i)
    check_size(row.name, tensor, i, dims[i].extent->dimension, sizes.*dims[i].extent->size);
  check_pointer(row.name, tensor, spec.alignment);
  check_rows(row.name, tensor, spec.alignment);
}

// Checks that a gradient overlaps neither inputs nor previous gradients.
void check_output(const BackwardArguments& arguments, const GradientRow& output) {
  const TensorView& written = arguments.*output.view;
  check_no_self_overlap(output.name, written);
  for (const auto& [name, view] : {std::pair{"q", &arguments.q},
                                   {"k", &arguments.k},
                                   {"v", &arguments.v},
                                   {"o", &arguments.o},
                                   {"lse", &arguments.lse},
                                   {"cu_seqlens_q", &arguments.cu_seqlens_q},
                                   {"cu_seqlens_k", &arguments.cu_seqlens_k},
                                   {"seqused_q", &arguments.seqused_q},
                                   {"seqused_k", &arguments.seqused_k},
                                   {"rng_state", &arguments.rng_state}})
    if (view->is_present()) check_no_overlap(output.name, written, name, *view);
  for (const NamedTensor& tensor : arguments.tensors)
    check_no_overlap(output.name, written, tensor.name, tensor.tensor);
  for (const GradientRow& other : gradient_table) {
    if (&other == &output) break;
    check_no_overlap(output.name, written, other.name, arguments.*other.view);
  }
}

}  // namespace

void check_has_backward(const AttentionSpec& spec) {
  if (facts(spec.dtype).is_fp8()) {
    const Refusal refusal{"spec.dtype", std::string(to_string(spec.dtype)),
                          "has no backward: gradients are those of bf16 and fp16", "bf16"};
    throw Error(ErrorCode::invalid_spec, "validate", refusal.field, refusal.to_string());
  }
  if (has_narrow_keys(spec)) {
    const Refusal refusal{"spec.kv_dtype", std::string(to_string(spec.key_dtype())),
                          "has no backward: gradients are those of keys and values of the type of q",
                          std::string(to_string(spec.dtype))};
    throw Error(ErrorCode::invalid_spec, "validate", refusal.field, refusal.to_string());
  }
  if (has_quantized_output(spec)) {
    const Refusal refusal{"spec.out_dtype", std::string(to_string(output_dtype(spec))),
                          "has no backward: gradients want o of the type of q",
                          std::string(to_string(spec.dtype))};
    throw Error(ErrorCode::invalid_spec, "validate", refusal.field, refusal.to_string());
  }
  if (spec.list_block != 0) {
    const Refusal refusal{
        "spec.list_block", std::to_string(spec.list_block),
        "has no backward here: gradients from lists of keys are those of jit::list_gradients, in "
        "Python of jit_attention.sparse",
        "0"};
    throw Error(ErrorCode::invalid_spec, "validate", refusal.field, refusal.to_string());
  }
  if (spec.values_in_keys) {
    const Refusal refusal{"spec.values_in_keys", "true",
                          "has no backward: give keys and values apart, of head dims up to 256", "false"};
    throw Error(ErrorCode::invalid_spec, "validate", refusal.field, refusal.to_string());
  }
  if (!has_pages(spec)) return;
  const Refusal refusal{"spec.sequences_kv", std::string(to_string(spec.sequences_kv)),
                        "has no backward so far: keys must be dense or varlen", "varlen"};
  throw Error(ErrorCode::invalid_spec, "validate", refusal.field, refusal.to_string());
}

void check_backward_arguments(const AttentionSpec& spec, const BackwardArguments& arguments) {
  AttentionParams params;
  GradientParams gradients;
  fill_params(spec, functor_tensor_uses(spec), arguments, params, gradients);
}

bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                 const BackwardArguments& arguments, AttentionParams& params, GradientParams& gradients) {
  check_has_backward(spec);
  fill_gradient_params(spec, tensors, arguments, params, gradients);
  // Without queries, gradients of shared tensors must be cleared.
  const bool has_shared = gradients.d_sinks != nullptr || gradient_slots(gradients) != 0;
  return has_shared ||
         (params.batch > 0 && params.heads_q > 0 && (params.seqlen_q > 0 || params.seqlen_kv > 0));
}

void fill_gradient_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                          const BackwardArguments& arguments, AttentionParams& params,
                          GradientParams& gradients) {
  if (!arguments.lse.is_present()) refuse("lse", "is missing; give the LSE that forward wrote");
  fill_params_of_reader(spec, ArgumentRules(spec), tensors,
                        {.q = arguments.q,
                         .k = arguments.k,
                         .v = arguments.v,
                         .o = arguments.o,
                         .lse = arguments.lse,
                         .tensors = arguments.tensors,
                         .cu_seqlens_q = arguments.cu_seqlens_q,
                         .cu_seqlens_k = arguments.cu_seqlens_k,
                         .seqused_q = arguments.seqused_q,
                         .seqused_k = arguments.seqused_k,
                         .sinks = arguments.sinks,
                         .mean_score = arguments.mean_score,
                         .dropout_p = arguments.dropout_p,
                         .rng_state = arguments.rng_state},
                        params);
  check_sequences(arguments);
  const Extents sizes{.batch = params.batch,
                      .seqlen_q = params.seqlen_q,
                      .seqlen_kv = params.seqlen_kv,
                      .heads_q = params.heads_q,
                      .heads_kv = params.heads_kv,
                      .head_dim = spec.head_dim,
                      .head_dim_v = spec.value_head_dim(),
                      .total_q = params.sequences.total_q,
                      .total_k = params.sequences.total_k};
  gradients = {};
  for (const GradientRow& row : gradient_table) {
    const TensorView& tensor = arguments.*row.view;
    if (spec.values_in_keys && row.view == &BackwardArguments::dv) {
      if (tensor.is_present())
        refuse("dv", "was given, but values are columns of k, and dk has their gradients");
      continue;
    }
    check_gradient(spec, row, tensor, sizes);
    if (row.is_output) check_output(arguments, row);
    row.set(gradients, tensor.data, strides_of(row.dims(spec), tensor));
  }
  fill_mean_gradients(spec, arguments, sizes, params.outputs);
  fill_functor_gradients(spec, tensors, arguments, sizes, gradients);
}

ProblemShape backward_shape(const AttentionParams& params, const GradientParams& gradients) {
  ProblemShape shape = shape_of(params);
  shape.pass = Pass::backward;
  shape.tma = can_map(params, gradients);
  return shape;
}

}  // namespace jit
