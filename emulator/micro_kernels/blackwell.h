// Programs of the instructions that Blackwell brought. No GPU has recorded them yet: whoever owns one does so with
// `jit-attention record`.
#pragma once

#include <string>
#include <vector>

#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

/// The version of PTX that these programs are written in.
inline constexpr const char* blackwell_ptx = "8.8";

/// Programs that run where PTX for `target` does, such as "sm_100a"; tensor memory is of sm_10x, scaled mma.sync of
/// sm_12x. Throws std::invalid_argument for a target of another kind.
std::vector<Family> blackwell_families(const std::string& target);

// One per file of that name.
std::vector<MicroKernel> packed_instructions(const std::string& target);
std::vector<MicroKernel> warp_products(const std::string& target, bool with_scales);
std::vector<MicroKernel> tensor_memory_moves(const std::string& target);
std::vector<MicroKernel> tensor_memory_products(const std::string& target);

}  // namespace jit::conformance
