// The epilogue of dK and dV: consumers round a tile into shared memory, and TMA stores it while they compute the next
// tile. Each warp has its own buffers and waits for no other warp:
//
//     wait until TMA has read what was there │ round, stmatrix │ fence │ start the copy
//
// Without room for a buffer, consumers store from registers.
#pragma once

#include "backward/boxes.cuh"
#include "backward/key_tile.cuh"
#include "problem/gradients.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/warpgroup.cuh"
#include "steps/dropout.cuh"
#include "steps/store_product.cuh"
#include "tiles/panel_tile.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Writes the gradients of one warp. `Traits` define the gradients, and how many buffers each consumer warp has; `Maps`
/// are TensorMaps or SequenceMaps.
template <class Traits, class Maps>
class GradientWriter {
  using Config = typename Traits::Config;
  using Element = typename Config::Element;
  static constexpr int places = Traits::layout.gradient_places;

 public:
  static constexpr bool by_tma = places > 0;

  JIT_DEVICE GradientWriter(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                            const DropoutParams& dropout, unsigned smem, unsigned /*round*/ = 0)
      : params_(params), gradients_(gradients), maps_(maps), dropout_(dropout), smem_(smem) {}

  JIT_DEVICE void write_dv(const KeyTile<Config>& keys, const typename Traits::ValueGradient& dv) const {
    write<Config::head_dim_v>(
        keys, dv, over_keep_probability<Config>(1.0f, dropout_), 0,
        map_of(maps_, &TensorMaps::dv, &SequenceMaps::bounded_dv, gradient_rows),
        [&](const Gradients<Config>& gradients) { return gradients.dv_rows(keys.batch, keys.kv_head); });
  }
  JIT_DEVICE void write_dk(const KeyTile<Config>& keys, const typename Traits::KeyGradient& dk) const {
    write<Config::head_dim>(
        // mutate: DkUnscaled
        keys, dk, over_keep_probability<Config>(params_.softmax_scale, dropout_), places - 1,
        map_of(maps_, &TensorMaps::dk, &SequenceMaps::bounded_dk, gradient_rows),
        [&](const Gradients<Config>& gradients) { return gradients.dk_rows(keys.batch, keys.kv_head); });
  }

  /// Waits until TMA has read shared memory, which ends with the block. Called after the last tile of keys.
  static JIT_DEVICE void end() {
    if (by_tma && lane_id() == 0) cp_async_bulk_wait_group_read<0>();  // mutate: TheBlockEndsBeforeItsCopies
  }

 private:
  // The warp's index in the block's consumers, or in its consumer if all consumers have the same keys.
  static JIT_DEVICE int own_warp() {
    if constexpr (Traits::has_roles) return threadIdx.x % warpgroup_size / warp_size;
    return reread_thread_index() / warp_size - warpgroup_size / warp_size;
  }

  template <int columns, class Product, class Map, class RowsOf>
  JIT_DEVICE void write(const KeyTile<Config>& keys, const Product& product, float factor, int place,
                        const Map& map, const RowsOf& rows_of) const {
    const SequencesOf<Config> sequences = keys.sequences(params_);
    const int first_key = keys.k_begin + own_warp() * gradient_rows;  // mutate: RowsOfTheFirstWarp
    if constexpr (by_tma) {
      copy<PanelTile<Element, gradient_rows, columns>>(
          product, factor, place, map,
          key_box<Config>(sequences, keys.batch, keys.kv_head, first_key, gradient_rows));
    } else {
      store_rows<columns>(product, factor, rows_of(Gradients<Config>(params_, gradients_, sequences)),
                          first_key, sequences.kv(keys.batch).length);
    }
  }

  template <class Tile, class Product, class Map, class Box>
  JIT_DEVICE void copy(const Product& product, float factor, int place, const Map& map,
                       const Box& box) const {
    const unsigned tile =
        smem_ + Traits::layout.gradients +
        (own_warp() * places + place) * gradient_place_bytes(Config::head_dim, Config::head_dim_v);
    const int lane = lane_id();
    if (lane == 0) cp_async_bulk_wait_group_read<places - 1>();  // mutate: GradientsAreOverwritten
    __syncwarp();                                                // mutate: LanesDoNotWaitForTheCopy
    const unsigned own = Tile::chunk_address(tile, lane % 16, lane / 16);
#pragma unroll
    for (int step = 0; step < Product::column_blocks / 2; ++step) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2, n = 2 * step + i / 2;
        words[i] = pack<Element>(product.at(r, n, 0) * factor, product.at(r, n, 1) * factor);
      }
      stmatrix_x4(Tile::chunk_behind(own, 2 * step), words);
    }
    fence_proxy_async_shared();  // mutate: NoFenceBehindGradients
    __syncwarp();                // mutate: GradientsAreCopiedTooEarly
    if (lane == 0) {
      store_tile<Tile>(tile, map, box);
      cp_async_bulk_commit_group();
    }
  }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const Maps& maps_;
  const DropoutParams& dropout_;
  const unsigned smem_;
};

/// Who writes the gradients of a kernel with these maps, made anew for each tile of keys, when it is there.
template <class Traits, class Maps>
struct WriterOf {
  using type = GradientWriter<Traits, Maps>;
};

// Passes a part of dQ to the adder warp: through shared memory, in the order of the consumer's registers, in which the
// sums lie.

/// Writes part `part` of the adder's pipeline. Called after the wait for the product, by each thread of the consumer.
template <class Pipeline, class Product>
JIT_DEVICE void put_dq(const Pipeline& pipeline, unsigned part, const Product& dq) {
  pipeline.producer_acquire(part);  // mutate: NoWaitForTheAdder
  // mutate: TheOtherPlaceOfDq
  const unsigned own = pipeline.tile(part) + reread_thread_index() % warpgroup_size * 16;
#pragma unroll
  for (int n = 0; n < Product::column_blocks; ++n)
    store_shared(own + n * warpgroup_size * 16, dq.registers[0][n]);
}

/// Commits the part, after put_dq(). Work started between both does not wait for the fence.
template <class Pipeline>
JIT_DEVICE void pass_dq(const Pipeline& pipeline, unsigned part) {
  fence_proxy_async_shared();  // mutate: NoFenceBehindDq
  pipeline.producer_commit(part);
}

}  // namespace jit
