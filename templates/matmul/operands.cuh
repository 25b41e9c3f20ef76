// From global to shared memory: the tiles of A and B of one step along k.
//
// Rows have 128 bytes, eight chunks of 16. A thread copies the same chunk of every 16th row. Elements behind the last
// row and behind the last column become zeros, which add nothing to C: no size has to be a multiple of a tile.
#pragma once

#include "base/prelude.cuh"
#include "matmul/params.cuh"
#include "matmul/tiles.cuh"
#include "ptx/cp_async.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::matmul {

/// Bytes of a chunk that its row still has.
__device__ __forceinline__ int bytes_of_chunk(int elements_left) {
  return minimum(maximum(elements_left * element_bytes, 0), chunk_bytes);
}

/// Reads a chunk of which `bytes` bytes exist.
template <class Element>
__device__ __forceinline__ uint4 read_chunk(const Element* chunk, int bytes) {
  if (bytes == chunk_bytes) return *reinterpret_cast<const uint4*>(chunk);
  unsigned words[4] = {};
  for (int i = 0; i < bytes / element_bytes; ++i) words[i / 2] |= unsigned{chunk[i].bits} << i % 2 * 16;
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ void store_chunk_shared(unsigned address, uint4 chunk) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(chunk.x), "r"(chunk.y),
               "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

/// The tiles of one matrix that the block walks along.
template <class Tile, class Element>
class Operand {
  static constexpr int rows_per_pass = WarpTiles::threads / Tile::chunks;
  static constexpr int passes = Tile::rows / rows_per_pass;
  static_assert(rows_per_pass % 8 == 0, "a swizzle repeats every eight rows");

 public:
  /// `rows` rows of k elements, of which the block reads those from `first_row` on.
  __device__ __forceinline__ Operand(const void* matrix, long long stride, int first_row, int rows, int k) {
    const int row = threadIdx.x / Tile::chunks;
    source_ = static_cast<const Element*>(matrix) + (first_row + row) * stride + column();
    offset_ = Tile::offset(row, threadIdx.x % Tile::chunks);
    pass_stride_ = rows_per_pass * stride;
    has_all_rows_ = first_row + Tile::rows <= rows;
    rows_left_ = rows - first_row - row;
    k_ = k;
  }

  /// Copies tile `k_tile` through registers: all loads first, so that they wait for memory together.
  __device__ __forceinline__ void copy(unsigned tile, int k_tile) const {
    uint4 chunks[passes];
    for_each_chunk(k_tile, [&](int pass, const Element* source, int bytes) {
      chunks[pass] = read_chunk(source, bytes);
    });
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) store_chunk_shared(target(tile, pass), chunks[pass]);
  }

  /// Starts the copy of tile `k_tile` by cp.async, which needs no registers and does not wait.
  __device__ __forceinline__ void start_copy(unsigned tile, int k_tile) const {
    for_each_chunk(k_tile, [&](int pass, const Element* source, int bytes) {
      cp_async_first<chunk_bytes>(target(tile, pass), source, bytes);
    });
  }

 private:
  /// The first column of the thread's chunks in a tile.
  static __device__ __forceinline__ int column() {
    return threadIdx.x % Tile::chunks * (chunk_bytes / element_bytes);
  }
  /// Calls f(pass, address, bytes that exist) for the thread's chunks of a tile. Most tiles exist wholly, and their copies
  /// need no more than an address.
  template <class F>
  __device__ __forceinline__ void for_each_chunk(int k_tile, F f) const {
    const Element* source = source_ + k_tile * WarpTiles::k;
    if (has_all_rows_ && (k_tile + 1) * WarpTiles::k <= k_) {
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) f(pass, source + pass * pass_stride_, chunk_bytes);
      return;
    }
    const int bytes = bytes_of_chunk(k_ - k_tile * WarpTiles::k - column());
#pragma unroll
    for (int pass = 0; pass < passes; ++pass)
      f(pass, source + pass * pass_stride_, pass * rows_per_pass < rows_left_ ? bytes : 0);
  }
  __device__ __forceinline__ unsigned target(unsigned tile, int pass) const {
    return tile + offset_ + pass * rows_per_pass * Tile::row_bytes;
  }

  const Element* source_;  // of the thread's chunk of its first row, in the first tile
  unsigned offset_;        // of that chunk in the tile
  long long pass_stride_;  // elements from a row of the thread to its next one
  int rows_left_;          // from the thread's first row on
  bool has_all_rows_;      // all rows of the block's tiles exist
  int k_;
};

/// Both matrices, with a place in shared memory for `WarpTiles::stage_bytes` bytes per stage. `Layout` says where a chunk
/// of a tile lies: a template of rows and chunks per row.
template <template <int, int> class Layout, class Element>
struct Operands {
  static constexpr int chunks = WarpTiles::k * element_bytes / chunk_bytes;
  using ATile = Layout<WarpTiles::m, chunks>;
  using BTile = Layout<WarpTiles::n, chunks>;

  Operand<ATile, Element> a;
  Operand<BTile, Element> b;
  unsigned smem;

  __device__ __forceinline__ Operands(const MatmulParams& params, unsigned smem_address)
      : a(params.a, params.a_stride, blockIdx.y * WarpTiles::m, params.m, params.k),
        b(params.b, params.b_stride, blockIdx.x * WarpTiles::n, params.n, params.k),
        smem(smem_address) {}

  __device__ __forceinline__ unsigned a_tile(int stage) const {
    return smem + stage * WarpTiles::stage_bytes;
  }
  __device__ __forceinline__ unsigned b_tile(int stage) const { return a_tile(stage) + ATile::bytes; }

  __device__ __forceinline__ void copy(int stage, int k_tile) const {
    a.copy(a_tile(stage), k_tile);
    b.copy(b_tile(stage), k_tile);
  }
  __device__ __forceinline__ void start_copy(int stage, int k_tile) const {
    a.start_copy(a_tile(stage), k_tile);
    b.start_copy(b_tile(stage), k_tile);
  }
};

}  // namespace jit::matmul
