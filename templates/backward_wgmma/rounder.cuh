// The warp of a one-pass kernel that rounds complete sums of dQ, of the parts to which this block was the last to add:
//
//     an adder's report ─ sums to shared memory, by TMA ─ scaled, rounded, to rows of dQ
//
// The next part is on its way while one is rounded. Reports come in a fixed order, of each step both adders'.
#pragma once

#include "backward_wgmma/dq_sums.cuh"
#include "backward_wgmma/key_tile.cuh"
#include "backward_wgmma/rings.cuh"
#include "problem/gradients.cuh"
#include "ptx/bulk_copy.cuh"
#include "steps/dropout.cuh"
#include "tiles/accumulator.cuh"

namespace jit::backward_wgmma {

template <class Config>
class Rounder {
  using Traits = KernelTraits<Config>;
  using Element = typename Config::Element;

 public:
  __device__ __forceinline__ Rounder(const AttentionParams& params, const GradientParams& gradients,
                                     const DropoutParams& dropout, const KeyTile<Config>& keys, unsigned smem)
      : params_(params),
        gradients_(gradients),
        factor_(over_kept_share<Config>(params.softmax_scale, dropout)),
        keys_(keys),
        rings_(smem) {}

  __device__ __forceinline__ void run() {
    static_assert(stages_sums == 2);
    unsigned reports = 0, loaded = 0, rounded = 0;
    int oldest = 0, next = 0;  // parts on their way
    bool has_ended = false;
    while (true) {
      while (!has_ended && loaded - rounded < stages_sums && (loaded == rounded || has_report(reports))) {
        const int adder = static_cast<int>(reports) % Traits::dq_adders;
        const auto ring = rings_.complete(adder);
        const unsigned report = reports / Traits::dq_adders;
        ring.wait_full(report);
        const int complete = load_shared_by_warp(ring.tile(report));
        ring.arrive_empty(report);
        ++reports;
        has_ended = adder + 1 == Traits::dq_adders && (complete & last_dq_tile) != 0;
        const int tile = complete & ~last_dq_tile;
        if (tile == no_complete_tile) continue;
        load(loaded, tile, adder);
        (loaded == rounded ? oldest : next) = tile * Traits::dq_parts + adder;
        ++loaded;
      }
      if (loaded == rounded) return;
      round(rounded, oldest);
      ++rounded;
      oldest = next;
    }
  }

 private:
  __device__ __forceinline__ bool has_report(unsigned reports) const {
    return uniform(rings_.complete(static_cast<int>(reports) % Traits::dq_adders)
                       .is_full(reports / Traits::dq_adders)) != 0;
  }

  __device__ __forceinline__ void load(unsigned place, int tile, int part) const {
    constexpr int part_bytes = Traits::dq_part_floats * static_cast<int>(sizeof(float));
    if (lane_id() != 0) return;
    const auto ring = rings_.sums();
    const long long first = first_query_tile<Config>(params_, keys_.sequences(params_), keys_.batch, 0);
    fence_proxy_async();
    mbarrier_arrive_expect_tx(ring.full_at(place), part_bytes);
    cp_async_bulk_load(ring.tile(place),
                       dq_sums<Config>(gradients_, first + tile) + part * Traits::dq_part_floats, part_bytes,
                       ring.full_at(place));
  }

  __device__ __forceinline__ void round(unsigned place, int tile_part) const {
    const int tile = tile_part / Traits::dq_parts, part = tile_part % Traits::dq_parts;
    const int tiles = query_tiles<Config>(params_);
    const int head = tile / tiles, first_query = (tile - head * tiles) * Config::tile_q;
    const SequencesOf<Config> sequences = keys_.sequences(params_);
    const int lane = static_cast<int>(reread_thread_index() % warp_size);
    const int column = part % Traits::dq_column_parts * Traits::dq_columns + lane % 4 * 8;
    const int row = first_query + part / Traits::dq_column_parts * rows_per_warpgroup + lane / 4;
    const int rows = sequences.q(keys_.batch).length - row;  // from this one on
    const auto target =
        Gradients<Config>(params_, gradients_, sequences).dq_rows(keys_.batch, head).from(row, column);
    rings_.sums().wait_full(place);
    const unsigned own = rings_.sums().tile(place) + lane * 16;
    constexpr int column_blocks = Traits::dq_columns / 8;
#pragma unroll 1
    for (int first_row = 0; first_row < rows_per_warpgroup; first_row += 8) {
      const unsigned own_row = own + first_row / 16 * warp_size * 16 + first_row % 16;
#pragma unroll
      for (int n = 0; n < column_blocks; n += 4) {
        unsigned words[4] = {};
#pragma unroll
        for (int i = 0; i < 4 && n + i < column_blocks; ++i) {
          int sums[2];
          load_shared(sums, own_row + (n + i) * warpgroup_size * 16);
          words[i] = pack<Element>(__int_as_float(sums[0]) * factor_, __int_as_float(sums[1]) * factor_);
        }
        transpose_quad(words);
        const bool has_columns = n + lane % 4 < column_blocks && column + n * 8 < Config::head_dim;
        if (first_row < rows && has_columns)
          *reinterpret_cast<uint4*>(target.at(first_row) + n * 8) =
              make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    __syncwarp();
  }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const float factor_;
  const KeyTile<Config> keys_;
  const Rings<Config> rings_;
};

}  // namespace jit::backward_wgmma
