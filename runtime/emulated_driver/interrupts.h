// Queries jit::InterruptScope: whether to abort a launch.
#pragma once

#include <functional>

namespace jit::emulated_driver {

/// A function that asks this thread's interrupt scopes, valid as long as they live; empty if there are none.
std::function<bool()> interrupt_check();

}  // namespace jit::emulated_driver
