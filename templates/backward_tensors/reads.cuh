// How the reads of one score are collected.
#pragma once

#include "backward_tensors/collector.cuh"
#include "base/prelude.cuh"
#include "problem/dual.cuh"
#include "problem/tensor_reads.cuh"

namespace jit::backward_tensors {

/// Collects the reads of a score whose derivative by its first read is `applied`, and whose gradient is `ds`.
/// `apply()` computes it again.
template <class Config, class Apply>
__device__ __forceinline__ void collect_reads(Collector<Config::gradient_slots>& collector,
                                              const TensorSums& sums,
                                              TensorReads<Config::gradient_slots>& reads, Dual applied,
                                              float ds, const Apply& apply) {
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
