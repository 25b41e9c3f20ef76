// Programmatic dependent launch (PTX ISA, "griddepcontrol"; CUDA programming guide, "Programmatic Dependent
// Launch and Synchronization").
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Waits until the grids that this one may start before have ended, and what they wrote is visible. At once
/// where there is none.
JIT_DEVICE void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Lets a grid that may start before this one has ended do so, once all blocks have said it or ended.
JIT_DEVICE void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace jit
