// The units of all batch entries in their order, and the block's share of them.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/warp_sum.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "problem/own_requests.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/decoding_share.cuh"
#include "scheduling/key_shares.cuh"
#include "scheduling/key_spans.cuh"
#include "split_keys/part_note.cuh"
#include "split_keys/span_note.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// Tiles of keys.
struct TileRange {
  int begin;
  int end;

  __device__ __forceinline__ int count() const { return end - begin; }
};

/// A tile of rows of one KV head of a batch entry, and all keys that they see.
struct Unit {
  int batch;
  int kv_head;
  int row_begin;
  int row_end;
  Sequence q;
  Sequence kv;

  /// Goes to the tile that begins with this row, of `rows` of the sequence.
  __device__ __forceinline__ void enter_rows(int begin, int rows, int tile_rows) {
    row_begin = begin;
    row_end = minimum(begin + tile_rows, rows);
  }
};

/// The unit that a part is of.
template <class Config>
__device__ __forceinline__ Unit unit_of(const PartNote& part, int tile_rows) {
  Unit unit{.batch = part.batch,
            .kv_head = part.kv_head,
            .q = {part.q_begin, part.seqlen_q},
            .kv = {part.kv_begin, part.seqlen_kv}};
  unit.enter_rows(part.row_begin, part.seqlen_q * Config::gqa_ratio, tile_rows);
  return unit;
}

template <class Config>
__device__ __forceinline__ BlockContext context_of(const AttentionParams& params, const Unit& unit,
                                                   int head) {
  return {unit.batch, head, params.heads_q, unit.q.length, unit.kv.length, unit.q.begin, params.tensors};
}

/// Queries [begin, end) to which the rows of a unit belong.
template <class Config>
__device__ __forceinline__ ScoreTile queries_of(const Unit& unit) {
  return {unit.row_begin / Config::gqa_ratio, (unit.row_end - 1) / Config::gqa_ratio + 1, 0, 0};
}

/// Of how many of so many heads the mask must be asked to know what it leaves of all.
template <class Config>
__device__ __forceinline__ int heads_to_ask(const AttentionParams& params, const Unit& unit, int heads) {
  using Mask = typename Config::Mask;
  if constexpr (!depends_on_head<Mask>) return 1;
  return heads_differ(Mask(context_of<Config>(params, unit, 0))) ? heads : 1;
}

/// Keys outside of which the rows of a unit see none, as far as a single lane can tell. The same of all KV heads: where
/// heads see different keys, it is around those of all of them.
template <class Config>
__device__ __forceinline__ KeyRange keys_of(const AttentionParams& params, const Unit& unit) {
  using Mask = typename Config::Mask;
  const ScoreTile queries = queries_of<Config>(unit);
  const auto keys_of_head = [&](int head) {
    const Mask mask(context_of<Config>(params, unit, head));
    return lane_key_range(mask, unit.kv.length, queries.q_begin, queries.q_end);
  };
  KeyRange keys = keys_of_head(0);
  const int heads = heads_to_ask<Config>(params, unit, params.heads_q);
#pragma unroll 1
  for (int head = 1; head < heads; ++head) keys = Either::of_ranges(keys, keys_of_head(head));
  return keys;
}

/// The tiles of keys that a unit's share of the line is measured by: no tile outside of them holds a key that its rows
/// see. Asked by single lanes.
template <class Config>
__device__ __forceinline__ TileRange tiles_of(const AttentionParams& params, const Unit& unit) {
  const KeyRange keys = keys_of<Config>(params, unit);
  if (keys.begin >= keys.end) return {0, 0};
  return {keys.begin / Config::tile_kv, (keys.end + Config::tile_kv - 1) / Config::tile_kv};
}

/// Looks at the page of keys [key, key + count) of a unit, which lie in one, where arrays are checked and some row may see
/// one of them.
template <class Config>
__device__ __forceinline__ void expect_page(const AttentionParams& params, const Unit& unit, int key,
                                            int count, int page) {
  if constexpr (Config::checked) {
    const KeyRange keys = keys_of<Config>(params, unit);
    if (key + count > keys.begin && key < minimum(keys.end, unit.kv.length))
      VariableSequences<Config>(params).expect_page(unit.batch, unit.kv.begin + key, page);
  }
}

