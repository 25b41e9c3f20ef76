// Counting pieces.
#pragma once

namespace jit {

/// Pieces of `size` that hold `count`.
constexpr int ceil_div(int count, int size) { return (count + size - 1) / size; }

}  // namespace jit
