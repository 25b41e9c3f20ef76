// The warps that make numbers of 16 bits of keys and values of 8: wgmma multiplies two operands of one width.
//
//     stored K, V  ──TMA──▶  a row of 16 bytes and more  ── widen ──▶  K, V of 16 bits in panels  ──▶  consumers
//
// A lane takes 16 bytes of a row and stores 32, two chunks side by side. The eight lanes that reach shared memory at once
// have four chunks each of rows r and r XOR 5: by the swizzles of both tiles these lie in all banks, once each, where they
// are read as where they are written.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/fp8.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The part of one of `warps` warps, 2 or 4, of a tile of elements `Stored`, as those of `To`, which are `Number`: a share
/// of its rows, or of its columns, or both.
template <class Stored, class From, class Number, class To, int columns, int warps>
class TileWidener {
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

 public:
  /// `first_warp` is that of these warps in its warpgroup.
  static __device__ __forceinline__ void widen(unsigned from, unsigned to, int first_warp) {
    // Read again: what follows from it would take registers from one tile to the next.
    const int thread = reread_thread_index() % warpgroup_size;
    const int warp = thread / warp_size - first_warp, lane = thread % warp_size;
    const int row_of_group = lane / 8 ^ (lane / 4 % 2 * 5);
    const int row = warp / warps_x * rows_at_once + row_of_group;
    const int groups = row_groups % warps_y == 0 ? row_groups / warps_y
                                                 : (row_groups - warp / warps_x + warps_y - 1) / warps_y;
#pragma unroll 1
    for (int group = warp % warps_x; group < chunk_groups; group += warps_x) {
      const int chunk = group * chunks_at_once + lane % chunks_at_once;
      if (chunks % chunks_at_once != 0 && chunk >= chunks) break;
      widen_rows(From::chunk_address(from, row, chunk), To::chunk_address(to, row, 2 * chunk), groups);
    }
  }

 private:
  // Of so many groups of rows, 16 elements of a row for each lane. Two groups are on their way.
  static __device__ __forceinline__ void widen_rows(unsigned from, unsigned to, int groups) {
    if (row_groups < warps_y && groups == 0) return;
    int words[2][4];
    load_shared(words[0], from);
    if (groups > 1) load_shared(words[1], from + from_step);
#pragma unroll 1
    for (int group = 0; group < groups; group += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && group + 1 >= groups) break;
        store_wide(to + i * to_step, words[i][0], words[i][1]);
        store_wide((to ^ chunk_bytes) + i * to_step, words[i][2], words[i][3]);  // the chunk beside it
        if (group + i + 2 < groups) load_shared(words[i], from + (i + 2) * from_step);
      }
      from += 2 * from_step, to += 2 * to_step;
    }
  }

  // Eight elements become a chunk.
  static __device__ __forceinline__ void store_wide(unsigned chunk, int first, int second) {
    unsigned halves[4];
    halves_of_fp8_word<Stored>(static_cast<unsigned>(first), halves[0], halves[1]);
    halves_of_fp8_word<Stored>(static_cast<unsigned>(second), halves[2], halves[3]);
    int wide[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) wide[i] = static_cast<int>(from_halves<Number>(halves[i]));
    store_shared(chunk, wide);
  }
};

/// Goes through what the key loader loads, in its order: each tile of keys is followed by the values of the one before.
///
/// `Keys` says how a family keeps them: `Traits`, with the tiles and the number of `converter_warps`; `Rings` and
/// `StoredRings` of `k` and `v`, made from the shared address of the block's memory; and of the notes that go with tiles
/// of keys
///   Note stored_note(smem, stored stage)                        by a whole warp
///   void leave_note(smem, stored stage, stage, note, thread)    by all converters, of whose threads this is `thread`
///   bool has_tile(note), bool is_end(note)                      the end stands behind the last keys
template <class Keys>
class KeyConverter {
  using Traits = typename Keys::Traits;
  using Config = typename Traits::Config;
  using Stored = KvElement<Config>;

 public:
  /// The converters are so many warps of a warpgroup, from `first_warp` on.
  __device__ __forceinline__ KeyConverter(unsigned smem, int first_warp)
      : smem_(smem), first_warp_(first_warp), stored_(smem), rings_(smem) {}

  __device__ __forceinline__ void run() {
    bool has_values = false;  // of the tile before
    while (true) {
      stored_.k.wait_full();
      const auto note = Keys::stored_note(smem_, stored_.k.stage());
      const bool is_end = Keys::is_end(note);
      const bool has_tile = Keys::has_tile(note);
      if (!is_end) convert_keys(note);
      if (has_values) convert_values();
      if (is_end) return;
      has_values = has_tile;
    }
  }

 private:
  template <class Note>
  __device__ __forceinline__ void convert_keys(const Note& note) {
    rings_.k.wait_empty();
    const int thread = reread_thread_index() % warpgroup_size - first_warp_ * warp_size;
    Keys::leave_note(smem_, stored_.k.stage(), rings_.k.stage(), note, thread);
    if (Keys::has_tile(note)) {
      TileWidener<Stored, typename Traits::StoredKTile, typename Config::Element, typename Traits::KTile,
                  Config::head_dim, Traits::converter_warps>::widen(stored_.k.tile(), rings_.k.tile(),
                                                                    first_warp_);
    }
    hand_over(stored_.k, rings_.k);
  }

  __device__ __forceinline__ void convert_values() {
    stored_.v.wait_full();
    rings_.v.wait_empty();
    TileWidener<Stored, typename Traits::StoredVTile, typename Traits::Weight, typename Traits::VTile,
                Config::head_dim_v, Traits::converter_warps>::widen(stored_.v.tile(), rings_.v.tile(),
                                                                    first_warp_);
    hand_over(stored_.v, rings_.v);
  }

  template <class From, class To>
  static __device__ __forceinline__ void hand_over(From& from, To& to) {
    fence_proxy_async_shared();
    from.arrive_empty();
    from.advance();
    to.arrive_full();
    to.advance();
  }

  const unsigned smem_;
  const int first_warp_;
  typename Keys::StoredRings stored_;
  typename Keys::Rings rings_;
};

}  // namespace jit
