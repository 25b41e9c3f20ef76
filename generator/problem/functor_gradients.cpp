#include "generator/problem/functor_gradients.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/error.h>

#include "generator/functors/functor_node.h"
#include "generator/problem/arguments.h"
#include "generator/tensors/dims.h"
#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

constexpr Dims sink_dims = "heads_q";

std::string field_of(std::string_view name) { return fmt::format("d_tensors.{}", name); }

void check_fp32(std::string_view name, const TensorView& tensor, const Dims& dims, const Extents& sizes) {
  check_rank(name, tensor, dims);
  check_dtype(name, tensor, DType::fp32);
  for (int i = 0; i < tensor.rank; ++i)
    check_size(name, tensor, i, dims[i].extent->dimension, sizes.*dims[i].extent->size);
  check_pointer(name, tensor, size_of(DType::fp32));
}

// Checks that a gradient overlaps neither inputs nor other gradients.
void check_written(const BackwardArguments& arguments, std::string_view name, const TensorView& written) {
  check_no_self_overlap(name, written);
  for (const auto& [other, view] : {std::pair<std::string_view, const TensorView*>{"q", &arguments.q},
                                    {"k", &arguments.k},
                                    {"v", &arguments.v},
                                    {"o", &arguments.o},
                                    {"lse", &arguments.lse},
                                    {"do", &arguments.d_o},
                                    {"dlse", &arguments.d_lse},
                                    {"sinks", &arguments.sinks},
                                    {"dq", &arguments.dq},
                                    {"dk", &arguments.dk},
                                    {"dv", &arguments.dv},
                                    {"mean_score", &arguments.mean_score},
                                    {"d_mean_score", &arguments.d_mean_score},
                                    {"d_sinks", &arguments.d_sinks}}) {
    if (other != name) check_no_overlap(name, written, other, *view);
  }
  for (const NamedTensor& tensor : arguments.tensors)
    check_no_overlap(name, written, tensor.name, tensor.tensor);
}

const TensorView& tensor_of(const BackwardArguments& arguments, std::string_view name) {
  for (const NamedTensor& tensor : arguments.tensors) {
    if (tensor.name == name) return tensor.tensor;
  }
  throw std::logic_error("the tensors of the call were not checked");
}

bool has_gradient_type(const FunctorTensorUse& use) { return facts(use.tensor.dtype).is_floating(); }

// The slot of a tensor that has a gradient; errors call the gradient `field`.
std::size_t slot_of(const std::vector<FunctorTensorUse>& tensors, std::string_view field,
                    std::string_view name) {
  std::string others;
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    const FunctorTensorUse& use = tensors[slot];
    if (use.has_gradient) others += (others.empty() ? "it reads " : ", ") + use.tensor.name;
    if (use.tensor.name != name) continue;
    if (use.is_of_output && !use.has_gradient) {
      refuse(field,
             "there is no gradient: the output reads the tensor through a pointer; read it as_o or as_row");
    }
    if (!use.has_gradient) {
      refuse(field, "there is no gradient: only the mask reads the tensor, which keeps keys or drops them");
    }
    if (!has_gradient_type(use)) {
      refuse(field, fmt::format("there is no gradient: the tensor is {}; it must be fp32, bf16 or fp16",
                                to_string(use.tensor.dtype)));
    }
    if (!use.left_out_by.empty()) {
      refuse(field,
             fmt::format("there is no gradient: text '{}' reads the tensor, and the `derivative` that it "
                         "gives says nothing of its elements; write `{}[...] += ...` there, or leave it out",
                         use.left_out_by, element_derivatives_name(use.tensor)));
    }
    return slot;
  }
  refuse(field, fmt::format("there is no gradient: the score reads no tensor of that name; {}",
                            others.empty() ? "it reads none" : others));
}

// Checks that a tensor does not broadcast to o: only then it has a gradient.
void check_full_size(std::string_view name, const FunctorTensorUse& use, const TensorView& tensor,
                     const TensorView& o) {
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] != o.shape[i])
      refuse(name,
             fmt::format("there is no gradient of a tensor that is broadcast: {} is {}; expand it to o's "
                         "sizes, and sum its gradient",
                         use.tensor.name, tensor.to_string()));
  }
}

