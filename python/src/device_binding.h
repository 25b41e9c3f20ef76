// Devices, real and emulated.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// Binds devices, the class Device, and the trace of launches on emulated devices.
void bind_devices(nanobind::module_& module);

}  // namespace jit::python
