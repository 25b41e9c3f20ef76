// The micro-kernels, family by family; each is defined in the file of its name.
#pragma once

#include <vector>

#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

/// All, in a fixed order; each is recorded in one file. Throws std::logic_error when two kernels have the same name.
std::vector<Family> all_families();

std::vector<MicroKernel> integer_kernels();
std::vector<MicroKernel> floating_kernels();
std::vector<MicroKernel> half_kernels();
std::vector<MicroKernel> compare_kernels();
std::vector<MicroKernel> convert_kernels();
std::vector<MicroKernel> move_kernels();
std::vector<MicroKernel> control_kernels();
std::vector<MicroKernel> warp_kernels();
std::vector<MicroKernel> memory_kernels();
std::vector<MicroKernel> atomic_kernels();
std::vector<MicroKernel> barrier_kernels();
std::vector<MicroKernel> cp_async_kernels();
std::vector<MicroKernel> matrix_move_kernels();
std::vector<MicroKernel> mma_kernels();
std::vector<MicroKernel> mbarrier_kernels();
std::vector<MicroKernel> bulk_kernels();
std::vector<MicroKernel> tensor_kernels();
std::vector<MicroKernel> cluster_kernels();
std::vector<MicroKernel> wgmma_kernels();

}  // namespace jit::conformance
