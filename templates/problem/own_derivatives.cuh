// Derivatives with respect to elements of tensors that a text states itself: `d_table[i] += x`, where `d_table` looks
// like a pointer as `table` does. Each statement counts as a read of its element (problem/tensor_reads.cuh), so that
// texts that state derivatives and scores that differentiate themselves can follow one another.
#pragma once

#include "base/prelude.cuh"
#include "problem/dual.cuh"

namespace jit {

/// Statements of one computation of a text's derivative: nothing that matters, where no reads are told of.
template <class... Reads>
class StatedDerivatives {
 public:
  template <int slot>
  __device__ __forceinline__ void state(float, long long) {}
  __device__ __forceinline__ Dual added_to(Dual x) const { return x; }
};
template <class Reads>
class StatedDerivatives<Reads> {
 public:
  __device__ __forceinline__ explicit StatedDerivatives(Reads& reads) : reads_(reads) {}

  template <int slot>
  __device__ __forceinline__ void state(float x, long long element) {
    if (reads_.template is_wanted<slot>(element)) wanted_ = x;
  }
  // mutate: OwnDerivatives
  __device__ __forceinline__ Dual added_to(Dual x) const { return {x.value, x.derivative + wanted_}; }

 private:
  Reads& reads_;
  float wanted_ = 0;
};

/// `d_table` in a text's derivative.
template <int slot, class Stated>
class ElementDerivatives {
 public:
  __device__ __forceinline__ explicit ElementDerivatives(Stated& stated, long long first = 0)
      : stated_(stated), first_(first) {}

  class Element {
   public:
    __device__ __forceinline__ Element(Stated& stated, long long at) : stated_(stated), at_(at) {}
    __device__ __forceinline__ void operator+=(float x) const { stated_.template state<slot>(x, at_); }
    // mutate: OwnDerivativesWithoutSign
    __device__ __forceinline__ void operator-=(float x) const { *this += -x; }

   private:
    Stated& stated_;
    long long at_;
  };

  // mutate: OwnDerivativesOfTheFirstElements
  __device__ __forceinline__ Element operator[](long long i) const { return {stated_, first_ + i}; }
  __device__ __forceinline__ Element operator*() const { return (*this)[0]; }
  __device__ __forceinline__ ElementDerivatives operator+(long long i) const {
    return ElementDerivatives(stated_, first_ + i);
  }
  __device__ __forceinline__ ElementDerivatives operator-(long long i) const {
    return ElementDerivatives(stated_, first_ - i);
  }

 private:
  Stated& stated_;
  long long first_;
};

template <int slot, class Stated>
__device__ __forceinline__ ElementDerivatives<slot, Stated> element_derivatives(Stated& stated) {
  return ElementDerivatives<slot, Stated>(stated);
}

}  // namespace jit
