// Who is asked whether a launch shall be given up: jit::InterruptScope.
#pragma once

#include <functional>

namespace jit::emulated_driver {

/// Asks the interrupt scopes of this thread; empty when there are none. Valid while they last.
std::function<bool()> interrupt_check();

}  // namespace jit::emulated_driver
