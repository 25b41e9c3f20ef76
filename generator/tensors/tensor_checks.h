// Checks of a call's tensors. Each throws Error invalid_argument, whose field is the tensor's name, and
// allocates only to throw. Checks on the launch path are a few inline comparisons; tensor_checks.cpp has the
// messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <jit/tensor.h>

#include "generator/tensors/dims.h"
#include "generator/tensors/overlap.h"

namespace jit {

[[noreturn]] void refuse(std::string_view argument, const std::string& message);

/// Errors of the checks below.
[[noreturn]] void refuse_reach(std::string_view name, const TensorView& tensor);
[[noreturn]] void refuse_rank(std::string_view name, const TensorView& tensor, const Dims& dims);
[[noreturn]] void refuse_dtype(std::string_view name, const TensorView& tensor, DType dtype);
[[noreturn]] void refuse_size(std::string_view name, const TensorView& tensor, int dimension,
                              std::string_view meaning, std::int64_t expected);
[[noreturn]] void refuse_pointer(std::string_view name, const TensorView& tensor, int alignment);
[[noreturn]] void refuse_rows(std::string_view name, const TensorView& tensor, int alignment);
[[noreturn]] void refuse_sparse_last(std::string_view name, const TensorView& tensor);

/// Checks that sizes are not negative, and offsets of elements within any possible memory.
inline void check_sizes_and_strides(std::string_view name, const TensorView& tensor) {
  // Limit of the distance of elements along one dimension: far beyond any memory, and sums cannot overflow.
  constexpr std::int64_t max_reach = std::int64_t{1} << 48;
  for (int i = 0; i < tensor.rank; ++i) {
    std::int64_t reach = 0;
    const bool is_beyond =
        tensor.shape[i] > 1 && (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
                                reach > max_reach || reach < -max_reach);
    if (tensor.shape[i] < 0 || is_beyond) [[unlikely]]
      refuse_reach(name, tensor);
  }
}

/// Checks that the tensor is given and its rank allowed; also checks sizes and strides.
inline void check_rank(std::string_view name, const TensorView& tensor, const Dims& dims) {
  if (tensor.rank < dims.fewest() || tensor.rank > dims.count()) [[unlikely]]
    refuse_rank(name, tensor, dims);
  check_sizes_and_strides(name, tensor);
}

inline void check_dtype(std::string_view name, const TensorView& tensor, DType dtype) {
  if (tensor.dtype != dtype) [[unlikely]]
    refuse_dtype(name, tensor, dtype);
}

/// `meaning` is the dimension's name.
inline void check_size(std::string_view name, const TensorView& tensor, int dimension,
                       std::string_view meaning, std::int64_t expected) {
  if (tensor.shape[dimension] != expected) [[unlikely]]
    refuse_size(name, tensor, dimension, meaning, expected);
}

void check_size_at_least(std::string_view name, const TensorView& tensor, int dimension,
                         std::string_view meaning, std::int64_t least);

/// Checks the alignment of the first element in bytes, a power of two, if there are elements.
inline void check_pointer(std::string_view name, const TensorView& tensor, int alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  const bool is_fine = address != 0 && (address & (static_cast<std::uintptr_t>(alignment) - 1)) == 0;
  if (!is_fine && has_elements(tensor)) [[unlikely]]
    refuse_pointer(name, tensor, alignment);
}

/// Checks that elements of each row (the last dimension) are dense, and that rows have this alignment in
/// bytes, a power of two.
inline void check_rows(std::string_view name, const TensorView& tensor, int alignment) {
  const int bytes = size_of(tensor.dtype), last = tensor.rank - 1;
  bool is_fine = tensor.shape[last] <= 1 || tensor.strides[last] == 1;
  for (int i = 0; i < last; ++i)
    is_fine &= tensor.shape[i] <= 1 || (tensor.strides[i] * bytes & (alignment - 1)) == 0;
  if (!is_fine) [[unlikely]]
    refuse_rows(name, tensor, alignment);
}

/// Checks that the last dimension has stride 1.
inline void check_dense_last(std::string_view name, const TensorView& tensor) {
  const int last = tensor.rank - 1;
  if (tensor.shape[last] > 1 && tensor.strides[last] != 1) [[unlikely]]
    refuse_sparse_last(name, tensor);
}

/// Whether elements from `first_dimension` on are dense; true without elements.
bool is_dense(const TensorView& tensor, int first_dimension = 0);

/// Checks density for user texts, which get a pointer without strides.
void check_dense(std::string_view name, const TensorView& tensor);

/// Checks that no two elements of an output overlap.
void check_no_self_overlap(std::string_view name, const TensorView& tensor);

/// Checks that an output overlaps neither an input nor another output.
void check_no_overlap(std::string_view output_name, const TensorView& output, std::string_view input_name,
                      const TensorView& input);

}  // namespace jit
