// What can be wrong with a tensor of a call. Every check throws Error invalid_argument whose field is the
// tensor's name, and allocates nothing when there is nothing to say.
#pragma once

#include <string>
#include <string_view>

#include <jit/tensor.h>

#include "generator/problem/dims.h"

namespace jit {

[[noreturn]] void refuse(std::string_view argument, const std::string& message);

/// No size is negative, and no element further from the first than memory can be.
void check_sizes_and_strides(std::string_view name, const TensorView& tensor);

/// It is there and has as many dimensions as these; also checks sizes and strides.
void check_rank(std::string_view name, const TensorView& tensor, const Dims& dims);

void check_dtype(std::string_view name, const TensorView& tensor, DType dtype);

/// `meaning` is the dimension's name.
void check_size(std::string_view name, const TensorView& tensor, int dimension, std::string_view meaning,
                std::int64_t expected);

/// Bytes that the first element is aligned to, a power of two. Anything goes when there are no elements.
void check_pointer(std::string_view name, const TensorView& tensor, int alignment);

/// The elements of each row are dense, and rows lie at multiples of `alignment` bytes, a power of two.
void check_rows(std::string_view name, const TensorView& tensor, int alignment);

/// The stride of the last dimension is 1.
void check_dense_last(std::string_view name, const TensorView& tensor);

/// For texts of the user, which get a pointer and nothing that tells of strides.
void check_dense(std::string_view name, const TensorView& tensor);

/// No two elements of an output share memory.
void check_no_self_overlap(std::string_view name, const TensorView& tensor);

/// An output shares no memory with an input, or with another output.
void check_no_overlap(std::string_view output_name, const TensorView& output, std::string_view input_name,
                      const TensorView& input);

}  // namespace jit
