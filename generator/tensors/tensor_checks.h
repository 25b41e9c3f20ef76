// Checks of the tensors of a call. Every check throws Error invalid_argument whose field is the
// tensor's name, and allocates nothing when there is nothing to say. What a launch asks of each of its tensors is a few
// comparisons here; the sentences are in tensor_checks.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <jit/tensor.h>

#include "generator/tensors/dims.h"
#include "generator/tensors/overlap.h"

namespace jit {

[[noreturn]] void refuse(std::string_view argument, const std::string& message);

/// The refusals of the checks below.
[[noreturn]] void refuse_reach(std::string_view name, const TensorView& tensor);
[[noreturn]] void refuse_rank(std::string_view name, const TensorView& tensor, const Dims& dims);
[[noreturn]] void refuse_dtype(std::string_view name, const TensorView& tensor, DType dtype);
[[noreturn]] void refuse_size(std::string_view name, const TensorView& tensor, int dimension,
                              std::string_view meaning, std::int64_t expected);
[[noreturn]] void refuse_pointer(std::string_view name, const TensorView& tensor, int alignment);
[[noreturn]] void refuse_rows(std::string_view name, const TensorView& tensor, int alignment);
[[noreturn]] void refuse_sparse_last(std::string_view name, const TensorView& tensor);

/// No size is negative, and no element further from the first than memory can be.
inline void check_sizes_and_strides(std::string_view name, const TensorView& tensor) {
  // Elements from first to last along one dimension: far beyond any memory, and no sum of such overflows.
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

/// It is there and has as many dimensions as these; also checks sizes and strides.
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

/// Bytes that the first element is aligned to, a power of two. Anything goes when there are no elements.
inline void check_pointer(std::string_view name, const TensorView& tensor, int alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  const bool is_fine = address != 0 && (address & (static_cast<std::uintptr_t>(alignment) - 1)) == 0;
  if (!is_fine && has_elements(tensor)) [[unlikely]]
    refuse_pointer(name, tensor, alignment);
}

/// The elements of each row, which is the last dimension, lie one behind the other, and rows at multiples of `alignment`
/// bytes, a power of two.
inline void check_rows(std::string_view name, const TensorView& tensor, int alignment) {
  const int bytes = size_of(tensor.dtype), last = tensor.rank - 1;
  bool is_fine = tensor.shape[last] <= 1 || tensor.strides[last] == 1;
  for (int i = 0; i < last; ++i)
    is_fine &= tensor.shape[i] <= 1 || (tensor.strides[i] * bytes & (alignment - 1)) == 0;
  if (!is_fine) [[unlikely]]
    refuse_rows(name, tensor, alignment);
}

/// The stride of the last dimension is 1.
inline void check_dense_last(std::string_view name, const TensorView& tensor) {
  const int last = tensor.rank - 1;
  if (tensor.shape[last] > 1 && tensor.strides[last] != 1) [[unlikely]]
    refuse_sparse_last(name, tensor);
}

/// Whether elements from `first_dimension` on lie one behind the other; where there are none, whatever the strides.
bool is_dense(const TensorView& tensor, int first_dimension = 0);

/// For texts of the user, which get a pointer and nothing that tells of strides.
void check_dense(std::string_view name, const TensorView& tensor);

/// No two elements of an output share memory.
void check_no_self_overlap(std::string_view name, const TensorView& tensor);

/// An output shares no memory with an input, or with another output.
void check_no_overlap(std::string_view output_name, const TensorView& output, std::string_view input_name,
                      const TensorView& input);

}  // namespace jit
