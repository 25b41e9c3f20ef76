// Traits that follow from the Config of a forward kernel: tile types, fragment counts, and the rhythm of the
// loads.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_mma_sync/smem_layout.cuh"
#include "ptx/fp8.cuh"
#include "split_keys/rows_apart.cuh"
#include "steps/mma_sync_products.cuh"
#include "steps/softmax.cuh"
#include "steps/value_columns.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit::forward_mma_sync {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  static constexpr int mma_k = ElementTraits<typename Config::Element>::mma_k;
  static_assert(Config::head_dim % 8 == 0 && Config::head_dim >= 8, "head_dim must be a multiple of 8");
  static_assert(Config::head_dim_v % 8 == 0 && Config::head_dim_v >= 8, "head_dim_v must be a multiple of 8");
  static_assert(Config::tile_q % (16 * Config::warps) == 0,
                "tile_q must be a multiple of 16 rows for each warp");
  static_assert(Config::tile_kv % mma_k == 0, "tile_kv must be a multiple of mma's k");
  static_assert(Config::stages_k >= 1 && Config::stages_v >= 1, "a pipeline has at least one stage");

  static constexpr int column_warps = jit::column_warps(Config::head_dim, Config::head_dim_v);
  static constexpr int warps = Config::warps * column_warps;
  static constexpr int threads = warps * warp_size;
  static constexpr int warp_rows = Config::tile_q / Config::warps;
  static constexpr int row_blocks = warp_rows / 16;
  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;

  // Tiles of one warp. Columns of V are not summed over, and padded to two blocks of O.
  static constexpr int warp_columns = jit::warp_columns(Config::head_dim_v, column_warps);
  static constexpr int columns_v = column_warps * warp_columns;
  using OutputLayout = typename ChosenType<is_fp8<typename Config::Element>, EvenOddLayout, MmaLayout>::type;
  using Scores = Accumulator<MmaLayout, warp_rows, Config::tile_kv>;
  using Output = Accumulator<OutputLayout, warp_rows, warp_columns>;
  using Columns = ValueColumns<Config, Output>;
  using State = RowsState<keeps_largest_scores<Config>, SoftmaxState<Scores::rows>, has_mean_score<Config>>;
  /// Whether keys are summed in spans, which a block computes one after another.
  static constexpr bool has_spans = Config::split_keys != 0;
  static constexpr int span_reads = 8;  ///< pairs of a waiting result that are read at once
  static_assert(!has_spans || (rows_are_independent<Config> && Config::split_keys % Config::tile_kv == 0 &&
                               column_warps == 1),
                "rows move their maxima by themselves, and no tile lies in two spans");
  static constexpr Rescale rescale = has_spans ? split_rescale<Config> : Config::rescale;
  static constexpr int consumer_warps = warps, first_consumer_thread = 0;  ///< all of them compute
  static JIT_DEVICE int block_of_grid() {
    return static_cast<int>((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
  }
  static constexpr bool may_lack_keys = true;  ///< of rows: whether some see no key is not worked out

  static constexpr int chunks =
      padded_head_dim(Config::head_dim, mma_k) / ElementTraits<typename Config::Element>::per_chunk;
  static constexpr int chunks_v = columns_v / ElementTraits<typename Config::Element>::per_chunk;
  static constexpr int chunks_o = columns_v / ElementTraits<OutputElement<Config>>::per_chunk;
  /// The warp's first row in the block, and its first column of O.
  static JIT_DEVICE int first_row(int warp = warp_id()) {
    return (column_warps == 1 ? warp : warp % Config::warps) * warp_rows;
  }
  static JIT_DEVICE int first_column() {
    return column_warps == 1 ? 0 : warp_id() / Config::warps * warp_columns;  // mutate: ColumnsOfTheFirstWarp
  }

  using QTile = SmemTile<Config::tile_q, chunks>;
  using KTile = SmemTile<Config::tile_kv, chunks>;
  using VTile = SmemTile<Config::tile_kv, chunks_v>;
  using OTile = SmemTile<Config::tile_q, chunks_o>;

  // How many tiles the loads are ahead. A single K buffer is refilled for the next tile as soon as S is done.
  static constexpr int ahead_k = Config::stages_k == 1 ? 1 : Config::stages_k - 1;
  static constexpr int ahead_v = Config::stages_v - 1;
  static constexpr int ahead = ahead_k > ahead_v ? ahead_k : ahead_v;
  // Within one step the tile that is needed sooner is loaded first.
  static constexpr bool v_first = Config::stages_k == 1 || ahead_v < ahead_k;
  // Copy groups that may still be in flight when K(n), or V(n), must have come: those committed after it.
  static constexpr int pending_k = v_first ? 2 * (ahead_k - 1) : 2 * ahead_k - 1;
  static constexpr int pending_v = Config::stages_k == 1 || !v_first ? 2 * ahead_v : 2 * ahead_v + 1;
};

}  // namespace jit::forward_mma_sync
