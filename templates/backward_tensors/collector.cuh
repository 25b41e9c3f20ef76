// Sums a thread's contributions to one element of the gradient of a tensor until the thread goes to another element.
#pragma once

#include "backward_tensors/sums.cuh"
#include "base/prelude.cuh"
#include "problem/dual.cuh"
#include "problem/tensor_reads.cuh"
#include "ptx/atomic.cuh"

namespace jit::backward_tensors {

/// Units for each 1, of sums that `bound` and the number of threads are known of.
JIT_DEVICE float units_per_one(unsigned bound, int log2_threads) {
  constexpr int bias = 127, mantissa_bits = 23;
  const int exponent = static_cast<int>(bound >> mantissa_bits) - bias + 1;  // the bound is below 2^exponent
  const int shift = minimum(61 - exponent - log2_threads, bias - 1);         // mutate: UnitTooSmall
  return __int_as_float((shift + bias) << mantissa_bits);
}

/// Whether a bound is finite, as are then all that it bounds.
JIT_DEVICE bool is_finite(unsigned bound) { return bound < 0x7f800000u; }

/// Collects the addends of one tensor.
class ElementCollector {
 public:
  JIT_DEVICE ElementCollector(const TensorSums& sums, int slot)
      : sums_(sums.sums[slot]), bound_(sums.bounds + slot) {
    if (sums.measures == 0) units_ = units_per_one(*bound_, sums.log2_threads);
  }

  JIT_DEVICE void measure(float x) {
    magnitude_ += ::fabsf(x);
    ++count_;
  }
  JIT_DEVICE void add(float x, long long element) {
    if (element != element_) {
      if (sum_ != 0) atomic_add_relaxed(sums_ + element_, sum_);
      element_ = element;  // mutate: LeftWithTheNextElement
      sum_ = 0;
    }
    sum_ += __float2ll_rn(x * units_);
  }

  /// Leaves what was gathered. By all threads of a warp.
  JIT_DEVICE void finish_measuring() {
    // A sum of n floats is off by at most n · 2^-24 of itself.
    const float sure = magnitude_ * (1 + static_cast<float>(count_) * 0x1p-23f);
    unsigned largest = static_cast<unsigned>(__float_as_int(sure));
#pragma unroll
    for (int other = 1; other < warp_size; other *= 2)
      largest = maximum(largest, __shfl_xor_sync(full_warp, largest, other));
    if (lane_id() == 0 && largest != 0) atomic_max_relaxed(bound_, largest);
  }
  JIT_DEVICE void finish_adding() {
    if (__all_sync(full_warp, element_ == __shfl_sync(full_warp, element_, 0))) {
#pragma unroll
      for (int other = 1; other < warp_size; other *= 2) sum_ += __shfl_xor_sync(full_warp, sum_, other);
      if (lane_id() != 0) return;  // mutate: AddedByAllLanes
    }
    if (sum_ != 0) atomic_add_relaxed(sums_ + element_, sum_);
  }

 private:
  long long* sums_;
  unsigned* bound_;
  float units_ = 0;
  float magnitude_ = 0;  // of the run that measures
  int count_ = 0;
  long long element_ = 0;  // to which `sum_` belongs
  long long sum_ = 0;
};

/// Collects the addends of all tensors with a bit in `slots`.
template <unsigned slots, int slot = 0>
class Collector {
 public:
  JIT_DEVICE explicit Collector(const TensorSums& sums) : own_(sums, slot), rest_(sums) {}

  /// Calls f for the collector of one tensor, or for each.
  template <class F>
  JIT_DEVICE void with(int wanted, F f) {
    if constexpr ((slots & 1) != 0) {
      if (wanted == slot) f(own_);
    }
    rest_.with(wanted, f);
  }
  template <class F>
  JIT_DEVICE void for_each(F f) {
    if constexpr ((slots & 1) != 0) f(own_);
    rest_.for_each(f);
  }

 private:
  ElementCollector own_;
  Collector<(slots >> 1), slot + 1> rest_;
};
template <int slot>
class Collector<0, slot> {
 public:
  JIT_DEVICE explicit Collector(const TensorSums&) {}
  template <class F>
  JIT_DEVICE void with(int, F) {}
  template <class F>
  JIT_DEVICE void for_each(F) {}
};

/// Collects the reads of a score whose derivative by its first read is `applied`, and whose gradient is `ds`.
/// `apply()` computes it again.
template <class Config, class Apply>
JIT_DEVICE void collect_reads(Collector<Config::gradient_slots>& collector, const TensorSums& sums,
                              TensorReads<Config::gradient_slots>& reads, Dual applied, float ds,
                              const Apply& apply) {
  const int count = reads.count();
  for (int read = 0; read < count;) {
    collector.with(reads.slot(), [&](ElementCollector& own) {
      const float x = ds * applied.derivative;
      sums.measures != 0 ? own.measure(x) : own.add(x, reads.element());
    });
    if (++read == count) break;  // mutate: OnlyOneRead
    reads.begin(read);           // mutate: TheSameReadAgain
    applied = apply();
  }
}

}  // namespace jit::backward_tensors
