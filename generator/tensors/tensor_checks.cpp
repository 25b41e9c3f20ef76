#include "generator/tensors/tensor_checks.h"

#include <cstdint>

#include <fmt/format.h>
#include <jit/error.h>

namespace jit {

void refuse(std::string_view argument, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "launch", std::string(argument),
              fmt::format("{}: {}", argument, message));
}

void refuse_reach(std::string_view name, const TensorView& tensor) {
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] < 0) refuse(name, fmt::format("has a negative size: {}", tensor.to_string()));
  }
  refuse(name, fmt::format("reaches further than any memory: {}", tensor.to_string()));
}

void refuse_rank(std::string_view name, const TensorView& tensor, const Dims& dims) {
  refuse(name, tensor.rank == 0
                   ? fmt::format("is missing; give a tensor {}", dims.to_string())
                   : fmt::format("has {} dimensions; it must be {}", tensor.rank, dims.to_string()));
}

void refuse_dtype(std::string_view name, const TensorView& tensor, DType dtype) {
  refuse(name, fmt::format("is {}; it must be {}", to_string(tensor.dtype), to_string(dtype)));
}

void refuse_size(std::string_view name, const TensorView& tensor, int dimension, std::string_view meaning,
                 std::int64_t expected) {
  refuse(name, fmt::format("has {} = {}; it must be {}: {}", meaning, tensor.shape[dimension], expected,
                           tensor.to_string()));
}

void check_size_at_least(std::string_view name, const TensorView& tensor, int dimension,
                         std::string_view meaning, std::int64_t least) {
  if (tensor.shape[dimension] < least) {
    refuse(name, fmt::format("has {} = {}; it must be at least {}: {}", meaning, tensor.shape[dimension],
                             least, tensor.to_string()));
  }
}

void refuse_pointer(std::string_view name, const TensorView& tensor, int alignment) {
  if (tensor.data == nullptr) refuse(name, "is a null pointer");
  refuse(name,
         fmt::format(
             "starts at {}, which is not aligned to {} bytes; set spec.alignment to what the tensors keep",
             tensor.data, alignment));
}

void refuse_rows(std::string_view name, const TensorView& tensor, int alignment) {
  const int last = tensor.rank - 1, sequence = tensor.rank - 3;
  if (tensor.shape[last] > 1 && tensor.strides[last] != 1) {
    const bool is_turned = sequence >= 0 && tensor.strides[sequence] == 1;
    refuse(name, fmt::format("has stride {} along head_dim; it must be 1{}: {}", tensor.strides[last],
                             is_turned ? ", so give it with a row of head_dim for each token and head, not "
                                         "one of all tokens for each column"
                                       : "",
                             tensor.to_string()));
  }
  int dimension = 0;
  const auto keeps_rows = [&](int i) {
    return tensor.shape[i] <= 1 || tensor.strides[i] * size_of(tensor.dtype) % alignment == 0;
  };
  while (dimension < last && keeps_rows(dimension)) ++dimension;
  refuse(name, fmt::format("has stride {} in dimension {}, which does not keep rows aligned to {} bytes; set "
                           "spec.alignment to what the tensors keep",
                           tensor.strides[dimension], dimension, alignment));
}

void refuse_sparse_last(std::string_view name, const TensorView& tensor) {
  refuse(name, fmt::format("must have stride 1 in its last dimension: {}", tensor.to_string()));
}

void check_no_self_overlap(std::string_view name, const TensorView& tensor) {
  if (overlaps_itself(tensor)) {
    refuse(name,
           fmt::format("is an output whose strides make elements share memory: {}", tensor.to_string()));
  }
}

void check_no_overlap(std::string_view output_name, const TensorView& output, std::string_view input_name,
                      const TensorView& input) {
  if (!overlap(output, input)) return;
  refuse(
      output_name,
      fmt::format("shares memory with {}, which other blocks still read while it is written; give it its own",
                  input_name));
}

bool is_dense(const TensorView& tensor, int first_dimension) {
  std::int64_t dense = 1;
  for (int i = tensor.rank - 1; i >= first_dimension; --i) {
    if (tensor.shape[i] > 1 && tensor.strides[i] != dense) return !has_elements(tensor);
    dense *= tensor.shape[i];
  }
  return true;
}

void check_dense(std::string_view name, const TensorView& tensor) {
  if (!is_dense(tensor))
    refuse(name, fmt::format("is read by a text and must be dense: {}", tensor.to_string()));
}

}  // namespace jit
