// Division that rounds up.
#pragma once

namespace jit {

/// Number of pieces of `size` that cover `count`.
constexpr int ceil_div(int count, int size) { return (count + size - 1) / size; }

}  // namespace jit
