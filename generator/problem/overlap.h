// Whether tensors share memory.
#pragma once

#include <jit/tensor.h>

namespace jit {

bool has_elements(const TensorView& tensor);

/// Whether two elements may share an address: unless, in order of stride, each dimension steps over the one
/// before.
bool overlaps_itself(const TensorView& tensor);

/// Whether two tensors may share a byte. Views with the same strides over one buffer, as slices of a packed
/// tensor are, are told apart; others by the range of their addresses alone.
bool overlap(const TensorView& a, const TensorView& b);

}  // namespace jit
