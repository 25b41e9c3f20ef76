// Applies score and mask functors to a tile of scores whose rows belong to several query heads.
#pragma once

#include "base/bit_words.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/key_tile_info.cuh"
#include "problem/functor.cuh"
#include "problem/key_lists.cuh"
#include "problem/masks.cuh"
#include "problem/row_mask.cuh"
#include "problem/scores.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/split_info.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The position of a warp's scores: first packed row of the KV head, first key, and whether the tile must be masked.
struct ScoreOrigin {
  int row;
  int key;
  bool is_partial;
};

/// The position of a warp's scores, `row` rows after the split's first row and `key` keys after the tile's first key.
JIT_DEVICE ScoreOrigin score_origin(const SplitInfo& split, const KeyTileInfo& keys, int row, int key = 0) {
  return {split.row_begin + row, keys.k_begin + key, (keys.flags & key_info_partial) != 0};
}

/// Positions of the keys of a tile of a list, from the list's key `first` on, read from memory; negative: no key.
template <class Config>
struct ListInMemory {
  static constexpr bool is_one_entry = false;
  using Lists = typename Config::Lists;
  const AttentionParams& params;
  const ListInfo& info;
  int first;

  JIT_DEVICE int position(int key) const {
    return Lists::template position<Config>(params, info.owner, info.batch, info.kv_head, first + key);
  }
  JIT_DEVICE unsigned members(int key) const {
    return Lists::members(params.tensors, info.batch, info.kv_head, first + key);
  }
};
/// Positions that a producer has written to shared address `words`.
template <class Config>
struct ListInWords {
  static constexpr bool is_one_entry = false;
  unsigned words;

  JIT_DEVICE int position(int key) const { return load_shared(words + key * 4); }
  JIT_DEVICE unsigned members(int key) const {
    if constexpr (Config::Lists::queries == 1) return 1;
    return static_cast<unsigned>(load_shared(words + (Config::tile_kv + key) * 4));
  }
};

/// A tile of keys of one entry of a list, which have consecutive positions.
template <class Config>
struct ListEntry {
  static constexpr bool is_one_entry = true;
  using Lists = typename Config::Lists;
  int first;  ///< position of the first key; negative: there are none
  int end;    ///< end of the positions of the sequence
  unsigned seen_by;

  JIT_DEVICE explicit ListEntry(const ListInMemory<Config>& list)
      : first(list.position(0)),
        end(Lists::template keys<Config>(list.params, list.info.owner)),
        seen_by(first < 0 ? 0 : list.members(0)) {}
  JIT_DEVICE int position(int key) const { return first + key; }
  /// Whether query `query` of the list sees the keys.
  JIT_DEVICE bool is_seen(int query) const {
    return (seen_by >> query & 1) != 0;  // mutate: EntriesOfOtherMembers
  }
};

/// The form of a list in which functors read the positions of its keys.
template <class Config>
JIT_DEVICE auto list_of_tile(const ListInMemory<Config>& list) {
  if constexpr (has_row_range<typename Config::Mask> && Config::Lists::block % Config::tile_kv == 0) {
    return ListEntry<Config>(list);
  } else {
    return list;
  }
}

/// A bit for each of the lane's scores in a row: whether the row's query sees the key. Found in a loop, as look-ups
/// take registers. `query` is the row's query within the list.
template <class Scores, class List, class Keeps>
JIT_DEVICE auto seen_keys(const List& list, int query, const Keeps& keeps) {
  using Layout = typename Scores::Layout;
  constexpr int pair = Scores::pair, columns = Scores::column_blocks * pair;
  using Bits = typename ChosenType<(columns > bits_of_word), unsigned long long, unsigned>::type;
  const int lane_column = Layout::lane_column(lane_id());
  Bits bits = 0;
#pragma unroll 1
  for (int i = 0; i < columns; ++i) {
    const int key = Layout::column(lane_column, i / pair, i % pair), position = list.position(key);
    if (position < 0) continue;                           // mutate: KeysThatAreNone
    if ((list.members(key) >> query & 1) == 0) continue;  // mutate: KeysOfOtherMembers
    if (keeps(position)) bits |= Bits{1} << i;
  }
  return bits;
}

