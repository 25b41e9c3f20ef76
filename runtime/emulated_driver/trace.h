// Records launches for jit::TraceScope.
#pragma once

#include <emulator/launch.h>

namespace jit::emulated_driver {

/// Passes the launch to the trace scopes of this thread.
void trace_launch(const emulator::Function& function, const emulator::LaunchShape& shape,
                  emulator::LaunchResult result);

}  // namespace jit::emulated_driver