/// What the mask leaves of a tile of scores of all heads of a unit. By a whole warp.
template <class Config>
__device__ __forceinline__ TileClass classify(const AttentionParams& params, const Unit& unit,
                                              const ScoreTile& tile) {
  using Mask = typename Config::Mask;
  const int first_head = unit.kv_head * Config::gqa_ratio;
  TileClass kind = Mask(context_of<Config>(params, unit, first_head)).classify(tile);
  const int heads = heads_to_ask<Config>(params, unit, Config::gqa_ratio);
  for (int g = 1; g < heads; ++g) {
    const TileClass other = Mask(context_of<Config>(params, unit, first_head + g)).classify(tile);
    if (other != kind) return TileClass::partial;
  }
  return kind;
}

/// From key k on the first that a query of the unit's, of whatever head, may see. By a whole warp.
template <class Config>
__device__ __forceinline__ int next_key(const AttentionParams& params, const Unit& unit,
                                        const ScoreTile& queries, int k) {
  using Mask = typename Config::Mask;
  const int first_head = unit.kv_head * Config::gqa_ratio;
  const auto next_of_head = [&](int g) {
    return next_key(Mask(context_of<Config>(params, unit, first_head + g)), queries.q_begin, queries.q_end,
                    k);
  };
  int next = next_of_head(0);
  const int heads = heads_to_ask<Config>(params, unit, Config::gqa_ratio);
  for (int g = 1; g < heads; ++g) next = minimum(next, next_of_head(g));
  return next;
}

/// What each KV head of a batch entry has on the line.
struct HeadLength {
  int length;
  int row_tiles;
  int least_tiles;  ///< of a unit
  int most_tiles;
};

template <class Config, int tile_rows>
__device__ __forceinline__ HeadLength head_length(const AttentionParams& params, int batch) {
  const VariableSequences<Config> sequences(params);
  Unit unit{.batch = batch, .q = own_queries(sequences, batch), .kv = sequences.kv(batch)};
  const int rows = unit.q.length * Config::gqa_ratio;
  HeadLength head{0, (rows + tile_rows - 1) / tile_rows, longest_line, 0};
#pragma unroll 1
  for (int row = 0; row < rows; row += tile_rows) {
    unit.enter_rows(row, rows, tile_rows);
    const int tiles = tiles_of<Config>(params, unit).count();
    head.length += unit_length(tiles);
    head.least_tiles = minimum(head.least_tiles, tiles);
    head.most_tiles = maximum(head.most_tiles, tiles);
  }
  return head;
}

/// What the queries of a batch entry take that are another kernel's, in places on the line of one KV head. Under any mask
/// queries are taken to see what they see under a causal one.
template <class Config>
__device__ __forceinline__ float length_beside(const AttentionParams& params, int batch) {
  constexpr bool is_masked = !is_same<typename Config::Mask, NoMask>;
  constexpr float key_share =
      static_cast<float>(sizeof(KvElement<Config>)) / 2;  // of what a key of 16 bits takes
  constexpr float places_of_pair =
      tile_cost * Config::gqa_ratio / (pairs_of_a_key * key_share * Config::tile_kv);
  const VariableSequences<Config> sequences(params);
  Unit unit{.batch = batch, .q = sequences.q(batch), .kv = sequences.kv(batch)};
  if (computes(requests_of<Config>(), unit.q.length)) return 0;
  unit.enter_rows(0, unit.q.length * Config::gqa_ratio, unit.q.length * Config::gqa_ratio);
  const KeyRange keys = keys_of<Config>(params, unit);
  const int seen = maximum(0, keys.end - keys.begin);
  const int unseen = is_masked ? minimum(seen, unit.q.length) / 2 : 0;  // by a query, of these
  return static_cast<float>(unit.q.length) * (static_cast<float>(seen - unseen) + keys_of_a_tile) *
         places_of_pair;
}

/// The block's place among those that share the line. A block waits for blocks behind it on the line alone (merge_parts.cuh),
/// or for all of a unit when the first of them has begun (merge_shares.cuh). Those behind it begin before it: the GPU begins
/// blocks in the order of their indices.
template <bool is_shared>
struct LineBlock {
  __device__ __forceinline__ void enter_line(const SplitParams&) {}
  __device__ __forceinline__ void give_way(float, float) {}
  /// Of all that share the line, in the order in which they begin.
  __device__ __forceinline__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ int block() const { return blocks() - 1 - index(); }
};
/// The same beside another kernel: two launches, one after the other, share the line, or some blocks of one. A block that
/// has given way has a place below 0.
template <>
struct LineBlock<true> {
  int line_blocks;
  int blocks_before;
  bool gives_way;

