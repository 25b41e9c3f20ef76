// How a product is cut into tiles. Compiled by the host, which launches a block for each tile of C, and by NVRTC.
//
//                      n
//                ┌───────────┐
//                │    Bᵀ     │ k      A block owns a tile of C. It walks along k, one tile of A and one of B at a time.
//                └───────────┘
//       k        ┌──┬──┬──┐
//     ┌─────┐    │  │  │  │
//   m │  A  │    ├──┼──┼──┤ m    C
//     └─────┘    └──┴──┴──┘
#pragma once

#include "base/host_device.cuh"

namespace jit::matmul {

/// Tiles of the first step, which has a thread for each element of C.
struct ThreadTiles {
  static constexpr int m = 32;
  static constexpr int n = 32;
  static constexpr int k = 32;
  static constexpr int threads = m * n;
};

/// Tiles of all steps with tensor cores: four warps, two by two, of 64 × 64 elements of C each.
struct WarpTiles {
  static constexpr int m = 128;
  static constexpr int n = 128;
  static constexpr int k = 64;  ///< a row of a tile has 128 bytes, as many as the 32 banks serve at once
  static constexpr int warp_m = 64;
  static constexpr int warp_n = 64;
  static constexpr int warps_n = n / warp_n;
  static constexpr int threads = m / warp_m * warps_n * 32;
  static constexpr int stage_bytes = (m + n) * k * 2;
};

/// Stages of the pipeline: tiles that are multiplied or on their way.
inline constexpr int pipeline_stages = 3;

/// Threads of the kernel that adds the shares of split-K.
inline constexpr int sum_threads = 256;

/// Tiles along k.
JIT_HOST_DEVICE constexpr int k_tiles(int k) { return rounded_up_quotient(k, WarpTiles::k); }

/// The first tile along k of share `split`; the next share's first one is where this share ends.
JIT_HOST_DEVICE constexpr int first_k_tile(int k, int splits, int split) {
  return static_cast<int>(static_cast<long long>(k_tiles(k)) * split / splits);
}

}  // namespace jit::matmul
