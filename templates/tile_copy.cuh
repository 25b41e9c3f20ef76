// Copies between (seqlen × head_dim) slices in global memory and tiles in shared memory.
#pragma once

#include "prelude.cuh"
#include "ptx/cp_async.cuh"
#include "swizzle.cuh"

namespace jit {

__device__ __forceinline__ unsigned smem_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Copies one chunk of eight elements, or zeros when not `valid`. `alignment` is what the global address
/// keeps. Below 4 bytes there is no cp.async: the chunk goes through registers, and is visible after the next
/// barrier all the same.
template <int alignment>
__device__ __forceinline__ void copy_chunk(unsigned smem, const unsigned short* gmem, bool valid) {
  if constexpr (alignment >= 4) {
#pragma unroll
    for (int piece = 0; piece < chunk_bytes / alignment; ++piece) {
      cp_async_zfill<alignment>(smem + piece * alignment, gmem + piece * (alignment / 2), valid);
    }
  } else {
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned low = valid ? gmem[2 * i] : 0, high = valid ? gmem[2 * i + 1] : 0;
      word[i] = low | high << 16;
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
  }
}

/// Starts the copy of rows [row, row + Tile::rows) of a slice into a tile. Rows from `row_end` on and columns
/// from `columns` on become zeros, so that tails need no padded copy and never feed NaN to the tensor cores.
template <class Tile, int columns, int threads, int alignment>
__device__ __forceinline__ void load_tile(unsigned tile, const unsigned short* slice, long long row_stride,
                                          int row, int row_end) {
  constexpr int chunks = Tile::rows * Tile::chunks;
  constexpr int valid_chunks = columns / chunk_elements;
  constexpr bool all_columns = valid_chunks == Tile::chunks;
  const unsigned short* base = slice + row * row_stride;
  const int thread = threadIdx.x;
  const auto for_each_chunk = [&](auto copy) {
#pragma unroll
    for (int i = 0; i < (chunks + threads - 1) / threads; ++i) {
      const int index = i * threads + thread;
      if (chunks % threads != 0 && index >= chunks) break;
      copy(index / Tile::chunks, index % Tile::chunks);
    }
  };
  if (all_columns && alignment == chunk_bytes && row + Tile::rows <= row_end) {
    for_each_chunk([&](int tile_row, int chunk) {
      cp_async<chunk_bytes>(tile + Tile::offset(tile_row, chunk),
                            base + tile_row * row_stride + chunk * chunk_elements);
    });
  } else {
    for_each_chunk([&](int tile_row, int chunk) {
      const bool valid = row + tile_row < row_end && (all_columns || chunk < valid_chunks);
      copy_chunk<alignment>(tile + Tile::offset(tile_row, chunk),
                            base + tile_row * row_stride + chunk * chunk_elements, valid);
    });
  }
}

/// Writes rows [row, row + rows) of a tile, of which the warp holds `rows` from `tile_row` on, to a slice.
template <class Tile, int columns, int rows, int alignment>
__device__ __forceinline__ void store_tile_rows(unsigned short* slice, long long row_stride, int row,
                                                int row_end, unsigned tile, int tile_row) {
  constexpr int chunks_per_row = columns / chunk_elements;
  constexpr int chunks = rows * chunks_per_row;
#pragma unroll
  for (int i = 0; i < (chunks + warp_size - 1) / warp_size; ++i) {
    const int index = i * warp_size + lane_id();
    if (chunks % warp_size != 0 && index >= chunks) break;
    const int r = index / chunks_per_row, chunk = index % chunks_per_row;
    if (row + r >= row_end) continue;
    unsigned word[4];
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(tile + Tile::offset(tile_row + r, chunk))
                 : "memory");
    unsigned short* target = slice + (row + r) * row_stride + chunk * chunk_elements;
    if constexpr (alignment == 16) {
      *reinterpret_cast<uint4*>(target) = make_uint4(word[0], word[1], word[2], word[3]);
    } else if constexpr (alignment == 8) {
      reinterpret_cast<uint2*>(target)[0] = make_uint2(word[0], word[1]);
      reinterpret_cast<uint2*>(target)[1] = make_uint2(word[2], word[3]);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (alignment == 4) {
          reinterpret_cast<unsigned*>(target)[j] = word[j];
        } else {
          target[2 * j] = static_cast<unsigned short>(word[j]);
          target[2 * j + 1] = static_cast<unsigned short>(word[j] >> 16);
        }
      }
    }
  }
}

}  // namespace jit
