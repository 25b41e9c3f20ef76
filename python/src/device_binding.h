// Devices, real and emulated.
#pragma once

#include <nanobind/nanobind.h>

namespace jit::python {

/// devices, the class Device, and what launches on emulated devices did.
void bind_devices(nanobind::module_& module);

}  // namespace jit::python
