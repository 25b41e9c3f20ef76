// The warps that upcast 8-bit keys and values to 16 bits: both operands of a wgmma have one width.
//
//     stored K, V  ──TMA──▶  a row of 16 bytes and more  ── upcast ──▶  K, V of 16 bits in panels  ──▶  consumers
//
// A lane takes 16 bytes of a row and stores 32, two chunks side by side. The eight lanes that reach shared memory at
// once have four chunks each of rows r and r XOR 5: by the swizzles of both tiles these lie in all banks, once each,
// where they are read as where they are written.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/scaled_upcast.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/fp8.cuh"
#include "ptx/stored_numbers.cuh"
#include "ptx/warpgroup.cuh"
#include "steps/wgmma_products.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The part of one of `warps` warps, 2 or 4, of a tile of elements `Stored`, as those of `To`, which are `Number`: a
/// share of its rows, or of its columns, or both.
template <class Stored, class From, class Number, class To, int columns, int warps>
class TileUpcaster {
  static constexpr int chunks = (columns + 15) / 16;  // of stored rows
  static constexpr int chunks_at_once = 4, rows_at_once = 8;
  static constexpr int row_groups = To::rows / rows_at_once;
  static constexpr int chunk_groups = (chunks + chunks_at_once - 1) / chunks_at_once;
  // Warps side by side along columns, and along rows.
  static constexpr int warps_x = chunk_groups % warps == 0 ? warps : chunk_groups % 2 == 0 ? 2 : 1;
  static constexpr int warps_y = warps / warps_x;
  // From one group of rows of a warp to the next. Eight rows are a swizzle's pattern.
  static constexpr int from_step = warps_y * rows_at_once * From::row_bytes;
  static constexpr int to_step = warps_y * rows_at_once * To::row_bytes;
  // Groups of rows that a warp has at most, of which so many are on their way.
  static constexpr int most_groups = (row_groups + warps_y - 1) / warps_y;
  static constexpr int ahead = minimum(most_groups, 4);

 public:
  /// `first_warp` is that of these warps in its warpgroup.
  static JIT_DEVICE void upcast(unsigned from, unsigned to, int first_warp) {
    // Read again: what follows from it would take registers from one tile to the next. Not negative, which saves the
    // divisions below what they need for negative numbers.
    const unsigned thread = static_cast<unsigned>(reread_thread_index()) % warpgroup_size;
    const int warp = static_cast<int>(thread / warp_size) - first_warp,
              lane = static_cast<int>(thread % warp_size);
    const int row_of_group = lane / 8 ^ (lane / 4 % 2 * 5);
    const int row = warp / warps_x * rows_at_once + row_of_group;
#pragma unroll
    for (int first = 0; first < chunk_groups; first += warps_x) {
      const int chunk = (first + warp % warps_x) * chunks_at_once + lane % chunks_at_once;
      if (chunks % chunks_at_once != 0 && chunk >= chunks) break;
      upcast_rows(From::chunk_address(from, row, chunk), To::chunk_address(to, row, 2 * chunk),
                  warp / warps_x);
    }
  }

 private:
  // Upcasts the 16 elements of a lane in each group of rows that is this warp's.
  static JIT_DEVICE void upcast_rows(unsigned from, unsigned to, int warp_y) {
    unsigned words[ahead][4];
    const auto has = [warp_y](int group) {
      return group < most_groups - 1 || row_groups % warps_y == 0 || group * warps_y + warp_y < row_groups;
    };
    const auto load = [&](int group) {
      if (has(group)) load_shared(words[group % ahead], from + group * from_step);
    };
#pragma unroll
    for (int group = 0; group < ahead; ++group) load(group);
#pragma unroll
    for (int group = 0; group < most_groups; ++group) {
      if (!has(group)) break;  // mutate: HalfOfTheRows
      const unsigned(&row)[4] = words[group % ahead];
      store_wide(to + group * to_step, row[0], row[1]);
      store_wide((to ^ chunk_bytes) + group * to_step, row[2], row[3]);  // the chunk beside it
      if (group + ahead < most_groups) load(group + ahead);
    }
  }

  // Eight elements become a chunk.
  static JIT_DEVICE void store_wide(unsigned chunk, unsigned first, unsigned second) {
    unsigned wide[4];
    halves_of_fp8_word<Stored>(first, wide[0], wide[1]);
    halves_of_fp8_word<Stored>(second, wide[2], wide[3]);
#pragma unroll
    for (unsigned& pair : wide) pair = from_halves<Number>(pair);
    store_shared(chunk, wide);
  }
};

