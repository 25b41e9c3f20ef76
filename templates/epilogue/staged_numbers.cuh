// Stages elements that an output functor reads from one of its tensors in shared memory: whole rows are copied while
// the last products run, in the buffer of the same rows of O, and ldmatrix reads them. Lanes that loaded two elements
// each from global memory would wait for each load.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/row_pieces.cuh"
#include "epilogue/output_functor.cuh"
#include "problem/outputs.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/warpgroup.cuh"

namespace jit {

/// The slot of the first tensor with a 16-bit element for each element of o; −1: none.
template <class Functor>
JIT_DEVICE constexpr int staged_slot() {
  int slot = -1;
  Functor::for_each_tensor([&]<class Tensor>() {
    if (slot < 0 && !Tensor::is_of_rows && sizeof(typename Tensor::Element) == element_bytes)
      slot = Tensor::slot;
  });
  return slot;
}

/// Staged elements of a warp's rows, in rows [row, row + 16) of the OTile (16-bit elements) that will hold its O.
template <class Config, class OTile>
class StagedNumbers {
  using Functor = typename Config::OutputFunctor;
  static constexpr int slot = staged_slot<Functor>();
  static constexpr int rows = 16, chunks = Config::head_dim_v * element_bytes / chunk_bytes,
                       chunk_columns = chunk_bytes / element_bytes;
  // A power of two, so that rows copied by a lane differ in the same bits for all lanes.
  static constexpr int row_lanes = chunks > 16 ? 32 : chunks > 8 ? 16 : chunks > 4 ? 8 : chunks > 2 ? 4 : 2;

 public:
  static constexpr bool exist = slot >= 0 && Config::alignment == chunk_bytes;

  /// Starts the copies of rows from query `first_row` on. Requires: no thread reads the tile's rows any more. The
  /// consumer's next product waits for this, so addresses are found once, and moved by constants.
  static JIT_DEVICE void start(const BlockContext& context, unsigned tile, int row, int first_row) {
    constexpr int at_once = warp_size / row_lanes;
    const int own = lane_id() / row_lanes, chunk = lane_id() % row_lanes;
    const auto* source = place_of_row<bf16>(context, slot, first_row + own) + chunk * chunk_columns;
    const long long distance = context.tensors[slot].strides[1] * at_once;
    const unsigned target = OTile::chunk_address(tile, row + own, chunk);
    const int left = chunk < chunks ? context.seqlen_q - first_row - own : 0;
#pragma unroll
    for (int i = 0; i < rows; i += at_once) {
      if (i < left)  // mutate: NumbersOfRowsThatAreNone
        cp_async<chunk_bytes>(OTile::row_behind(target, i), source);
      source += distance;
    }
    cp_async_commit_group();
  }

  /// Waits for them, and applies the functor to a product, as finish_output does.
  template <class Product>
  static JIT_DEVICE void finish(const AttentionParams& params, const BlockContext& context, unsigned tile,
                                int row, int first_row, Product& output, float (&inverse)[Product::rows]) {
    const int lane = lane_id(), query = first_row + MmaLayout::lane_row(lane);
#pragma unroll
    for (int r = 0; r < Product::rows; ++r) {
      clear_row_without_keys(output, r, inverse[r]);
      if (query + 8 * r < context.seqlen_q) store_raw_row<Config>(params, context, output, r, query + 8 * r);
    }
    const Functor functor(context);
    const auto rows_of = [&](int r) {
      return typename Functor::Rows(context, minimum(query + 8 * r, context.seqlen_q - 1));
    };
    const typename Functor::Rows of_rows[Product::rows] = {rows_of(0), rows_of(1)};
    cp_async_wait_group<0>();  // mutate: NumbersOnTheirWay
    __syncwarp();              // mutate: NumbersOfOtherLanes
#pragma unroll
    for (int step = 0; step < Product::column_blocks / 2; ++step) {
      unsigned words[4];
      ldmatrix_x4(words, OTile::chunk_address(tile, row + lane % 16, 2 * step + lane / 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2, n = 2 * step + i / 2;
        if (n * MmaLayout::block_columns >= Config::head_dim_v) continue;
        apply(functor, of_rows[r], words[i], output.at(r, n, 0), output.at(r, n, 1), query + 8 * r,
              n * MmaLayout::block_columns + MmaLayout::lane_column(lane));
      }
    }
  }

 private:
  static JIT_DEVICE void apply(const Functor& functor, const typename Functor::Rows& rows, unsigned word,
                               float& x, float& y, int query, int column) {
    float staged[2];
    Functor::for_each_tensor([&]<class Tensor>() {
      if constexpr (Tensor::slot == slot) {
        const unsigned words[1] = {word};
        upcast_words<typename Tensor::Element>(words, staged);
      }
    });
    typename Functor::template Numbers<2> numbers;
    Functor::template put<slot>(numbers, staged);
    Functor::template load<Config::alignment, slot>(numbers, rows, column);
    x = functor.apply(x, query, column, numbers, 0);
    y = functor.apply(y, query, column, numbers, 1);
  }
};

}  // namespace jit
