// How scores read tensors: as plain numbers or, in kernels of the tensors' gradients, as numbers that know their
// element. Such a kernel computes a score once for each of its reads, with derivative 1 for that read: the result then
// has its derivative with respect to the element, however often and wherever a text reads it.
#pragma once

#include "base/gradient_params.cuh"
#include "base/prelude.cuh"
#include "problem/dual.cuh"
#include "problem/functor.cuh"
#include "ptx/math.cuh"

namespace jit {

/// The reads of one evaluation of a score. `slots` has a bit for each tensor whose gradient is computed.
template <unsigned slots>
class TensorReads {
 public:
  JIT_DEVICE explicit TensorReads(const TensorGradient* tensors) : tensors_(tensors) {}

  /// Begins an evaluation with the derivative with respect to read number `index`.
  JIT_DEVICE void begin(int index) {
    wanted_ = index;
    count_ = 0;
  }
  /// The number of reads since begin().
  JIT_DEVICE int count() const { return count_; }
  /// Tensor and element of the differentiated read, counted as if the tensor were dense.
  JIT_DEVICE int slot() const { return slot_; }
  JIT_DEVICE long long element() const { return element_; }

  /// Counts a read, and returns whether it is the differentiated one.
  template <int slot>
  JIT_DEVICE bool is_wanted(long long element) {
    if ((slots >> slot & 1) == 0) return false;
    if (count_++ != wanted_) return false;
    slot_ = slot;
    element_ = element;
    return true;
  }
  template <int slot>
  JIT_DEVICE Dual read(float value, long long element) {
    if (is_wanted<slot>(element)) return {value, 1.0f};
    return value;
  }
  template <int slot>
  JIT_DEVICE Dual read(float value, const TensorPlace& at) {
    const long long* const strides = tensors_[slot].element_strides;
    return read<slot>(value, at.leading[0] * strides[0] + at.leading[1] * strides[1] +
                                 at.leading[2] * strides[2] + at.last);
  }

 private:
  const TensorGradient* tensors_;
  int wanted_ = 0;
  int count_ = 0;
  int slot_ = 0;
  long long element_ = 0;
};

/// Overload of tensor_number (problem/functor.cuh) for kernels that track reads.
template <int slot, class Reads>
JIT_DEVICE Dual tensor_number(float value, const TensorPlace& at, Reads& reads) {
  return reads.template read<slot>(value, at);
}

/// A dense tensor as a text sees it, in place of a pointer to its elements.
template <int slot, class T, class Reads>
class TensorReader {
 public:
  JIT_DEVICE TensorReader(const T* data, Reads& reads, long long first = 0)
      : data_(data), reads_(reads), first_(first) {}

  JIT_DEVICE Dual operator[](long long i) const {
    return reads_.template read<slot>(to_float(data_[first_ + i]), first_ + i);
  }
  JIT_DEVICE Dual operator*() const { return (*this)[0]; }
  JIT_DEVICE TensorReader operator+(long long i) const { return {data_, reads_, first_ + i}; }
  JIT_DEVICE TensorReader operator-(long long i) const { return {data_, reads_, first_ - i}; }

 private:
  const T* data_;
  Reads& reads_;
  long long first_;
};

template <int slot, class T, class Reads>
JIT_DEVICE TensorReader<slot, T, Reads> tensor_reader(const T* data, Reads& reads) {
  return {data, reads};
}

}  // namespace jit
