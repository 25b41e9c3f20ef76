// The warpgroup that makes numbers of 16 bits of keys and values of 8: wgmma multiplies two operands of one width.
//
//     stored K, V  ──TMA──▶  a row of 16 bytes and more  ── widen ──▶  K, V of 16 bits in panels  ──▶  consumers
//
// A lane takes 16 bytes of a row and stores 32, two chunks side by side. The eight lanes that reach shared memory at once
// have four chunks each of rows r and r XOR 5: by the swizzles of both tiles these lie in all banks, once each, where they
// are read as where they are written.
#pragma once

#include "base/prelude.cuh"
#include "forward_split_wgmma/rings.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/fp8.cuh"
#include "split_keys/part_ring.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_split_wgmma {

/// One warp's part of a tile of elements `Stored`, as those of `To`, which are `Number`.
template <class Stored, class From, class Number, class To, int columns>
struct TileWidener {
  static constexpr int chunks = (columns + 15) / 16;  ///< of stored rows
  static constexpr int chunks_at_once = 4, rows_at_once = 8, ahead = 2;
  static constexpr int row_groups = To::rows / rows_at_once;
  static constexpr int groups = row_groups * ((chunks + chunks_at_once - 1) / chunks_at_once);
  static constexpr int warps = warpgroup_size / warp_size;

  static __device__ __forceinline__ void widen(unsigned from, unsigned to) {
    const int warp = threadIdx.x % warpgroup_size / warp_size, lane = lane_id();
    const int row = lane / 8 ^ (lane / 4 % 2 * 5), chunk = lane % 4;
#pragma unroll 1
    for (int first = warp; first < groups; first += ahead * warps) {
      int words[ahead][4];
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const Place at(first + i * warps, row, chunk);
        if (at.exists) load_shared(words[i], From::chunk_address(from, at.row, at.chunk));
      }
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const Place at(first + i * warps, row, chunk);
        if (!at.exists) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int wide[4];
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const unsigned word = static_cast<unsigned>(words[i][2 * half + w / 2]);
            wide[w] = static_cast<int>(widen_fp8<Number, Stored>(w % 2 == 0 ? word : word >> 16));
          }
          store_shared(To::chunk_address(to, at.row, 2 * at.chunk + half), wide);
        }
      }
    }
  }

 private:
  struct Place {
    int row;
    int chunk;
    bool exists;

    __device__ __forceinline__ Place(int group, int row_of_group, int chunk_of_group)
        : row(group % row_groups * rows_at_once + row_of_group),
          chunk(group / row_groups * chunks_at_once + chunk_of_group),
          exists(group < groups && chunk < chunks) {}
  };
};

template <class Config>
class KeyConverter {
  using Traits = KernelTraits<Config>;
  using Stored = KvElement<Config>;

 public:
  __device__ __forceinline__ explicit KeyConverter(unsigned smem)
      : smem_(smem), stored_(smem), rings_(smem) {}

  /// Goes through what the key loader loads, in its order, until that says that there is no more.
  __device__ __forceinline__ void run() {
    bool has_values = false;  // of the tile before
    while (true) {
      stored_.k.wait_full();
      const KeyNote note = load_key_note(stored_note<Traits>(smem_, stored_.k.stage()));
      const bool is_end = note.flags == key_note_end;
      if (!is_end) convert_keys(note);
      if (has_values) convert_values();
      if (is_end) return;
      has_values = (note.flags & key_note_none) == 0;
    }
  }

 private:
  __device__ __forceinline__ void convert_keys(const KeyNote& note) {
    rings_.k.wait_empty();
    if (threadIdx.x % warpgroup_size == 0) store_key_note(key_note<Traits>(smem_, rings_.k.stage()), note);
    if ((note.flags & key_note_none) == 0) {
      TileWidener<Stored, typename Traits::StoredKTile, typename Config::Element, typename Traits::KTile,
                  Config::head_dim>::widen(stored_.k.tile(), rings_.k.tile());
    }
    hand_over(stored_.k, rings_.k);
  }

  __device__ __forceinline__ void convert_values() {
    stored_.v.wait_full();
    rings_.v.wait_empty();
    TileWidener<Stored, typename Traits::StoredVTile, typename Traits::Weight, typename Traits::VTile,
                Config::head_dim_v>::widen(stored_.v.tile(), rings_.v.tile());
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
  StoredRings<Config> stored_;
  Rings<Config> rings_;
};

}  // namespace jit::forward_split_wgmma
