#include "tests/conformance/micro_kernel.h"

#include <set>
#include <stdexcept>

#include "tests/conformance/families/families.h"

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

std::vector<Family> all_families() {
  std::vector<Family> families = {
      {"integer", integer_kernels()},
      {"floating", floating_kernels()},
      {"half", half_kernels()},
      {"compare", compare_kernels()},
      {"convert", convert_kernels()},
      {"move", move_kernels()},
      {"control", control_kernels()},
      {"warp", warp_kernels()},
      {"memory", memory_kernels()},
      {"atomic", atomic_kernels()},
      {"barrier", barrier_kernels()},
      {"cp_async", cp_async_kernels()},
      {"matrix_move", matrix_move_kernels()},
      {"mma", mma_kernels()},
      {"mbarrier", mbarrier_kernels()},
      {"bulk", bulk_kernels()},
      {"tensor", tensor_kernels()},
      {"cluster", cluster_kernels()},
      {"wgmma", wgmma_kernels()},
  };
  std::set<std::string> names;
  for (const Family& family : families) {
    for (const MicroKernel& kernel : family.kernels) {
      if (!names.insert(kernel.name).second) {
        throw std::logic_error("two micro-kernels are named " + kernel.name);
      }
    }
  }
  return families;
}

}  // namespace jit::conformance
