// Converts the tensors of a call to the parameters of a kernel, with all checks that protect the GPU from a
// caller's mistakes.
#pragma once

#include <string_view>
#include <vector>

#include <jit/attention.h>

#include "generator/functors/functor_tensors.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/problem_shape.h"
#include "generator/tensors/dims.h"
#include "templates/base/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns false if there is nothing to compute (no
/// batch, heads or queries). `tensors` is functor_tensor_uses(spec). Allocates only to throw Error
/// invalid_argument, whose field is the argument's name.
bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                 const AttentionArguments& arguments, AttentionParams& params);

/// fill_params with ArgumentRules(spec), computed once: the path of calls.
bool fill_params(const AttentionSpec& spec, const ArgumentRules& rules,
                 const std::vector<FunctorTensorUse>& tensors, const AttentionArguments& arguments,
                 AttentionParams& params);

/// fill_params for kernels that write neither o nor lse, which may therefore overlap inputs.
bool fill_params_of_reader(const AttentionSpec& spec, const ArgumentRules& rules,
                           const std::vector<FunctorTensorUse>& tensors, const AttentionArguments& arguments,
                           AttentionParams& params);

/// The part of fill_params for the tensors that mask and score read, for a problem of these sizes.
void fill_functor_tensors(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& uses,
                          const NamedTensors& tensors, const Extents& sizes, const int* cu_seqlens_k,
                          FunctorTensor (&slots)[max_functor_tensors]);

/// Strides of a tensor with these dimensions, for kernels.
TensorStrides strides_of(const Dims& dims, const TensorView& tensor);

/// Dense q, k, v and o of these sizes at aligned, disjoint addresses without memory: sufficient to check and
/// to choose a config, not to launch.
AttentionArguments placeholder_arguments(const AttentionSpec& spec, const Extents& sizes);

/// Sizes of a problem of this spec. Requires: heads_q is a multiple of spec.gqa_ratio.
Extents extents_of(const AttentionSpec& spec, const ProblemShape& shape);

ProblemShape shape_of(const AttentionParams& params);

/// The name of the call's first argument that gives bounds of sequences; empty if there is none.
std::string_view device_length_argument(const AttentionParams& params);

}  // namespace jit
