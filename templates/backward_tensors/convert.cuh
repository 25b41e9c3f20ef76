// The conversion after the kernel: sums become gradients, rounded to the type of the tensor.
#pragma once

#include "backward_tensors/collector.cuh"
#include "base/gradient_params.cuh"
#include "base/row_pieces.cuh"

namespace jit::backward_tensors {

/// Converts the sums of the tensor in `slot`, whose elements are T, a thread for each; blocks go on by the
/// grid.
template <class T>
JIT_DEVICE void convert_sums(const GradientParams& gradients, const TensorSums& sums, int slot) {
  const TensorGradient& tensor = gradients.tensors[slot];
  const long long count = tensor.sizes[0] * tensor.sizes[1] * tensor.sizes[2] * tensor.sizes[3];
  const unsigned bound = sums.bounds[slot];
  const float one = 1 / units_per_one(bound, sums.log2_threads);  // mutate: ConvertedInAnotherUnit
  for (long long element = static_cast<long long>(blockIdx.x) * convert_threads + threadIdx.x;
       element < count; element += static_cast<long long>(gridDim.x) * convert_threads) {
    long long rest = element, place = 0;
#pragma unroll
    for (int i = 3; i >= 0; --i) {
      place += rest % tensor.sizes[i] * tensor.strides[i];
      rest /= tensor.sizes[i];
    }
    const float sum = static_cast<float>(sums.sums[slot][element]) * one;
    const float value[1] = {is_finite(bound) ? sum : __int_as_float(0x7fffffff)};
    store_piece<static_cast<int>(sizeof(T))>(static_cast<T*>(tensor.data) + place, value);
  }
}

}  // namespace jit::backward_tensors
