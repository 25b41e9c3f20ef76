// Programs for Blackwell's new instructions. No GPU has recorded them yet; `jit-attention record` on one
// does.
#pragma once

#include <string>
#include <vector>

#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

/// The programs' PTX version.
inline constexpr const char* blackwell_ptx = "8.8";

/// Programs for `target`, such as "sm_100a": with tensor memory for sm_10x, scaled mma.sync for sm_12x.
/// Throws std::invalid_argument for a target of another kind.
std::vector<Family> blackwell_families(const std::string& target);

// Each is defined in the file of its name.
std::vector<MicroKernel> packed_instructions(const std::string& target);
std::vector<MicroKernel> warp_products(const std::string& target, bool with_scales);
std::vector<MicroKernel> tensor_memory_moves(const std::string& target);
std::vector<MicroKernel> tensor_memory_products(const std::string& target);

}  // namespace jit::conformance
