// Where launches are noted for jit::TraceScope.
#pragma once

#include "emulator/machine/launch.h"
#include "runtime/emulated_driver/library.h"

namespace jit::emulated_driver {

/// Gives the launch to the trace scopes of this thread.
void trace_launch(const DeviceCode& code, const emulator::LaunchShape& shape, emulator::LaunchResult result);

}  // namespace jit::emulated_driver
