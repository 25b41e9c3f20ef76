// Evaluates the mask for the producer of keys: once per tile of queries, then per tile of keys. Arithmetic masks are
// evaluated directly, masks that read a word per key by the table of word ranges.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/positions.cuh"
#include "problem/score_mask.cuh"
#include "ptx/warpgroup.cuh"

namespace jit {

/// Whether row_range is expensive, because it is C++ text; those of built-in masks are cheap.
template <class Mask>
concept is_row_range_text = has_row_range<Mask> && __is_base_of(TextMask, Mask);

/// Remembers the row ranges of a text mask whose queries see contiguous keys: calls the text once per query of a work
/// tile, and never per tile of keys. By one warp. All results hold for the queries of the last call of `key_range`.
template <class Mask>
class RowRangeMemory {
 public:
  JIT_DEVICE KeyRange key_range(const Mask& mask, int q_begin, int q_end) {
    const KeyRange nothing{mask.seqlen_kv, 0}, everything{0, mask.seqlen_kv};
    KeyRange seen = nothing;
    seen_by_all_ = everything;
    of_group_ = nothing;
#pragma unroll 1
    for (int first = q_begin, group = 0; first < q_end; first += rows_per_warpgroup, ++group) {
      const int end = minimum(first + rows_per_warpgroup, q_end);
      KeyRange by_some = nothing, by_all = everything;
#pragma unroll 1
      for (int q = first + lane_id(); q < end; q += warp_size) {
        const KeyRange row = mask.row_range(q);
        by_all = Both::of_ranges(by_all, row);  // mutate: SeenByTheLastRowsOfAWarpgroup
        if (row.begin < row.end) by_some = Either::of_ranges(by_some, row);
      }
      by_some = {__reduce_min_sync(full_warp, by_some.begin), __reduce_max_sync(full_warp, by_some.end)};
      by_all = {__reduce_max_sync(full_warp, by_all.begin), __reduce_min_sync(full_warp, by_all.end)};
      if (lane_id() == group) of_group_ = by_some;  // mutate: KeysOfTheFirstWarpgroup
      seen = Either::of_ranges(seen, by_some);
      seen_by_all_ = Both::of_ranges(seen_by_all_, by_all);
    }
    return seen;
  }

  /// The class of a tile of keys within that range, for all or some of these queries.
  JIT_DEVICE TileClass classify(const ScoreTile& tile) const {
    const bool is_full = tile.k_begin >= seen_by_all_.begin && tile.k_end <= seen_by_all_.end;
    return is_full ? TileClass::full : TileClass::partial;
  }

  /// The keys that the queries of a warpgroup see.
  JIT_DEVICE KeyRange of_group(int group) const {
    return {__shfl_sync(full_warp, of_group_.begin, group), __shfl_sync(full_warp, of_group_.end, group)};
  }

 private:
  KeyRange seen_by_all_{0, 0};
  KeyRange of_group_{0, 0};  // lane i holds the range of warpgroup i
};

/// Results of a mask that are kept for a tile of queries; by default none. By one warp. `key_range` is called first;
/// `classify` is then called for tiles of keys and all or some of these queries.
template <class Mask>
struct MaskMemory {
  JIT_DEVICE KeyRange key_range(const Mask& mask, const auto&, int, int q_begin, int q_end) {
    return mask.key_range(q_begin, q_end);
  }
  JIT_DEVICE TileClass classify(const Mask& mask, const auto&, int, const ScoreTile& tile) const {
    return mask.classify(tile);
  }
};

/// Whether a mask defines its own memory. Block masks whose tiles another mask classifies remember nothing, for lack of
/// registers.
template <class Mask>
concept has_memory = Mask::has_memory;
template <has_memory Mask>
struct MaskMemory<Mask> {
  typename Mask::Memory own;
  JIT_DEVICE KeyRange key_range(const Mask& mask, const auto&, int, int q_begin, int q_end) {
    return own.key_range(mask, q_begin, q_end);
  }
  JIT_DEVICE TileClass classify(const Mask& mask, const auto&, int, const ScoreTile& tile) const {
    return mask.classify(tile);
  }
};

template <is_row_range_text Mask>
struct MaskMemory<Mask> {
  RowRangeMemory<Mask> rows;
  JIT_DEVICE KeyRange key_range(const Mask& mask, const auto&, int, int q_begin, int q_end) {
    return rows.key_range(mask, q_begin, q_end);
  }
  JIT_DEVICE TileClass classify(const Mask&, const auto&, int, const ScoreTile& tile) const {
    return rows.classify(tile);
  }
};

template <int slot_q, int slot_kv>
class MaskMemory<DocumentMask<slot_q, slot_kv>> {
  using Mask = DocumentMask<slot_q, slot_kv>;

