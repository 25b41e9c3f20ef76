// Accessors of a block's shared memory, and the loads of a step: keys and values, and queries at the start of a split.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/smem_layout.cuh"
#include "forward_split_kv/step_list.cuh"
#include "forward_split_kv/traits.cuh"
#include "mainloop/key_scales.cuh"
#include "mainloop/kv_row_copies.cuh"
#include "problem/paged_kv.cuh"
#include "ptx/cp_async.cuh"
#include "split_keys/packed_rows.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_kv {

/// The block's shared memory.
template <class Config>
struct Smem {
  static constexpr SmemLayout layout = KernelTraits<Config>::layout;
  unsigned char* bytes;

  JIT_DEVICE unsigned char* stage(int step) const {
    return bytes + step % Config::stages * layout.stage_bytes;
  }
  JIT_DEVICE Info<Config>* splits() const { return reinterpret_cast<Info<Config>*>(bytes + layout.splits); }
  JIT_DEVICE StepInfo& info(int step) const {
    return reinterpret_cast<StepInfo*>(bytes + layout.steps)[place(step)];
  }
  JIT_DEVICE int* pages(int step) const {
    return reinterpret_cast<int*>(bytes + layout.pages) + place(step) * Config::tile_kv;
  }
  JIT_DEVICE StepList<Config>& steps() const {
    static_assert(sizeof(StepList<Config>) <= step_list_bytes, "a StepList has outgrown its place");
    return *reinterpret_cast<StepList<Config>*>(bytes + layout.step_list);
  }
  /// By a whole warp.
  JIT_DEVICE void clear_steps() const {
    static_assert(step_list_bytes == warp_size * sizeof(int), "a word for each lane");
    reinterpret_cast<int*>(bytes + layout.step_list)[lane_id()] = 0;
  }

 private:
  static JIT_DEVICE int place(int step) { return step % KernelTraits<Config>::known_steps; }
};

/// Copies the scales of a tile's keys, or values, to shared address `target`; writes 0 for keys that do not exist.
template <class Config, class Rows>
JIT_DEVICE void copy_scales(unsigned target, const Rows& scales) {
  for (int row = static_cast<int>(threadIdx.x); row < Config::tile_kv; row += KernelTraits<Config>::threads) {
    const float* source = scales.at(row);
    cp_async_zfill<4>(target + row * 4, source, source != nullptr);
  }
}

/// Copies block scales of a tile's rows of `columns` columns, in whole words; writes 0 for keys that do not exist.
template <class Config, int columns, class Rows>
JIT_DEVICE void copy_block_scales(unsigned target, const Rows& scales) {
  constexpr int count = columns / scale_columns_of<KvElement<Config>>;
  constexpr int words = block_scale_bytes(columns, scale_columns_of<KvElement<Config>>) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < Config::tile_kv * words; i += KernelTraits<Config>::threads)
    copy_scale_word<count>(target + i * 4, scales.at(i / words), i % words);
}

/// Starts the loads of a step, and commits their group. By all threads.
template <class Config>
JIT_DEVICE void load_step(const AttentionParams& params, const Smem<Config>& smem, int step) {
  using Traits = KernelTraits<Config>;
  const StepInfo info = smem.info(step);
  if (info.flags & step_has_tile) {
    const Info<Config>& split = smem.splits()[info.split];
    const unsigned stage = smem_address(smem.stage(step));
    const int* const pages = smem.pages(step);
    if (!Traits::holds_queries || (info.flags & step_begins)) {
      copy_rows<typename Traits::QTile, Config::head_dim, Traits::threads, Config::alignment>(
          stage, QueryRows<Config>(params, split));
    }
    const KvRows<Config> keys(params, split, info.k_begin, pages, params.k, params.k_strides);
    copy_kv_tile<typename Traits::KTile, stored_columns<KvElement<Config>>(Config::head_dim),
                 Traits::threads>(stage + Traits::layout.k, keys, keys);
    const KvRows<Config> values(params, split, info.k_begin, pages, params.v, params.v_strides);
    copy_kv_tile<typename Traits::VTile, stored_columns<KvElement<Config>>(Config::head_dim_v),
                 Traits::threads>(stage + Traits::layout.v, values, values);
    if constexpr (scale_columns_of<KvElement<Config>> != 0) {
      using Scales = KvRows<Config, unsigned char>;
      const DescaleParams& descale = params.descale;
      copy_block_scales<Config, Config::head_dim>(
          stage + Traits::layout.k_blocks,
          Scales(params, split, info.k_begin, pages, descale.k_blocks, descale.k_blocks_strides));
      copy_block_scales<Config, Config::head_dim_v>(
          stage + Traits::layout.v_blocks,
          Scales(params, split, info.k_begin, pages, descale.v_blocks, descale.v_blocks_strides));
    }
    if constexpr (has_row_scales<Config>) {
      using Scales = KvRows<Config, float, rows_of_scale<Config>>;
      const DescaleParams& descale = params.descale;
      copy_scales<Config>(stage + Traits::layout.k_scales,
                          Scales(params, split, info.k_begin, pages, descale.k, descale.k_strides));
      if constexpr (Traits::has_value_scales) {
        copy_scales<Config>(stage + Traits::layout.v_scales,
                            Scales(params, split, info.k_begin, pages, descale.v, descale.v_strides));
      }
    }
  }
  cp_async_commit_group();
}

}  // namespace jit::forward_split_kv
