// Graphs of captured work. An instantiated one is a copy.
#pragma once

#include <vector>

#include "runtime/emulated_driver/stream.h"

namespace jit::emulated_driver {

struct Graph {
  std::vector<Work> nodes;  ///< in an order that respects all dependencies
};

}  // namespace jit::emulated_driver
