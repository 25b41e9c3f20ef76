// Arrays on the device, looked at before they are believed: of specs that are checked, and on emulated devices.
#pragma once

#include "base/array_fault.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/atomic.cuh"

namespace jit {

/// Records that an element is none that it may be, unless something else was recorded already.
__device__ __forceinline__ void record_fault(ArrayFault* recorded, const ArrayFault& fault) {
  if (atomic_cas_relaxed(reinterpret_cast<int*>(&recorded->array), 0, static_cast<int>(fault.array)) != 0)
    return;
  recorded->request = fault.request;
  recorded->index = fault.index;
  recorded->value = fault.value;
  recorded->least = fault.least;
  recorded->most = fault.most;
}

/// Records an element that is out of range.
template <class Config>
__device__ __forceinline__ void expect_in_range(const AttentionParams& params, const ArrayFault& element) {
  if constexpr (Config::checked) {
    if (element.value < element.least || element.value > element.most)
      record_fault(params.sequences.fault, element);
  }
}

}  // namespace jit