  __device__ __forceinline__ void enter_line(const SplitParams& split) {
    line_blocks = split.line_blocks;
    blocks_before = split.blocks_before;
    gives_way = split.gives_way;
  }
  /// Leaves multiprocessors to the other kernel. All blocks know how long the line and the other's work are.
  __device__ __forceinline__ void give_way(float own, float others) {
    if (gives_way) line_blocks = decoding_blocks(line_blocks, own, others);
  }
  __device__ __forceinline__ int index() const { return blocks_before + static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int blocks() const { return line_blocks; }
  __device__ __forceinline__ int block() const { return blocks() - 1 - index(); }
};
template <class Config>
using LineBlockOf = LineBlock<requests_of<Config>() == Requests::few_queries>;

/// Walks through the block's share of the line, by a whole warp whose lanes all get the same answers. A plain value.
/// A unit has `tile_rows` rows, or fewer at the end of a sequence.
template <class Config, int tile_rows>
struct WorkList : LineBlockOf<Config> {
  KeyShares shares;
  Unit unit;
  TileRange tiles;  ///< of the unit
  int unit_begin;   ///< where it begins on the line

  /// Goes to the first unit of the block's share. Requires: enter_line() where launches share the line. Lanes have a
  /// batch entry each: all are looked at to measure the line, and those from the first on again to find the place, in
  /// one loop: a kernel that begins fetches its instructions from memory, and the fewer there are, the sooner it loads keys.
  __device__ __forceinline__ void begin(const AttentionParams& params, const KnownLine& known) {
    if (known.tiles >= 0) return begin_known(params, known);
    LineSize line{0, false, longest_line, 0};
    int even = 0;                 // what all units come to if those of a head count as its longest one
    StrandNumbers numbers = ~0u;  // of strands that heads allow
    float beside = 0;
    bool is_measured = false;
    unit = {.batch = 0};
#pragma unroll 1
    while (true) {
      const int batch = unit.batch + lane_id();
      const HeadLength own = batch < params.batch ? head_length<Config, tile_rows>(params, batch)
                                                  : HeadLength{0, 0, longest_line, 0};
      if (!is_measured) {
        if constexpr (has_others) {
          if (this->gives_way && batch < params.batch) beside += length_beside<Config>(params, batch);
        }
        line.total += __reduce_add_sync(full_warp, own.length);
        line.shares_keys |= own.row_tiles > 1;
        even += __reduce_add_sync(full_warp, own.row_tiles * unit_length(own.most_tiles));
        numbers &= strands_of_rows(own.row_tiles);
        line.least_tiles = minimum(line.least_tiles, own.least_tiles);
        line.most_tiles = maximum(line.most_tiles, own.most_tiles);
        unit.batch += warp_size;
        if (unit.batch < params.batch) continue;
        is_measured = true;
        if constexpr (has_others) {
          this->give_way(static_cast<float>(line.total), warp_sum(beside));
          unit.batch = params.batch;
          if (this->block() < 0) return;
        }
        measure(params, line, even, numbers);
        if (shares.is_dealt) return deal_first(params);
        if (!enter_strand()) return;
        unit.batch = 0;
        if (params.batch > warp_size) continue;
      }
      const int length = shares.strands == 1
                             ? shares.all_on_line(own.length)
                             : small_quotient(own.row_tiles, shares.strands) * shares.on_line(own.most_tiles);
      const int up_to_lane = params.batch > 1 ? sum_up_to_lane(length) : __shfl_sync(full_warp, length, 0);
      const int end = unit_begin + up_to_lane * params.heads_kv;
      const int place = shares.begin(line_block_);
      const unsigned behind = __ballot_sync(full_warp, end > place);
      if (behind != 0) {
        const int lane = __ffs(static_cast<int>(behind)) - 1;
        unit.batch += lane;
        unit_begin = __shfl_sync(full_warp, end - length * params.heads_kv, lane);
        head_tiles_ = __shfl_sync(full_warp, own.most_tiles, lane);
        find_unit(params, place, __shfl_sync(full_warp, length, lane));
        return;
      }
      unit_begin = __shfl_sync(full_warp, end, warp_size - 1);
      unit.batch += warp_size;
    }
  }

