/// @file
/// Tensors in CPU memory that masks and scores read.
///
/// @code
/// const float elements[] = {0, 1, 2, 3, 4, 5};
/// const std::int64_t shape[] = {2, 3};
/// const jit::HostTensor tensor{.dtype = jit::DType::fp32, .shape = shape,
///                              .data = reinterpret_cast<const std::byte*>(elements)};
/// assert(tensor.at({1, 2}) == 5);
/// @endcode
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include <jit/tensor.h>

namespace jit {

/// A view of a dense tensor in CPU memory, which the caller owns.
struct HostTensor {
  DType dtype = DType::fp32;                 ///< element type
  std::span<const std::int64_t> shape = {};  ///< sizes of the dimensions; not owned
  const std::byte* data = nullptr;           ///< the first element; not owned

  /// The element as a number. Requires one index per dimension, in range. If there are more indices than dimensions,
  /// the leading ones are ignored; dimensions of size 1 broadcast.
  double at(std::initializer_list<std::int64_t> index) const;
};

}  // namespace jit
