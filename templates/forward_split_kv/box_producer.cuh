// The producer warp: it plans steps and loads their tiles, K and V by TMA boxes, and by cp.async the queries of several
// heads with which a split begins, and scales of tokens or of blocks of columns.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "mainloop/key_scales.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/split_kv_producer.cuh"
#include "pipeline/pipeline.cuh"
#include "problem/sequences.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_kv {

/// State in the pipeline of stages.
template <class Config>
using BoxPipeline = Pipeline<Config::stages, KernelTraits<Config>::layout.stage_bytes>;

/// `smem` is the shared address of the block's memory.
template <class Config>
JIT_DEVICE BoxPipeline<Config> box_pipeline(unsigned smem) {
  return {smem, KernelTraits<Config>::layout.stages};
}

/// Initializes all pipelines. By one thread, before any other use; a __syncthreads must follow. `full` of a stage
/// expects an arrival of each producer lane, after its copies of queries, and one with the bytes of boxes.
template <class Config>
JIT_DEVICE void init_box_pipelines(unsigned smem) {
  using Traits = KernelTraits<Config>;
  init_pipeline(smem, Traits::layout.stages, warp_size + 1, Traits::consumer_warps);
  init_split_pipeline<Traits>(smem, Traits::query_warps + Traits::consumer_warps);
  fence_mbarrier_init();
}

template <class Config>
using Work = SplitTileScheduler<Config, KernelTraits<Config>::tile_rows>;

template <class Config>
class BoxProducer {
  using Traits = KernelTraits<Config>;
  using Tiles = typename Traits::Tiles;
  static constexpr int scale_columns = scale_columns_of<KvElement<Config>>;
  static constexpr bool has_scales = has_row_scales<Config> || scale_columns != 0;

 public:
  JIT_DEVICE BoxProducer(const AttentionParams& params, const KernelMemory& memory, unsigned char* bytes,
                         unsigned smem)
      : params_(params),
        memory_(memory),
        smem_(smem),
        pipeline_(box_pipeline<Config>(smem)),
        splits_(bytes, smem) {}

  /// Walks through the block's share of the work.
  JIT_DEVICE void run(Work<Config>& work) {
    for_each_split<Config>(params_, work, [&](const Info<Config>& info, WorkTileKeys<Config>& tiles) {
      load_tiles(work.work_tile, info, tiles);
    });
    splits_.put_end();
  }

 private:
  // Loads all tiles of a split.
  JIT_DEVICE void load_tiles(const SplitWorkTile& work_tile, const Info<Config>& info,
                             WorkTileKeys<Config>& tiles) {
    splits_.put(info);
    const bool brings = brings_queries<Config>(info);
    if (!tiles.has(0)) {
      begin_stage({0, key_info_none}, 0);
      end_stage(info, brings);
      return await_queries();
    }
    RowPlace box = key_box<Traits>(params_, work_tile, tiles.key(0));
    for (bool is_first = true;; is_first = false) {
      const bool has_next = tiles.has(1);
      begin_stage(info_of(tiles), Tiles::KPanels::bytes + Tiles::VPanels::bytes);
      const unsigned stage = pipeline_.tile(), full = pipeline_.full();
      start_boxes<Traits, typename Tiles::KPanels>(stage + Traits::layout.k, memory_.k, full, box);
      start_boxes<Traits, typename Tiles::VPanels>(stage + Traits::layout.v, memory_.v, full, box);
      if constexpr (has_scales) copy_scales(box, info.kv_head, info.kv.length - tiles.key(0));
      await_queries();
      end_stage(info, brings && is_first);
      if (!has_next) return await_queries();
      box = key_box<Traits>(params_, work_tile, tiles.key(1));  // overlaps with the wait for the next stage
      tiles.advance();
    }
  }

  // Acquires a stage, writes its tile info, and announces `bytes` bytes at its barrier.
  JIT_DEVICE void begin_stage(const KeyTileInfo& info, int bytes) {
    pipeline_.producer_acquire();
    if (lane_id() == 0) {
      store_key_info(key_tile_info<Traits>(smem_, pipeline_.stage()), info);
      mbarrier_arrive_expect_tx(pipeline_.full(), bytes);
    }
    __syncwarp();
  }

  // Starts the copies of scales of the stage's tile, of which `keys` exist.
  JIT_DEVICE void copy_scales(const RowPlace& box, int kv_head, int keys) const {
    const DescaleParams& descale = params_.descale;
    const unsigned stage = pipeline_.tile();
    for_tile_rows<Traits>(params_, box, keys, [&](int row, const RowPlace& place, bool exists) {
      const auto source = [&](const auto* scales, const TensorStrides& strides) {
        return exists ? scales + PagedKv<Config>::offset(strides, {place.seq, kv_head, place.batch})
                      : nullptr;
      };
      if constexpr (has_row_scales<Config>) {
        copy_scale(stage + Traits::layout.k_scales + row * 4, source(descale.k, descale.k_strides));
        copy_scale(stage + Traits::layout.v_scales + row * 4, source(descale.v, descale.v_strides));
      } else {
        copy_scale_words<Config::head_dim / scale_columns>(
            stage + Traits::layout.k_blocks + row * Traits::k_block_bytes,
            source(descale.k_blocks, descale.k_blocks_strides));
        copy_scale_words<Config::head_dim_v / scale_columns>(
            stage + Traits::layout.v_blocks + row * Traits::v_block_bytes,
            source(descale.v_blocks, descale.v_blocks_strides));
      }
    });
  }

  // Arrives in each lane; if the stage has queries, once these have been copied.
  JIT_DEVICE void end_stage(const Info<Config>& info, bool brings) {
    if constexpr (has_scales) {  // copies by cp.async arrive by themselves
      if (brings) {
        copy_rows<typename Traits::QTile, Config::head_dim, warp_size, Config::alignment>(
            pipeline_.tile(), QueryRows<Config>(params_, info), lane_id());
      }
      cp_async_mbarrier_arrive(pipeline_.full());  // mutate: ScalesBesideBoxesWithoutWait
      pipeline_.advance();
      return;
    }
    if (brings) {
      copy_rows<typename Traits::QTile, Config::head_dim, warp_size, Config::alignment>(
          pipeline_.tile(), QueryRows<Config>(params_, info), lane_id());
      cp_async_commit_group();
      awaited_ = pipeline_.full();
    } else {
      mbarrier_arrive(pipeline_.full());
    }
    pipeline_.advance();
  }

  // Arrives for queries after the loads of the next stage, which no warp that waits for these queries must release.
  JIT_DEVICE void await_queries() {
    if (awaited_ == 0) return;
    cp_async_wait_group<0>();  // mutate: QueriesBesideBoxesWithoutWait
    mbarrier_arrive(awaited_);
    awaited_ = 0;
  }

  const AttentionParams& params_;
  const KernelMemory& memory_;
  const unsigned smem_;
  BoxPipeline<Config> pipeline_;
  SplitPipeline<Traits> splits_;
  unsigned awaited_ = 0;  // barrier of the stage whose queries are on their way; 0: there is none
};

}  // namespace jit::forward_split_kv