  /// Whether there is a unit, of which the block may have no part.
  __device__ __forceinline__ bool has_unit(const AttentionParams& params) const {
    return unit.batch < params.batch && (shares.is_dealt || unit_begin < shares.end(line_block_));
  }
  /// The block's part of it.
  __device__ __forceinline__ UnitPart part() const {
    if constexpr (Config::split_keys != 0) {
      return span_part(shares, cuts(), line_block_, span_tiles<Config>);
    } else {
      return shares.part(line_block_, unit_begin, tiles.count());
    }
  }
  /// What a block notes of that.
  __device__ __forceinline__ PartNote note(const UnitPart& part) const {
    return {.batch = unit.batch,
            .kv_head = unit.kv_head,
            .row_begin = unit.row_begin,
            .q_begin = unit.q.begin,
            .seqlen_q = unit.q.length,
            .kv_begin = unit.kv.begin,
            .seqlen_kv = unit.kv.length,
            .part = line_block_ - part.first_block,
            .parts = part.parts,
            .first_block = part.first_block,
            .is_cut = all_blocks_merge<Config> && shares.cuts_units(),
            .mergers = all_blocks_merge<Config> ? mergers(part) : 0,
            .merges = false};
  }

  /// The same of a span, which begins with tile `tile` of the sequence.
  __device__ __forceinline__ SpanNote span_note(const UnitPart& part, int tile) const {
    const int begin = tiles.begin + part.tile_begin, end = tiles.begin + part.tile_end;
    return {note(part),
            cuts(),
            tile / span_tiles<Config>,
            begin / span_tiles<Config>,
            rounded_up_quotient(end, span_tiles<Config>),
            0};
  }

  /// The next one. Requires: has_unit().
  __device__ __forceinline__ void next(const AttentionParams& params) {
    if (shares.is_dealt) return skip(params, this->blocks());
    unit_begin += length_on_line();
    if (unit.row_begin + shares.strands * tile_rows < rows()) {  // mutate: RowsOfOtherStrands
      enter_next_rows();
    } else {
      if (++unit.kv_head == params.heads_kv) {
        unit.kv_head = 0;
        ++unit.batch;
        enter(params);
        if (shares.strands > 1 && unit.batch < params.batch) head_tiles_ = most_tiles(params);
      }
      enter_first_rows();
    }
    if (unit.batch < params.batch) tiles = tiles_of<Config>(params, unit);
  }

 private:
  // Blocks of the unit but for the last one, if that goes on with the next unit.
  __device__ __forceinline__ int mergers(const UnitPart& part) const {
    return part.parts - (shares.goes_on(part, unit_begin + length_on_line()) ? 1 : 0);
  }

  // Goes to where the block's strand begins. Returns whether the block has work there.
  __device__ __forceinline__ bool enter_strand() {
    const StrandPlace place = shares.place(this->block());
    if (!shares.has_work(place)) return false;
    strand_ = place.strand;
    line_block_ = shares.block_at(place);
    unit_begin = shares.strand_begin(strand_);
    shares.enter_strand(strand_);
    return true;
  }
  // The unit's: on strands all of a head have that of the longest one, so that strands are cut at the same keys.
  __device__ __forceinline__ int length_on_line() const {
    return shares.on_line(shares.strands > 1 ? head_tiles_ : tiles.count());  // mutate: UnitsAsLongAsTheyAre
  }
  // The tiles of rows of a head that are on the block's strand. Each strand has as many.
  __device__ __forceinline__ void enter_first_rows() {
    unit.enter_rows(strand_ * tile_rows, rows(), tile_rows);  // mutate: AllHaveTheFirstRows
  }
  __device__ __forceinline__ void enter_next_rows() {
    unit.enter_rows(unit.row_begin + shares.strands * tile_rows, rows(), tile_rows);
  }

  static constexpr bool has_others = requests_of<Config>() != Requests::all;

  __device__ __forceinline__ UnitCuts cuts() const {
    return {unit_begin, shares.length, tiles.begin, tiles.end};
  }
  __device__ __forceinline__ int rows() const { return unit.q.length * Config::gqa_ratio; }

  // The same where all units are alike.
  __device__ __forceinline__ void begin_known(const AttentionParams& params, const KnownLine& known) {
    shares = known.shares;
    unit = {.batch = params.batch};
    if (shares.is_dealt) return deal_first(params);
    if (!enter_strand()) return;
    const int length = shares.on_line(known.tiles);
    const int index = small_quotient(shares.begin(line_block_) - unit_begin, length);
    unit.batch = small_quotient(index, known.units);
    unit_begin += index * length;
    enter(params);
    const int of_entry = index - unit.batch * known.units;
    unit.kv_head = known.row_tiles == 1 ? of_entry : small_quotient(of_entry, known.row_tiles);
    enter_first_rows();
    unit.enter_rows(unit.row_begin + (of_entry - unit.kv_head * known.row_tiles) * shares.strands * tile_rows,
                    rows(), tile_rows);
    tiles = {0, known.tiles};
    head_tiles_ = known.tiles;
  }

