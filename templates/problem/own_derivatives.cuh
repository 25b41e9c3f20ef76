// Derivatives with respect to tensor elements that a text states itself: `d_table[i] += x`, where `d_table` is used
// like the pointer `table`. Each statement counts as a read of its element (problem/tensor_reads.cuh), so that such
// texts can be chained with scores that differentiate themselves.
#pragma once

#include "base/prelude.cuh"
#include "problem/dual.cuh"

namespace jit {

/// The statements of one evaluation of a text's derivative; does nothing if reads are not tracked.
template <class... Reads>
class StatedDerivatives {
 public:
  template <int slot>
  JIT_DEVICE void state(float, long long) {}
  JIT_DEVICE Dual added_to(Dual x) const { return x; }
};
template <class Reads>
class StatedDerivatives<Reads> {
 public:
  JIT_DEVICE explicit StatedDerivatives(Reads& reads) : reads_(reads) {}

  template <int slot>
  JIT_DEVICE void state(float x, long long element) {
    if (reads_.template is_wanted<slot>(element)) wanted_ = x;
  }
  // mutate: OwnDerivatives
  JIT_DEVICE Dual added_to(Dual x) const { return {x.value, x.derivative + wanted_}; }

 private:
  Reads& reads_;
  float wanted_ = 0;
};

/// `d_table` in a text's derivative.
template <int slot, class Stated>
class ElementDerivatives {
 public:
  JIT_DEVICE explicit ElementDerivatives(Stated& stated, long long first = 0)
      : stated_(stated), first_(first) {}

  class Element {
   public:
    JIT_DEVICE Element(Stated& stated, long long at) : stated_(stated), at_(at) {}
    JIT_DEVICE void operator+=(float x) const { stated_.template state<slot>(x, at_); }
    // mutate: OwnDerivativesWithoutSign
    JIT_DEVICE void operator-=(float x) const { *this += -x; }

   private:
    Stated& stated_;
    long long at_;
  };

  // mutate: OwnDerivativesOfTheFirstElements
  JIT_DEVICE Element operator[](long long i) const { return {stated_, first_ + i}; }
  JIT_DEVICE Element operator*() const { return (*this)[0]; }
  JIT_DEVICE ElementDerivatives operator+(long long i) const {
    return ElementDerivatives(stated_, first_ + i);
  }
  JIT_DEVICE ElementDerivatives operator-(long long i) const {
    return ElementDerivatives(stated_, first_ - i);
  }

 private:
  Stated& stated_;
  long long first_;
};

template <int slot, class Stated>
JIT_DEVICE ElementDerivatives<slot, Stated> element_derivatives(Stated& stated) {
  return ElementDerivatives<slot, Stated>(stated);
}

}  // namespace jit
