// The warps that load queries: rows of several heads, which cp.async gathers.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/rings.cuh"
#include "forward_split_wgmma/traits.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cp_async.cuh"
#include "split_keys/packed_rows.cuh"

namespace jit::forward_split_wgmma {

/// Copies the rows of a part's queries to the tiles of all consumers from the shared address `tiles` on; zeros where
/// there are none. By the query loaders, of which this is thread `thread`.
template <class Config>
__device__ __forceinline__ void copy_queries(unsigned tiles, const QueryRows<Config>& rows, int thread) {
  using Traits = KernelTraits<Config>;
  using Tile = typename Traits::QTile;
  constexpr int per_chunk = ElementTraits<typename Config::Element>::per_chunk;
  constexpr int chunks = Tile::panels * Tile::row_bytes / chunk_bytes;
  constexpr int count = Traits::tile_rows * chunks;
#pragma unroll 4
  for (int i = thread; i < count; i += Traits::query_threads) {
    const int row = i / chunks, chunk = i % chunks;
    const typename Config::Element* start = rows(row);
    const unsigned tile = tiles + row / rows_per_warpgroup * Tile::bytes;
    cp_async_zfill<chunk_bytes>(Tile::chunk_address(tile, row % rows_per_warpgroup, chunk),
                                start + chunk * per_chunk,
                                start != nullptr && chunk < Config::head_dim / per_chunk);
  }
}

template <class Config>
__device__ __forceinline__ void load_queries(const AttentionParams& params, unsigned char* bytes,
                                             unsigned smem) {
  PartRing<Config> parts(bytes, smem);
  auto ring = Rings<Config>(smem).q;
  while (parts.take()) {
    const QueryRows<Config> rows(params, parts.note());
    parts.release();
    ring.wait_empty();
    copy_queries<Config>(ring.tile(), rows, threadIdx.x - warp_size);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    fence_proxy_async_shared();
    ring.arrive_full();
    ring.advance();
  }
}

}  // namespace jit::forward_split_wgmma
