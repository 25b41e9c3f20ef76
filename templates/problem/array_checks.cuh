// Arrays on the device, looked at before they are believed: of specs that are checked, and on emulated devices.
#pragma once

#include "base/array_fault.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/atomic.cuh"

namespace jit {

/// Notes that an element is none that it may be, unless something else was noted already.
__device__ __forceinline__ void note_fault(ArrayFault* noted, const ArrayFault& fault) {
  if (atomic_cas_relaxed(reinterpret_cast<int*>(&noted->array), 0, static_cast<int>(fault.array)) != 0)
    return;
  noted->request = fault.request;
  noted->index = fault.index;
  noted->value = fault.value;
  noted->least = fault.least;
  noted->most = fault.most;
}

/// The same where it is.
template <class Config>
__device__ __forceinline__ void expect_in_range(const AttentionParams& params, const ArrayFault& element) {
  if constexpr (Config::checked) {
    if (element.value < element.least || element.value > element.most)
      note_fault(params.sequences.fault, element);
  }
}

}  // namespace jit