/// Applies functors to the scores of queries with a list of keys; functors get the positions of keys.
template <class Config, class Scores, class List>
JIT_DEVICE void apply_list_functors(Scores& scores, const AttentionParams& params, const ListInfo& info,
                                    const ScoreOrigin& origin, const List& list) {
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  using Factors = ScoreFactors<Score>;
  const ListOwner& owner = info.owner;
  if (Score::is_identity && !origin.is_partial) return;
  Scores::for_each_row(origin.row + Scores::Layout::lane_row(lane_id()), [&](int r, int row) {
    const PackedRow<Config> place(info.kv_head, row);
    const int query = owner.query + minimum(place.query, maximum(owner.queries, 1) - 1);
    const BlockContext context{owner.sequence,  place.head,    params.heads_q, owner.q.length,
                               owner.kv.length, owner.q.begin, params.tensors};
    if constexpr (!Score::is_identity) {
      const Score score(context);
      const float scale = params.softmax_scale * Factors::input;
      const int lane_column = Scores::Layout::lane_column(lane_id());
      scores.for_each_of_row(r, [&](float& s, int column) {
        s = Factors::apply(score, s * scale, query, maximum(list.position(lane_column + column), 0));
      });
    }
    if (!origin.is_partial) return;
    if constexpr (List::is_one_entry) {
      KeyRange kept{0, list.end};
      if constexpr (!is_same<Mask, NoMask>) kept = Mask(context).row_range(query);  // mutate: MasksOfEntries
      const int first = list.position(Scores::Layout::lane_column(lane_id())), begin = kept.begin - first;
      // mutate: EntriesOfRowsBehindTheSequence
      const bool sees = place.query < owner.queries && list.is_seen(place.query);
      const int end = sees ? minimum(list.end, kept.end) - first : 0;  // mutate: CutEntriesAreSeen
      scores.for_each_of_row(
          r, [&](float& s, int column) { s = (column < end) & (column >= begin) ? s : negative_infinity(); });
    } else {
      const auto seen = [&] {
        if constexpr (is_same<Mask, NoMask>) {
          return seen_keys<Scores>(list, place.query, [](int) { return true; });
        } else {
          const RowMask<Mask> mask(context, query);
          return seen_keys<Scores>(list, place.query, [&](int position) {
            return mask.keeps(position);  // mutate: MasksOfPlacesInLists
          });
        }
      }();
      const bool exists = place.query < owner.queries;  // mutate: KeysOfRowsBehindTheSequence
#pragma unroll
      for (int n = 0; n < Scores::column_blocks; ++n) {
#pragma unroll
        for (int i = 0; i < Scores::pair; ++i) {
          float& s = scores.at(r, n, i);
          s = exists && (seen >> (n * Scores::pair + i) & 1) != 0 ? s : negative_infinity();
        }
      }
    }
  });
}

/// Applies functors to scores that are still products of queries and keys (steps/apply_functors.cuh). Functors are
/// constructed per row, because each row has its own head.
template <class Config, class Scores>
JIT_DEVICE void apply_row_functors(Scores& scores, const AttentionParams& params, const Info<Config>& info,
                                   const ScoreOrigin& origin) {
  using Layout = typename Scores::Layout;
  using Mask = typename Config::Mask;
  using Score = typename Config::Score;
  using Factors = ScoreFactors<Score>;
  if (Score::is_identity && !origin.is_partial) return;
  if constexpr (has_key_lists<Config>) {
    apply_list_functors<Config>(scores, params, info, origin,
                                list_of_tile(ListInMemory<Config>{params, info, origin.key}));
    return;
  }
  const int first_key = origin.key + Layout::lane_column(lane_id());
  Scores::for_each_row(origin.row + Layout::lane_row(lane_id()), [&](int r, int row) {
    const PackedRow<Config> place(info.kv_head, row);
    const int query = minimum(place.query, info.q.length - 1);
    const BlockContext context{info.batch,     place.head,   params.heads_q, info.q.length,
                               info.kv.length, info.q.begin, params.tensors};
    if constexpr (!Score::is_identity) {
      const Score score(context);
      const float scale = params.softmax_scale * Factors::input;
      scores.for_each_of_row(r, [&](float& s, int column) {
        s = Factors::apply(score, s * scale, query, minimum(first_key + column, info.kv.length - 1));
      });
    }
    if (!origin.is_partial) return;
    const RowMask<Mask> mask(context, query);
    scores.for_each_of_row(r, [&](float& s, int column) {
      if (!mask.keeps(first_key + column)) s = negative_infinity();
    });
  });
}

}  // namespace jit
