// The producer of keys and values that converters multiply by scales: those of the rows of a tile come beside it, by
// cp.async, into the stage that the tile comes to by TMA. A stage is full when both have come.
#pragma once

#include "base/element.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_scales.cuh"
#include "mainloop/kv_producer.cuh"
#include "mainloop/pipelines.cuh"
#include "problem/paged_kv.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/bounded_box.cuh"

namespace jit {

/// A box, and how many of its rows its sequence has: those behind them have no scales.
struct PlaceOfRows : RowPlace {
  int rows;
};
JIT_DEVICE PlaceOfRows box_of_lane(const PlaceOfRows& box, int lane) {
  return {box_of_lane(static_cast<const RowPlace&>(box), lane), __shfl_sync(full_warp, box.rows, lane)};
}

/// The lane's box of a tile of which the sequence has so many keys.
template <class Traits>
JIT_DEVICE PlaceOfRows rows_of_box(const AttentionParams& params, const RowPlace& box, int keys) {
  const bool exists = PagedKv<typename Traits::Config>(params).exists(box.batch);
  return {box, exists ? keys - lane_id() * Traits::box_rows : 0};
}

/// The first of a box's rows, and how many of the `box_rows` are there.
JIT_DEVICE int first_row(const PlaceOfRows& box) { return box.seq; }
JIT_DEVICE int rows_there(const PlaceOfRows& box, int /*box_rows*/) { return box.rows; }
JIT_DEVICE int first_row(const BoundedBox& box) { return box.first; }
JIT_DEVICE int rows_there(const BoundedBox& box, int box_rows) {
  return is_there(box) ? box_rows - box.missing : 0;
}

/// Scales of rows, as bytes that stand side by side.
struct ScaleBytes {
  const unsigned char* first;
  const TensorStrides& strides;
};

/// A producer as KvProducer, of a Traits whose Config `converts_scales`; `Box` is one of those above.
template <class Traits, class Maps, class Box>
class ScaledKvProducer : public KvProducer<Traits, Maps, Box> {
  using Base = KvProducer<Traits, Maps, Box>;
  using Config = typename Traits::Config;

  // Things beside a tile, and the scales of its rows behind them.
  template <class Beside, class Copy>
  struct WithScales {
    const Beside& beside;
    const Copy& copy;

    JIT_DEVICE void write(int stage) const { beside.write(stage); }
    JIT_DEVICE void expect(unsigned full) const { beside.expect(full); }
    JIT_DEVICE void start(int stage, unsigned full) const {
      beside.start(stage, full);
      copy(stage);
      cp_async_mbarrier_arrive(full);  // mutate: ScalesWithoutWait
    }
  };
  template <class Beside, class Copy>
  static JIT_DEVICE WithScales<Beside, Copy> with_scales(const Beside& beside, const Copy& copy) {
    return {beside, copy};
  }

 public:
  JIT_DEVICE ScaledKvProducer(const AttentionParams& params, const Maps& maps, unsigned smem)
      : Base(params, maps, smem), descale_(params.descale) {}

  template <class Beside = NoExtras>
  JIT_DEVICE void load_keys(const Box& box, const KeyTileInfo& info, const Beside& beside = {}) {
    Base::load_keys(box, info, with_scales(beside, [&](int stage) {
                      copy_scales<Config::head_dim>({descale_.k_blocks, descale_.k_blocks_strides}, box,
                                                    stored_k_scales_of<Traits>(this->smem_, stage));
                    }));
  }

  JIT_DEVICE void load_values() {
    if (!this->has_values_) return;
    load_values(this->values_);
    this->has_values_ = false;
  }
  JIT_DEVICE void load_values(const Box& box) {
    Base::load_values(box, with_scales(NoExtras(), [&](int stage) {
                        copy_scales<Config::head_dim_v>({descale_.v_blocks, descale_.v_blocks_strides}, box,
                                                        stored_v_scales_of<Traits>(this->smem_, stage));
                      }));
  }

  JIT_DEVICE void tell(int flags) {
    const auto& k = this->pipelines_.k;
    k.producer_acquire();
    mbarrier_arrive(k.full());  // no scales come
    Base::tell(flags);
  }

 private:
  // Starts the copies of the scales of a tile's rows of so many columns, of which each lane copies some; zeros of those
  // that are not there. By the whole warp, whose lanes have a box each.
  template <int columns>
  static JIT_DEVICE void copy_scales(const ScaleBytes& scales, const Box& box, unsigned target) {
    constexpr int bytes = converted_scale_bytes<Config>(columns), box_rows = Traits::box_rows;
#pragma unroll 1
    for (int first = 0; first < Config::tile_kv; first += warp_size) {
      const int row = first + lane_id(), row_of_box = row % box_rows;
      // mutate: ScalesOfTheFirstBox
      const Box own = box_of_lane(box, minimum(row / box_rows, Traits::boxes - 1));
      if (row >= Config::tile_kv) break;
      const long long offset = own.batch * scales.strides.batch +
                               (first_row(own) + row_of_box) * scales.strides.seq +
                               own.head * scales.strides.head;
      // mutate: ScalesBehindTheSequence
      const bool is_row = row_of_box < rows_there(own, box_rows);
      copy_scale_words<bytes>(target + row * bytes, is_row ? scales.first + offset : nullptr);
    }
  }

  const DescaleParams& descale_;
};

/// The producer of whole tiles.
template <class Traits, class Maps, class Box>
using TileProducer =
    typename ChosenType<converts_scales<typename Traits::Config>, ScaledKvProducer<Traits, Maps, Box>,
                        KvProducer<Traits, Maps, Box>>::type;
/// Boxes of rows that are not bounded.
template <class Traits>
using BoxOfRows = typename ChosenType<converts_scales<typename Traits::Config>, PlaceOfRows, RowPlace>::type;

}  // namespace jit