TensorGradient tensor_gradient(std::string_view name, const FunctorTensorUse& use, const TensorView& tensor,
                               const TensorView& given, const TensorView& o) {
  if (use.is_of_output) check_full_size(name, use, tensor, o);
  if (given.rank != tensor.rank || !std::equal(given.shape, given.shape + given.rank, tensor.shape)) {
    refuse(name, fmt::format("must have the shape of {}, {}: {}", use.tensor.name, tensor.to_string(),
                             given.to_string()));
  }
  check_dtype(name, given, tensor.dtype);
  check_sizes_and_strides(name, given);
  check_pointer(name, given, size_of(given.dtype));
  TensorGradient gradient{
      .data = given.data, .sizes = {1, 1, 1, 1}, .strides = {0, 0, 0, 0}, .element_strides = {0, 0, 0}};
  const int front = max_rank - given.rank;
  for (int i = 0; i < given.rank; ++i) {
    gradient.sizes[front + i] = given.shape[i];
    gradient.strides[front + i] = given.strides[i];
  }
  if (use.row == nullptr) return gradient;
  // Like FunctorTensor::strides, which begin with the row's first dimension.
  const int dims = use.row->dims.count();
  long long stride = 1;
  for (int i = dims - 1, at = given.rank - 1; at >= 0; --i, --at) {
    if (i + 1 < dims) gradient.element_strides[i] = given.shape[at] > 1 ? stride : 0;
    stride *= given.shape[at];
  }
  return gradient;
}

}  // namespace

void fill_mean_gradients(const AttentionSpec& spec, const BackwardArguments& arguments, const Extents& sizes,
                         OutputParams& outputs) {
  const Dims dims = dims_of_lse(spec);
  for (const auto& [name, tensor] :
       {std::pair{"mean_score", &arguments.mean_score}, {"d_mean_score", &arguments.d_mean_score}}) {
    if (tensor->is_present() != spec.mean_score)
      refuse(name, spec.mean_score
                       ? "is missing; the spec has mean_score = true: give both, forward's and its gradient"
                       : "was given, but the spec has no mean_score = true");
    if (spec.mean_score) check_fp32(name, *tensor, dims, sizes);
  }
  if (!spec.mean_score) return;
  outputs.mean_score = static_cast<float*>(arguments.mean_score.data);
  outputs.mean_score_strides = strides_of(dims, arguments.mean_score);
  outputs.d_mean_score = static_cast<const float*>(arguments.d_mean_score.data);
  outputs.d_mean_score_strides = strides_of(dims, arguments.d_mean_score);
}

void fill_functor_gradients(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                            const BackwardArguments& arguments, const Extents& sizes,
                            GradientParams& gradients) {
  if (arguments.d_lse.is_present()) {
    const Dims dims = dims_of_lse(spec);
    check_fp32("dlse", arguments.d_lse, dims, sizes);
    gradients.d_lse = static_cast<const float*>(arguments.d_lse.data);
    gradients.d_lse_strides = strides_of(dims, arguments.d_lse);
  }
  for (const auto& [name, view] :
       {std::pair{"dq", &arguments.dq}, {"dk", &arguments.dk}, {"dv", &arguments.dv}}) {
    check_no_overlap(name, *view, "dlse", arguments.d_lse);
    check_no_overlap(name, *view, "sinks", arguments.sinks);
    check_no_overlap(name, *view, "mean_score", arguments.mean_score);
    check_no_overlap(name, *view, "d_mean_score", arguments.d_mean_score);
  }
  if (arguments.d_sinks.is_present()) {
    if (!spec.sinks) refuse("d_sinks", "was given, but the spec has no sinks = true");
    check_fp32("d_sinks", arguments.d_sinks, sink_dims, sizes);
    check_dense_last("d_sinks", arguments.d_sinks);
    check_written(arguments, "d_sinks", arguments.d_sinks);
    gradients.d_sinks = static_cast<float*>(arguments.d_sinks.data);
  }
  for (const NamedTensor& wanted : arguments.d_tensors) {
    const std::string name = field_of(wanted.name);
    const std::size_t slot = slot_of(tensors, name, wanted.name);
    gradients.tensors[slot] =
        tensor_gradient(name, tensors[slot], tensor_of(arguments, wanted.name), wanted.tensor, arguments.o);
    check_written(arguments, name, wanted.tensor);
    for (const NamedTensor* other = arguments.d_tensors.begin(); other != &wanted; ++other) {
      if (other->name == wanted.name) refuse(name, "was given twice");
      check_no_overlap(name, wanted.tensor, field_of(other->name), other->tensor);
    }
  }
}

unsigned output_slots(const std::vector<FunctorTensorUse>& tensors) {
  unsigned slots = 0;
  for (std::size_t slot = 0; slot < tensors.size(); ++slot)
    slots |= tensors[slot].is_of_output ? 1u << slot : 0;
  return slots;
}

unsigned slots_with_gradient(const std::vector<FunctorTensorUse>& tensors) {
  unsigned slots = 0;
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    const FunctorTensorUse& use = tensors[slot];
    slots |= use.has_gradient && has_gradient_type(use) && use.left_out_by.empty() ? 1u << slot : 0;
  }
  return slots;
}

unsigned gradient_slots(const GradientParams& gradients) {
  unsigned slots = 0;
  for (int slot = 0; slot < max_functor_tensors; ++slot)
    slots |= gradients.tensors[slot].data != nullptr ? 1u << slot : 0;
  return slots;
}

}  // namespace jit
