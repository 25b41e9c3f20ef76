// Parallel loops over all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace jit::tool {

/// Calls `work(i)` for every i below `count`, the lowest first, on as many threads as there are cores, and
/// waits. `work` must not throw.
void on_all_cores(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace jit::tool
