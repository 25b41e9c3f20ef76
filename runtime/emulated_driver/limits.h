// Limits that all devices share (CUDA programming guide, "Technical Specifications per Compute Capability").
#pragma once

#include <cstdint>

namespace jit::emulated_driver {

inline constexpr int max_block_threads = 1024;
inline constexpr int max_block_z = 64;
inline constexpr int max_grid_x = 0x7fffffff;
inline constexpr int max_grid_yz = 65535;
inline constexpr int default_smem_bytes = 48 * 1024;  ///< default limit of a block
inline constexpr int reserved_smem_bytes = 1024;      ///< reserved by the system in each block
inline constexpr int portable_cluster_blocks = 8;

}  // namespace jit::emulated_driver
