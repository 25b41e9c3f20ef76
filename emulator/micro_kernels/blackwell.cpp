#include "micro_kernels/blackwell.h"

#include <stdexcept>

#include <fmt/format.h>

namespace jit::conformance {

std::vector<Family> blackwell_families(const std::string& target) {
  const bool has_tensor_memory = target.starts_with("sm_10"), has_scales = target.starts_with("sm_12");
  if ((!has_tensor_memory && !has_scales) || !target.ends_with("a")) {
    throw std::invalid_argument(fmt::format(
        "the instructions are of sm_100a, sm_103a, sm_120a and sm_121a, and the device is {}", target));
  }
  std::vector<Family> families = {{"packed_instructions", packed_instructions(target)},
                                  {"warp_products", warp_products(target, has_scales)}};
  if (has_tensor_memory) {
    families.push_back({"tensor_memory_moves", tensor_memory_moves(target)});
    families.push_back({"tensor_memory_products", tensor_memory_products(target)});
  }
  return families;
}

}  // namespace jit::conformance
