#include "tests/conformance/families/families.h"

#include <set>
#include <stdexcept>

namespace jit::conformance {

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
