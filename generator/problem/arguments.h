// From the tensors of a call to the parameters of a kernel: every check that stands between a caller's
// mistake and the GPU.
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

/// Checks `arguments` against `spec` and fills `params`. Returns false when there is nothing to compute (no
/// batch, no heads or no queries). `tensors` is functor_tensor_uses(spec). Allocates nothing unless it throws
/// Error invalid_argument, whose field is the argument's name.
bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                 const AttentionArguments& arguments, AttentionParams& params);

/// Checks and fills with ArgumentRules(spec) at hand: the way of a call, which works out nothing anew.
bool fill_params(const AttentionSpec& spec, const ArgumentRules& rules,
                 const std::vector<FunctorTensorUse>& tensors, const AttentionArguments& arguments,
                 AttentionParams& params);

/// Checks and fills for kernels that write neither o nor lse, which then may share memory as inputs do.
bool fill_params_of_reader(const AttentionSpec& spec, const ArgumentRules& rules,
                           const std::vector<FunctorTensorUse>& tensors, const AttentionArguments& arguments,
                           AttentionParams& params);

/// The part of it that concerns what mask and score read, in a problem of these sizes.
void fill_functor_tensors(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& uses,
                          const NamedTensors& tensors, const Extents& sizes, const int* cu_seqlens_k,
                          FunctorTensor (&slots)[max_functor_tensors]);

/// The strides of a tensor of these dimensions, for kernels.
TensorStrides strides_of(const Dims& dims, const TensorView& tensor);

/// Dense q, k, v and o of these sizes at aligned, disjoint addresses without memory behind them: enough to
/// check and to choose a config, not to launch.
AttentionArguments placeholder_arguments(const AttentionSpec& spec, const Extents& sizes);

/// The sizes of a problem of this spec. Requires: heads_q is a multiple of spec.gqa_ratio.
Extents extents_of(const AttentionSpec& spec, const ProblemShape& shape);

ProblemShape shape_of(const AttentionParams& params);

/// The first argument of a call that says where sequences begin and end, by name; empty: there is none.
std::string_view device_length_argument(const AttentionParams& params);

}  // namespace jit
