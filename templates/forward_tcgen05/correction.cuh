// The warpgroup that rescales O in tensor memory when maxima move, and normalizes and writes it at the end of a work tile:
// softmax does not wait for it.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_tcgen05/row_factors.cuh"
#include "forward_tcgen05/traits.cuh"
#include "ptx/math.cuh"
#include "ptx/tcgen05.cuh"
#include "scheduling/tile_sequences.cuh"
#include "scheduling/work_pipeline.cuh"
#include "steps/dequant.cuh"
#include "steps/softmax.cuh"

namespace jit::forward_tcgen05 {

template <class Config>
class CorrectionWarpgroup {
  using Traits = KernelTraits<Config>;
  static constexpr int query_tiles = Traits::query_tiles;
  using Output = OutputElement<Config>;
  static constexpr int columns = 16, parts = Traits::output_columns / columns;
  static constexpr int piece_columns = 16 / static_cast<int>(sizeof(Output));

 public:
  JIT_DEVICE CorrectionWarpgroup(const AttentionParams& params, unsigned smem, unsigned tmem)
      : params_(params),
        tmem_(own_lanes(tmem)),
        work_(params, smem),
        tiles_(of_tiles<Traits, TileBarriers<Traits>>(smem)),
        factors_(of_tiles<Traits, RowFactors<Traits>>(smem)) {}

  JIT_DEVICE void run() {
    for (auto work = work_.take(); is_work(work); work = work_.take()) {
      bool ends = false;
      for (bool is_first = true; !ends; is_first = false) {
#pragma unroll
        for (int tile = 0; tile < query_tiles; ++tile) {
          const int flags = factors_[tile].take();
          ends = (flags & factors_end) != 0;
          if (ends) {
            finish(tile, work, flags);
          } else {
            rescale(tile, flags, is_first);
          }
          factors_[tile].release();
        }
      }
      work_.release();
    }
  }

 private:
  // Brings O up to the maxima of the tile whose P V is next. The products before have ended: the scores behind these were
  // there when the factors were told. Of a pair they are waited for, as the scores came in front of them.
  JIT_DEVICE void rescale(int tile, int flags, bool is_first) {
    if (Traits::is_pair && !is_first) wait_for<Traits>(tiles_[tile].o);  // mutate: OOfAPairInProducts
    if ((flags & factors_rescale) != 0) {                                // mutate: FactorsIgnored
      tcgen05_fence_after();
      const float factor = factors_[tile].factor();
#pragma unroll 1
      for (int part = 0; part < parts; ++part) {
        float o[columns];
        load(o, tile, part);
#pragma unroll
        for (float& value : o) value *= factor;
        tcgen05_store(place(tile, part), o);
      }
      tcgen05_wait_store();  // mutate: OToldBeforeItIsRescaled
    }
    tcgen05_fence_before();
    tell<Traits>(tiles_[tile].p);
  }

  // Normalizes O and writes it. Rows without keys become 0.
  JIT_DEVICE void finish(int tile, const typename Traits::Work& work, int flags) {
    const bool has_keys = (flags & factors_of_none) == 0;
    if (has_keys) wait_for<Traits>(tiles_[tile].o);  // mutate: NoWaitForO
    const float inverse = factors_[tile].factor();
    Dequant<Config, typename Traits::Scores> scales(params_, params_.descale);
    scales.take_values(work);
    const float factor = scales.output_factor(inverse);
    const auto rows = output_rows<Config>(params_, work);
    const int row =
        work.q_begin + first_row_of_tile<Config>(tile) + static_cast<int>(threadIdx.x) % query_rows;
    const bool exists = row < seqlens_of<Config>(params_, work).q.length;
    Output* const target = rows.at(row);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      float o[columns] = {};
      if (has_keys) load(o, tile, part);
#pragma unroll
      for (float& value : o) value = keep_if_has_keys(value * factor, inverse);
#pragma unroll
      for (int piece = 0; piece < columns; piece += piece_columns) {
        const int column = part * columns + piece;
        if (exists && column < Config::head_dim_v) store_piece(target + column, &o[piece]);
      }
    }
    tcgen05_fence_before();  // the next products that write O wait for what this thread tells
  }

  // Rounds 16 bytes of the row, and writes them.
  static JIT_DEVICE void store_piece(Output* to, const float* from) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(Output) == 2) {
        words[i] = pack<Output>(from[2 * i], from[2 * i + 1]);
      } else {
        words[i] = static_cast<unsigned>(__float_as_int(from[i]));
      }
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  }
  // Columns of the row of O, behind the wait for them.
  JIT_DEVICE void load(float (&o)[columns], int tile, int part) const {
    tcgen05_load(o, place(tile, part));
    tcgen05_wait_load();
    tcgen05_hold(o);
  }
  JIT_DEVICE unsigned place(int tile, int part) const {
    return tmem_ + Traits::output_column(tile) + part * columns;
  }

  const AttentionParams& params_;
  const unsigned tmem_;
  WorkPipeline<Traits> work_;
  OfTiles<Traits, TileBarriers<Traits>> tiles_;
  OfTiles<Traits, RowFactors<Traits>> factors_;
};

}  // namespace jit::forward_tcgen05
