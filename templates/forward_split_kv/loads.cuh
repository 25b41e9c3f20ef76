// The loads of a step's tiles: queries where a part of a unit begins, keys and values.
//
// By cp.async all threads copy, and wait for their own copies in front of the block's barrier. Bulk copies are rows,
// which warps start and the tensor memory accelerator makes: many are on the way without holding anybody up. Warps
// wait for them at an mbarrier of the stage.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/rows.cuh"
#include "forward_split_kv/smem.cuh"
#include "forward_split_kv/traits.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_kv {

/// What is loaded for a step that has a tile, and to where.
template <class Config>
struct StepLoads {
  using Traits = KernelTraits<Config>;
  bool has_queries;
  unsigned stage;  ///< shared address
  QueryRows<Config> q;
  KvRows<Config> k;
  KvRows<Config> v;

  __device__ __forceinline__ StepLoads(const AttentionParams& params, const Smem<Config>& smem, int step)
      : StepLoads(params, smem.note(step), smem.parts()[smem.note(step).part], smem.pages(step),
                  smem_address(smem.stage(step))) {}

  /// Calls copy.tile<Tile, columns>(address, rows) for each tile.
  template <class Copy>
  __device__ __forceinline__ void for_each_tile(const Copy& copy) const {
    if (has_queries) copy.template tile<typename Traits::QTile, Config::head_dim>(stage, q);
    copy.template tile<typename Traits::KTile, Config::head_dim>(stage + Traits::layout.k, k);
    copy.template tile<typename Traits::VTile, Config::head_dim_v>(stage + Traits::layout.v, v);
  }

 private:
  __device__ __forceinline__ StepLoads(const AttentionParams& params, const StepNote& note, const PartNote& part,
                                       const int* pages, unsigned address)
      : has_queries((note.flags & step_begins) != 0),
        stage(address),
        q(params, part),
        k(params, part, note.k_begin, pages, params.k, params.k_strides),
        v(params, part, note.k_begin, pages, params.v, params.v_strides) {}
};

/// By cp.async.
template <class Config>
struct AsyncCopies {
  template <class Tile, int columns, class Rows>
  __device__ __forceinline__ void tile(unsigned address, const Rows& rows) const {
    copy_rows<Tile, columns, KernelTraits<Config>::threads, Config::alignment>(address, rows);
  }
};

/// Calls f(row) for the lane's rows of a tile. All warps take part: a warp starts one bulk copy after another.
template <class Config, int rows, class F>
__device__ __forceinline__ void for_each_own_row(const F& f) {
  constexpr int share = (rows + KernelTraits<Config>::warps - 1) / KernelTraits<Config>::warps;
#pragma unroll 1
  for (int i = lane_id(); i < share; i += warp_size) {
    if (const int row = warp_id() * share + i; row < rows) f(row);
  }
}

/// Bytes of the rows that a lane copies for a step.
template <class Config>
struct RowBytes {
  int& bytes;

  template <class Tile, int columns, class Rows>
  __device__ __forceinline__ void tile(unsigned, const Rows& rows) const {
    for_each_own_row<Config, Tile::rows>([&](int row) {
      if (rows(row) != nullptr) bytes += columns * element_bytes;
    });
  }
};

/// Bulk copies of rows. Those that do not exist become zeros.
template <class Config>
struct BulkCopies {
  unsigned loaded;

  template <class Tile, int columns, class Rows>
  __device__ __forceinline__ void tile(unsigned address, const Rows& rows) const {
    for_each_own_row<Config, Tile::rows>([&](int row) {
      const void* const source = rows(row);
      const unsigned target = address + Tile::offset(row, 0);
      if (source != nullptr) {
        cp_async_bulk_load(target, source, columns * element_bytes, loaded);
      } else {
        for (int chunk = 0; chunk < Tile::chunks; ++chunk)
          asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(target + chunk * chunk_bytes), "r"(0) : "memory");
        fence_proxy_async_shared();
      }
    });
  }
};

/// Before the first load, by all threads; a barrier must follow.
template <class Config>
__device__ __forceinline__ void begin_loads(const Smem<Config>& smem) {
  if constexpr (Config::bulk_copies) {
    if (static_cast<int>(threadIdx.x) < Config::stages) mbarrier_init(smem.loaded(threadIdx.x), KernelTraits<Config>::warps);
    fence_mbarrier_init();
  }
}

/// Starts the loads of a step, by all threads.
template <class Config>
__device__ __forceinline__ void load_step(const AttentionParams& params, const Smem<Config>& smem, int step) {
  const bool has_tile = (smem.note(step).flags & step_has_tile) != 0;
  if constexpr (Config::bulk_copies) {
    if (!has_tile) {
      if (lane_id() == 0) mbarrier_arrive(smem.loaded(step));
      return;
    }
    const StepLoads<Config> loads(params, smem, step);
    int bytes = 0;
    loads.for_each_tile(RowBytes<Config>{bytes});
    bytes = __reduce_add_sync(full_warp, bytes);
    if (lane_id() == 0) mbarrier_arrive_expect_tx(smem.loaded(step), bytes);
    __syncwarp();
    loads.for_each_tile(BulkCopies<Config>{smem.loaded(step)});
  } else {
    if (has_tile) StepLoads<Config>(params, smem, step).for_each_tile(AsyncCopies<Config>{});
    cp_async_commit_group();
  }
}

/// In front of the barrier at which a step begins, and behind it: waits for the step's tiles.
template <class Config>
__device__ __forceinline__ void wait_before_barrier() {
  if constexpr (!Config::bulk_copies) cp_async_wait_group<Config::stages - 2>();
}
template <class Config>
__device__ __forceinline__ void wait_behind_barrier(const Smem<Config>& smem, int step) {
  if constexpr (Config::bulk_copies) mbarrier_wait_parity(smem.loaded(step), step / Config::stages % 2);
}

/// What threads wrote to a stage lies behind them for the copies that come next.
template <class Config>
__device__ __forceinline__ void end_stage_writes() {
  if constexpr (Config::bulk_copies) fence_proxy_async_shared();
}

}  // namespace jit::forward_split_kv