/// Goes through what the key producer loads, each tile of keys followed by its values. The producer has the next keys
/// before them; but of two tiles that consumers multiply together these have room first. A Traits is that of
/// mainloop/pipelines.cuh.
template <class Traits>
class KeyConverter {
  using Config = typename Traits::Config;
  using Stored = KvElement<Config>;

 public:
  /// The converters are so many warps of a warpgroup, from `first_warp` on.
  JIT_DEVICE KeyConverter(unsigned smem, int first_warp)
      : smem_(smem), first_warp_(first_warp), stored_(smem), pipelines_(smem) {}

  JIT_DEVICE void run() {
    while (true) {
      stored_.k.consumer_wait();
      const KeyTileInfo info = load_key_info(stored_info<Traits>(smem_, stored_.k.stage()));
      if ((info.flags & key_info_no_more) != 0) return;
      convert_keys(info);
      if (has_tile(info)) convert_values();
    }
  }

 private:
  static JIT_DEVICE bool has_tile(const KeyTileInfo& info) { return (info.flags & key_info_none) == 0; }

  JIT_DEVICE void convert_keys(const KeyTileInfo& info) {
    pipelines_.k.producer_acquire();  // mutate: WrittenWhileItIsRead
    const int thread = reread_thread_index() % warpgroup_size - first_warp_ * warp_size;
    write_info(info, thread);
    if (has_tile(info)) {
      if constexpr (converts_scales<Config>) {
        ScaledTileUpcaster<Stored, typename Traits::StoredKTile, typename Traits::Key, typename Traits::KTile,
                           Config::head_dim, Traits::converter_warps,
                           converted_scale_bytes<Config>(
                               Config::head_dim)>::upcast(stored_.k.tile(), pipelines_.k.tile(),
                                                          stored_k_scales_of<Traits>(smem_,
                                                                                     stored_.k.stage()),
                                                          first_warp_);
      } else {
        TileUpcaster<Stored, typename Traits::StoredKTile, typename Traits::Key, typename Traits::KTile,
                     Config::head_dim, Traits::converter_warps>::upcast(stored_.k.tile(), pipelines_.k.tile(),
                                                                        first_warp_);
      }
    }
    hand_over(stored_.k, pipelines_.k);
  }

  // And the words of keys that consumers ask for. By all converters, of whose threads this is `thread`.
  JIT_DEVICE void write_info(const KeyTileInfo& info, int thread) const {
    if (thread == 0) store_key_info(key_tile_info<Traits>(smem_, pipelines_.k.stage()), info);
    if constexpr (Traits::has_key_words) {
      if ((info.flags & key_info_partial) == 0) return;
      const unsigned from = stored_words_of<Traits>(smem_, stored_.k.stage());
      const unsigned to = key_words_of<Traits>(smem_, pipelines_.k.stage());
      for (int i = thread; i < Config::tile_kv; i += Traits::converter_warps * warp_size)
        store_shared(to + i * 4, load_shared(from + i * 4));  // mutate: WordsOfKeysNotPassedOn
    }
  }

  JIT_DEVICE void convert_values() {
    stored_.v.consumer_wait();        // mutate: ReadBeforeItHasCome
    pipelines_.v.producer_acquire();  // mutate: HandedOverBeforeItIsRead
    if constexpr (converts_scales<Config>) {
      ScaledTileUpcaster<Stored, typename Traits::StoredVTile, typename Traits::Weight,
                         typename Traits::VTile, Config::head_dim_v, Traits::converter_warps,
                         converted_scale_bytes<Config>(
                             Config::head_dim_v)>::upcast(stored_.v.tile(), pipelines_.v.tile(),
                                                          stored_v_scales_of<Traits>(smem_,
                                                                                     stored_.v.stage()),
                                                          first_warp_);
    } else {
      TileUpcaster<Stored, typename Traits::StoredVTile, typename Traits::Weight, typename Traits::VTile,
                   Config::head_dim_v, Traits::converter_warps>::upcast(stored_.v.tile(), pipelines_.v.tile(),
                                                                        first_warp_);
    }
    hand_over(stored_.v, pipelines_.v);
  }

  template <class From, class To>
  static JIT_DEVICE void hand_over(From& from, To& to) {
    fence_proxy_async_shared();  // mutate: NoProxyFence
    from.consumer_release();
    from.advance();
    to.producer_commit();
    to.advance();
  }

  const unsigned smem_;
  const int first_warp_;
  StoredKvPipelines<Traits> stored_;
  KvPipelines<Traits> pipelines_;
};

}  // namespace jit
