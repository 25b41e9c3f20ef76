#include "generator/operations/operands.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "generator/tensors/tensor_checks.h"

namespace jit {
namespace {

// Kernels count in 32 bits, up to one block past the end.
constexpr std::int64_t max_size = std::numeric_limits<std::int32_t>::max() - 65535;

}  // namespace

std::string DimNames::to_string() const {
  std::string text = "(";
  for (int i = 0; i < count_; ++i) {
    if (i != 0) text += ", ";
    text += (*this)[i];
  }
  return text + ")";
}

void CallSizes::know(std::string_view dimension, std::int64_t size) {
  known_.at(count_++) = {dimension, size};
}

void CallSizes::check(const Operand& operand, const TensorView& tensor) {
  const std::string_view name = operand.name;
  if (tensor.rank != operand.dims.count()) {
    refuse(name, tensor.rank == 0 ? fmt::format("is missing; give a tensor {}", operand.dims.to_string())
                                  : fmt::format("has {} dimensions; it must be {}", tensor.rank,
                                                operand.dims.to_string()));
  }
  check_sizes_and_strides(name, tensor);
  check_dtype(name, tensor, operand.dtype);
  for (int i = 0; i < tensor.rank; ++i) {
    if (const Known* known = find(operand.dims[i])) {
      check_size(name, tensor, i, operand.dims[i], known->size);
    } else {
      if (tensor.shape[i] > max_size)
        refuse(name, fmt::format("has {} = {}; at most {} fit", operand.dims[i], tensor.shape[i], max_size));
      know(operand.dims[i], tensor.shape[i]);
    }
  }
  const int alignment = std::max(operand.row_alignment, size_of(tensor.dtype));
  check_pointer(name, tensor, alignment);
  if (operand.row_alignment != 0) check_rows(name, tensor, alignment);
}

std::int64_t CallSizes::operator[](std::string_view dimension) const {
  const Known* known = find(dimension);
  return known != nullptr ? known->size : 0;
}

const CallSizes::Known* CallSizes::find(std::string_view dimension) const {
  // Names are literals, so pointers are usually equal.
  for (std::size_t i = 0; i < count_; ++i) {
    if (known_[i].dimension.data() == dimension.data() && known_[i].dimension.size() == dimension.size())
      return &known_[i];
  }
  for (std::size_t i = 0; i < count_; ++i) {
    if (known_[i].dimension == dimension) return &known_[i];
  }
  return nullptr;
}

void check_dense_numbers(std::string_view name, const TensorView& tensor, int first_dimension) {
  if (!is_dense(tensor, first_dimension)) refuse(name, fmt::format("must be dense: {}", tensor.to_string()));
}

std::int64_t stride_along(const TensorView& tensor, int dimension) {
  return tensor.shape[dimension] > 1 ? tensor.strides[dimension] : 0;
}

TensorStrides row_strides(const TensorView& tensor) {
  const int heads = tensor.rank - 2;
  return {.batch = heads == 2 ? stride_along(tensor, 0) : 0,
          .seq = stride_along(tensor, heads - 1),
          .head = stride_along(tensor, heads)};
}

bool is_same_view(const TensorView& a, const TensorView& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] != b.shape[i] || stride_along(a, i) != stride_along(b, i)) return false;
  }
  return true;
}

}  // namespace jit
