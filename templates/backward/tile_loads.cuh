// The copies by TMA of a one-pass kernel: keys and values of a tile, and the tiles of queries that see it.
#pragma once

#include "backward/boxes.cuh"
#include "backward/key_tile.cuh"
#include "backward/turns.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// TMA copies of a tile of keys and of the tiles of queries that see it. `Maps` are TensorMaps or SequenceMaps. Of
/// Pipelines it uses `keys`, `q` and `d_o`, and the addresses of the data that accompanies their stages. By one thread.
template <class Pipelines, class Maps>
class TileLoads {
 protected:
  using Traits = typename Pipelines::Traits;
  using Config = typename Traits::Config;
  using KTile = typename Traits::KTile;
  using VTile = typename Traits::VTile;
  using QTile = typename Traits::QTile;
  using DoTile = typename Traits::DoTile;
  static constexpr int statistic_bytes = Pipelines::statistic_bytes;

 public:
  JIT_DEVICE TileLoads(const AttentionParams& params, const GradientParams& gradients, const Maps& maps,
                       const SequencesOf<Config>& sequences, const KeyTile<Config>& keys,
                       const Pipelines& pipelines)
      : params_(params),
        gradients_(gradients),
        maps_(maps),
        sequences_(sequences),
        keys_(keys),
        pipelines_(pipelines) {}

  /// Loads the block's values; they complete at the barrier of keys.
  JIT_DEVICE void load_values(unsigned round) const {
    const unsigned full = pipelines_.keys.full_at(round);
    mbarrier_arrive_expect_tx(full, VTile::bytes);
    load_tile<VTile>(pipelines_.v(round), v_map(), full, own_box(keys_.k_begin));
  }
  JIT_DEVICE void load_keys(unsigned round) const {
    const unsigned full = pipelines_.keys.full_at(round);
    mbarrier_arrive_expect_tx(full, KTile::bytes);
    load_tile<KTile>(pipelines_.k(round), k_map(), full, own_box(keys_.k_begin));
  }

  /// Writes NaN instead of keys and values. By a whole warp.
  JIT_DEVICE void poison_keys(unsigned round) const {
    fill_with_nan(pipelines_.k(round), KTile::bytes + VTile::bytes);
    fence_proxy_async_shared();  // mutate: PoisonedKeysUnseen
    __syncwarp();
  }

  /// Loads Q and LSE; `place` is the index of the tile's first query in the statistics.
  template <class Box>
  JIT_DEVICE void load_queries(unsigned step, const Box& box, long long place) const {
    const unsigned full = pipelines_.q.full_at(step);
    mbarrier_arrive_expect_tx(
        full, QTile::bytes + statistic_bytes + (Config::deterministic ? turn_count_bytes : 0));
    if constexpr (Config::deterministic) {
      load_turns<Config>(params_, maps_.schedule.turns, place / Config::tile_q,
                         keys_.k_begin / Config::tile_kv, pipelines_.turn_counts(step), full);
    }
    load_tile<QTile>(pipelines_.q.tile(step),
                     map_of(maps_, &TensorMaps::q, &SequenceMaps::bounded_q, Config::tile_q), full, box);
    cp_async_bulk_load(pipelines_.lse_log2(step), gradients_.lse_log2 + place, statistic_bytes, full);
  }
  /// dO and delta, and gradients of means.
  template <class Box>
  JIT_DEVICE void load_do(unsigned step, const Box& box, long long place) const {
    const unsigned full = pipelines_.d_o.full_at(step);
    constexpr int statistics = has_mean_score<Config> ? 2 : 1;  // mutate: MeansAreNotAwaited
    mbarrier_arrive_expect_tx(full, DoTile::bytes + statistics * statistic_bytes);
    load_tile<DoTile>(pipelines_.d_o.tile(step),
                      map_of(maps_, &TensorMaps::d_o, &SequenceMaps::bounded_do, Config::tile_q), full, box);
    cp_async_bulk_load(pipelines_.delta(step), gradients_.delta + place, statistic_bytes, full);
    if constexpr (has_mean_score<Config>)
      cp_async_bulk_load(pipelines_.means(step), mean_statistics(gradients_) + place, statistic_bytes, full);
  }

 protected:
  static JIT_DEVICE void fill_with_nan(unsigned place, int bytes) {
    for (int word = lane_id(); word < bytes / 4; word += warp_size) store_shared(place + word * 4, -1);
  }
  // The box of the block's keys, which begin with `first_key`.
  JIT_DEVICE auto own_box(int first_key) const {
    return key_box<Config>(sequences_, keys_.batch, keys_.kv_head, first_key, Traits::own_keys);
  }
  JIT_DEVICE decltype(auto) k_map() const {
    return map_of(maps_, &TensorMaps::k, &SequenceMaps::bounded_k, Traits::own_keys);
  }
  JIT_DEVICE decltype(auto) v_map() const {
    return map_of(maps_, &TensorMaps::v, &SequenceMaps::bounded_v, Traits::own_keys);
  }

  const AttentionParams& params_;
  const GradientParams& gradients_;
  const Maps& maps_;
  const SequencesOf<Config>& sequences_;
  const KeyTile<Config>& keys_;
  const Pipelines& pipelines_;
};

}  // namespace jit