  // Goes to the block's first unit where they are dealt.
  __device__ __forceinline__ void deal_first(const AttentionParams& params) {
    line_block_ = this->block();
    unit_begin = strand_ = head_tiles_ = 0;
    unit = {.batch = 0};
    enter(params);
    unit.row_begin = (row_tiles() - 1) * tile_rows;
    skip(params, this->block());  // mutate: SomeUnitsTwice
  }

  // Goes on by so many units. Those of a head are dealt from the last rows on: these see most keys under most masks, and
  // short units come last.
  __device__ __forceinline__ void skip(const AttentionParams& params, int count) {
    int place = unit.kv_head * row_tiles() + row_tiles() - 1 - unit.row_begin / tile_rows + count;
#pragma unroll 1
    while (unit.batch < params.batch && place >= row_tiles() * params.heads_kv) {
      place -= row_tiles() * params.heads_kv;
      ++unit.batch;
      enter(params);
    }
    if (unit.batch >= params.batch) return;
    unit.kv_head = small_quotient(place, row_tiles());
    const int row_tile = row_tiles() - 1 - (place - unit.kv_head * row_tiles());
    unit.enter_rows(row_tile * tile_rows, rows(), tile_rows);
    tiles = tiles_of<Config>(params, unit);
  }

  __device__ __forceinline__ int row_tiles() const { return (rows() + tile_rows - 1) / tile_rows; }

  // Goes on to a batch entry that has queries.
  __device__ __forceinline__ void enter(const AttentionParams& params) {
    const VariableSequences<Config> sequences(params);
#pragma unroll 1
    for (; unit.batch < params.batch; ++unit.batch) {
      unit.q = own_queries(sequences, unit.batch);
      unit.kv = sequences.kv(unit.batch);
      if (unit.q.length > 0) break;
    }
  }
  // Of units of a head of the batch entry, of each of which a lane asks.
  __device__ __forceinline__ int most_tiles(const AttentionParams& params) const {
    int most = 0;
    Unit other = unit;
#pragma unroll 1
    for (int row = lane_id() * tile_rows; row < rows(); row += warp_size * tile_rows) {
      other.enter_rows(row, rows(), tile_rows);
      most = maximum(most, tiles_of<Config>(params, other).count());
    }
    return __reduce_max_sync(full_warp, most);
  }

  // Lays out the line. `line` has the sum of all heads that are different, and least and most of the lane's entries;
  // `even` is such a sum, too; `numbers` are the lane's own.
  __device__ __forceinline__ void measure(const AttentionParams& params, const LineSize& line, int even,
                                          StrandNumbers numbers) {
    LineSize all = {line.total * params.heads_kv, __any_sync(full_warp, line.shares_keys) != 0,
                    __reduce_min_sync(full_warp, line.least_tiles),
                    __reduce_max_sync(full_warp, line.most_tiles)};
    const int blocks = this->blocks(), num_splits = params.sequences.num_splits;
    if (all.shares_keys && may_have_strands(line.total, even)) {
      numbers = __reduce_and_sync(full_warp, numbers);
      all.strands =
          strands_of_score(__reduce_max_sync(full_warp, strands_score(lane_id() + 1, numbers, blocks)));
      if (all.strands > 1) all.total = even * params.heads_kv;
    }
    if constexpr (Config::split_keys != 0) {
      shares = span_shares(all, blocks, num_splits, span_tiles<Config>);
    } else {
      shares = key_shares(all, blocks, num_splits);
    }
  }

  // Goes to the unit of the batch entry that holds this place on the line. Its KV heads are of the same length.
  __device__ __forceinline__ void find_unit(const AttentionParams& params, int place, int head_length) {
    enter(params);
    unit.kv_head = small_quotient(place - unit_begin, head_length);
    unit_begin += unit.kv_head * head_length;
    enter_first_rows();
#pragma unroll 1
    while (true) {
      tiles = tiles_of<Config>(params, unit);
      const int end = unit_begin + length_on_line();
      if (end > place) return;
      unit_begin = end;
      enter_next_rows();
    }
  }

  int line_block_;  // the block, as KeyShares counts them
  int strand_;      // the block's
  int head_tiles_;  // most that a unit of the head has
};

}  // namespace jit