 public:
  template <class Ranges>
  JIT_DEVICE KeyRange key_range(const Mask& mask, const Ranges& ranges, int batch, int q_begin, int q_end) {
    if (q_begin >= q_end || mask.seqlen_kv == 0) return {0, 0};
    queries_ = Mask::id_range(mask.ids_q, q_begin, q_end);
    if constexpr (!Ranges::is_used) return mask.keys_of(queries_);
    int first = ranges.pieces(), last = -1;
#pragma unroll 1
    for (int begin = 0; begin < ranges.pieces(); begin += warp_size) {
      const int piece = begin + lane_id();
      const bool is_met = piece < ranges.pieces() && meet(queries_, ranges.range(batch, piece));
      const unsigned met = __ballot_sync(full_warp, is_met);
      if (met == 0) continue;
      first = minimum(first, begin + __ffs(met) - 1);
      last = begin + warp_size - 1 - __clz(met);  // mutate: LastTileOfADocumentIsLeftOut
    }
    if (last < 0) return {0, 0};
    return {first * ranges.keys_of_piece(), minimum((last + 1) * ranges.keys_of_piece(), mask.seqlen_kv)};
  }

  template <class Ranges>
  JIT_DEVICE TileClass classify(const Mask& mask, const Ranges& ranges, int batch,
                                const ScoreTile& tile) const {
    if constexpr (Ranges::is_used) {
      return Mask::classify(queries_, ranges.range(batch, ranges.piece_of(tile.k_begin)));
    } else {
      return Mask::classify(queries_, Mask::id_range(mask.ids_kv, tile.k_begin, tile.k_end));
    }
  }

 private:
  WordRange queries_{0, -1};  // ids of the tile of queries
};

template <int slot>
struct MaskMemory<TreeMask<slot>> {
  using Mask = TreeMask<slot>;

  template <class Ranges>
  JIT_DEVICE KeyRange key_range(const Mask& mask, const Ranges& ranges, int batch, int q_begin, int q_end) {
    if constexpr (!Ranges::is_used) return mask.key_range(q_begin, q_end);
    if (q_begin >= q_end) return {0, 0};
    const WordRange queries = mask.positions(q_begin, q_end);
    const int k_end = mask.last_end(queries);
    const int pieces = k_end == 0 ? 0 : ranges.piece_of(k_end - 1) + 1;
    int first = pieces, last = -1;
#pragma unroll 1
    for (int begin = 0; begin < pieces; begin += warp_size) {
      const int piece = begin + lane_id();
      const bool is_seen = piece < pieces && ranges.range(batch, piece).high > queries.low;
      const unsigned seen = __ballot_sync(full_warp, is_seen);
      if (seen == 0) continue;
      first = minimum(first, begin + __ffs(seen) - 1);
      last = begin + warp_size - 1 - __clz(seen);  // mutate: LastTileOfASubtreeIsLeftOut
    }
    if (last < 0) return {0, 0};
    return {first * ranges.keys_of_piece(), minimum((last + 1) * ranges.keys_of_piece(), k_end)};
  }

