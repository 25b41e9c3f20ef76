#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

unsigned threads_of(const MicroKernel& kernel) {
  return kernel.grid[0] * kernel.grid[1] * kernel.grid[2] * kernel.block[0] * kernel.block[1] *
         kernel.block[2];
}

std::vector<std::byte> contents(const MicroKernel& kernel, int index) {
  const Buffer& buffer = index < 0 ? kernel.output : kernel.inputs.at(static_cast<std::size_t>(index));
  return generate(buffer, hash(kernel.name) + static_cast<std::uint64_t>(index + 1));
}

std::uint64_t hash_of_contents(const MicroKernel& kernel) {
  std::uint64_t all = hash("contents");
  for (int i = -1; i < static_cast<int>(kernel.inputs.size()); ++i) {
    const std::vector<std::byte> bytes = contents(kernel, i);
    all = hash(bytes.data(), bytes.size(), all);
  }
  return all;
}

}  // namespace jit::conformance