  template <class Ranges>
  JIT_DEVICE TileClass classify(const Mask& mask, const Ranges& ranges, int batch,
                                const ScoreTile& tile) const {
    if constexpr (Ranges::is_used) {
      return mask.classify(tile, ranges.range(batch, ranges.piece_of(tile.k_begin)));
    } else {
      return mask.classify(tile);
    }
  }
};

/// Positions of a tile of queries, and of the keys around the last tile: the producer would look them up for each tile of keys.
/// Not of masks that find the next tile, for lack of registers.
template <class Mask, class Places>
requires(!has_next<Mask>) class MaskMemory<PositionedMask<Mask, Places>> {
  using Positioned = PositionedMask<Mask, Places>;

 public:
  JIT_DEVICE KeyRange key_range(const Positioned& mask, const auto&, int, int q_begin, int q_end) {
    near_ = {};  // mutate: StretchesOfTheEntryBefore
    if (q_begin >= q_end || mask.places.k.rows == 0) return {0, 0};
    queries_ = mask.places.queries(q_begin, q_end);
    return mask.places.own_keys(mask.mask.key_range(queries_.begin, queries_.end));
  }
  JIT_DEVICE TileClass classify(const Positioned& mask, const auto&, int, const ScoreTile& tile) const {
    const KeyRange keys = mask.places.keys(tile.k_begin, tile.k_end, near_);
    return mask.mask.classify({queries_.begin, queries_.end, keys.begin, keys.end});
  }

 private:
  KeyRange queries_{0, 0};
  mutable LastStretches near_;
};

/// A memory for each of two masks.
template <class Op, class A, class B>
struct MaskMemory<CombinedMask<Op, A, B>> {
  MaskMemory<A> a;
  MaskMemory<B> b;
  JIT_DEVICE KeyRange key_range(const CombinedMask<Op, A, B>& mask, const auto& ranges, int batch,
                                int q_begin, int q_end) {
    return Op::of_ranges(a.key_range(mask.a, ranges, batch, q_begin, q_end),
                         b.key_range(mask.b, ranges, batch, q_begin, q_end));
  }
  JIT_DEVICE TileClass classify(const CombinedMask<Op, A, B>& mask, const auto& ranges, int batch,
                                const ScoreTile& tile) const {
    return Op::of_classes(a.classify(mask.a, ranges, batch, tile), b.classify(mask.b, ranges, batch, tile));
  }
};

template <class A>
struct MaskMemory<NotMask<A>> {
  MaskMemory<A> a;
  JIT_DEVICE KeyRange key_range(const NotMask<A>& mask, const auto& ranges, int batch, int q_begin,
                                int q_end) {
    a.key_range(mask.a, ranges, batch, q_begin, q_end);  // only for classify
    return mask.key_range(q_begin, q_end);
  }
  JIT_DEVICE TileClass classify(const NotMask<A>& mask, const auto& ranges, int batch,
                                const ScoreTile& tile) const {
    return class_of_inverse(a.classify(mask.a, ranges, batch, tile));
  }
};

template <class A, class Kept>
struct MaskMemory<ScoredMask<A, Kept>> {
  MaskMemory<A> a;
  JIT_DEVICE KeyRange key_range(const ScoredMask<A, Kept>& mask, const auto& ranges, int batch, int q_begin,
                                int q_end) {
    return Both::of_ranges(a.key_range(mask, ranges, batch, q_begin, q_end),
                           mask.kept_by_score.key_range(q_begin, q_end));
  }
  JIT_DEVICE TileClass classify(const ScoredMask<A, Kept>& mask, const auto& ranges, int batch,
                                const ScoreTile& tile) const {
    return mask.class_with_score(a.classify(mask, ranges, batch, tile), tile);
  }
};

template <class Mask>
concept remembers_rows = requires(MaskMemory<Mask> memory) {
  memory.rows;
};

/// A mask with its memory; behaves as a mask, for one tile of queries.
template <class Mask, class Ranges>
struct CachedMask {
  const Mask& mask;
  MaskMemory<Mask>& memory;
  const Ranges& ranges;
  int batch;
  JIT_DEVICE KeyRange key_range(int q_begin, int q_end) const {
    return memory.key_range(mask, ranges, batch, q_begin, q_end);
  }
  JIT_DEVICE TileClass classify(const ScoreTile& tile) const {
    return memory.classify(mask, ranges, batch, tile);
  }
  /// The keys that queries [q_begin, q_end) see, which are those of warpgroup `group`.
  JIT_DEVICE KeyRange key_range_of(int group, int q_begin, int q_end) const {
    if constexpr (remembers_rows<Mask>) {
      return memory.rows.of_group(group);
    } else {
      return mask.key_range(q_begin, q_end);
    }
  }
  /// Whether the tile's queries, which are those of warpgroup `group`, see none of its keys.
  JIT_DEVICE bool drops(int group, const ScoreTile& tile) const {
    if constexpr (remembers_rows<Mask>) {
      const KeyRange seen = memory.rows.of_group(group);
      return tile.k_begin >= seen.end || tile.k_end <= seen.begin;
    } else {
      return mask.classify(tile) == TileClass::empty;
    }
  }
  JIT_DEVICE int next_key(int q_begin, int q_end, int k) const requires has_next<Mask> {
    return mask.next_key(q_begin, q_end, k);
  }
  JIT_DEVICE SeenTile next_tile(int q_begin, int q_end, int k, int k_end, int tile_kv) const
      requires((finds_tiles<Mask> && !is_row_range_text<Mask>) || has_memory<Mask>) {
    if constexpr (has_memory<Mask>) {
      return memory.own.next_tile(mask, q_begin, q_end, k, k_end, tile_kv);
    } else {
      return mask.next_tile(q_begin, q_end, k, k_end, tile_kv);
    }
  }
};

}  // namespace jit
