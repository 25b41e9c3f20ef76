// The tile scheduler of split-KV kernels: the work tiles of all batch entries in order, and the block's share of them.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/warp_sum.cuh"
#include "problem/variable_sequences.cuh"
#include "scheduling/key_shares.cuh"
#include "scheduling/key_spans.cuh"
#include "scheduling/request_kinds.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/split_params.cuh"
#include "split_keys/work_tile_keys.cuh"

namespace jit {

/// The work tiles of each KV head of a batch entry, and their length in the tile space.
struct HeadLength {
  int length;
  int row_tiles;
  int least_tiles;  ///< fewest tiles of a work tile
  int most_tiles;
};

template <class Config, int tile_rows>
JIT_DEVICE HeadLength head_length(const AttentionParams& params, int batch) {
  const VariableSequences<Config> sequences(params);
  SplitWorkTile work_tile{.batch = batch, .q = own_queries(sequences, batch), .kv = sequences.kv(batch)};
  const int rows = work_tile.q.length * Config::gqa_ratio;
  HeadLength head{0, (rows + tile_rows - 1) / tile_rows, longest_tile_space, 0};
#pragma unroll 1
  for (int row = 0; row < rows; row += tile_rows) {
    work_tile.enter_rows(row, rows, tile_rows);
    const int tiles = tiles_of<Config>(params, work_tile).count();
    head.length += work_tile_length(tiles);
    head.least_tiles = minimum(head.least_tiles, tiles);
    head.most_tiles = maximum(head.most_tiles, tiles);
  }
  return head;
}

/// The work of the queries of a batch entry that another kernel computes, as a length in the tile space of one KV head.
/// Any mask is assumed to be causal.
template <class Config>
JIT_DEVICE float length_beside(const AttentionParams& params, int batch) {
  constexpr bool is_masked = !is_same<typename Config::Mask, NoMask>;
  constexpr float key_share =
      static_cast<float>(sizeof(KvElement<Config>)) / 2;  // cost relative to a 16-bit key
  constexpr float places_of_pair =
      tile_cost * Config::gqa_ratio / (pairs_of_a_key * key_share * Config::tile_kv);
  const VariableSequences<Config> sequences(params);
  SplitWorkTile work_tile{.batch = batch, .q = sequences.q(batch), .kv = sequences.kv(batch)};
  if (computes(requests_of<Config>(), work_tile.q.length)) return 0;
  work_tile.enter_rows(0, work_tile.q.length * Config::gqa_ratio, work_tile.q.length * Config::gqa_ratio);
  const KeyRange keys = keys_of<Config>(params, work_tile);
  const int seen = maximum(0, keys.end - keys.begin);
  const int unseen = is_masked ? minimum(seen, work_tile.q.length) / 2 : 0;  // the mean per query
  return static_cast<float>(work_tile.q.length) * (static_cast<float>(seen - unseen) + keys_of_a_tile) *
         places_of_pair;
}

/// The block's index in the tile space. A block waits only for blocks with higher indices (merge_splits.cuh), or for
/// all blocks of a work tile once the first of them has begun (merge_shares.cuh). Blocks with higher indices begin
/// earlier: the GPU starts blocks in the order of blockIdx.
template <bool is_shared>
struct TileSpaceBlock {
  JIT_DEVICE void enter_tile_space(const SplitParams&) {}
  JIT_DEVICE void yield_sms(float, float) {}
  /// The block's index among all that share the tile space, in the order in which they begin.
  JIT_DEVICE int index() const { return static_cast<int>(blockIdx.x); }
  JIT_DEVICE int blocks() const { return static_cast<int>(gridDim.x); }
  JIT_DEVICE int block() const { return blocks() - 1 - index(); }
};
/// The block's index next to another kernel: two consecutive launches share the tile space, or some blocks of one do. A
/// block that has given way has an index below 0.
template <>
struct TileSpaceBlock<true> {
  int tile_space_blocks;
  int blocks_before;
  bool gives_way;

  JIT_DEVICE void enter_tile_space(const SplitParams& split_params) {
    tile_space_blocks = split_params.tile_space_blocks;
    blocks_before = split_params.blocks_before;
    gives_way = split_params.gives_way;
  }
  /// Leaves SMs to the other kernel. All blocks know the length of the tile space and of the other kernel's work.
  JIT_DEVICE void yield_sms(float own, float others) {
    if (gives_way) tile_space_blocks = decoding_blocks(tile_space_blocks, own, others);
  }
  JIT_DEVICE int index() const { return blocks_before + static_cast<int>(blockIdx.x); }
  JIT_DEVICE int blocks() const { return tile_space_blocks; }
  JIT_DEVICE int block() const { return blocks() - 1 - index(); }
};
template <class Config>
using TileSpaceBlockOf = TileSpaceBlock<requests_of<Config>() == Requests::few_queries>;

/// Walks through the block's share of the tile space. By a whole warp; all lanes return the same results. A plain
/// value. A work tile has `tile_rows` rows, or fewer at the end of a sequence.
template <class Config, int tile_rows>
struct SplitTileScheduler : TileSpaceBlockOf<Config> {
  KeyShares shares;
  SplitWorkTile work_tile;
  TileRange tiles;      ///< of the work tile
  int work_tile_begin;  ///< start of the work tile in the tile space

  /// Finds the first work tile of the block's share. Requires: enter_tile_space() if launches share the tile space.
  /// Each lane has a batch entry: one loop measures all entries, then walks through them again to find the block's
  /// place. One loop has few instructions: a kernel fetches its first instructions from memory, so the fewer there are,
  /// the sooner it loads keys.
  JIT_DEVICE void begin(const AttentionParams& params, const KnownTileSpace& known) {
    if (known.tiles >= 0) return begin_known(params, known);
    TileSpace tile_space{0, false, longest_tile_space, 0};
    int even = 0;                 // the sum of all work tiles if each counts as the longest of its head
    StrandNumbers numbers = ~0u;  // strand counts that all heads allow
    float beside = 0;
    bool is_measured = false;
    work_tile = {.batch = 0};
#pragma unroll 1
    while (true) {
      const int batch = work_tile.batch + lane_id();
      const HeadLength own = batch < params.batch ? head_length<Config, tile_rows>(params, batch)
                                                  : HeadLength{0, 0, longest_tile_space, 0};
      if (!is_measured) {
        if constexpr (has_others) {
          if (this->gives_way && batch < params.batch) beside += length_beside<Config>(params, batch);
        }
        tile_space.total += __reduce_add_sync(full_warp, own.length);
        tile_space.shares_keys |= own.row_tiles > 1;
        even += __reduce_add_sync(full_warp, own.row_tiles * work_tile_length(own.most_tiles));
        numbers &= strands_of_rows(own.row_tiles);
        tile_space.least_tiles = minimum(tile_space.least_tiles, own.least_tiles);
        tile_space.most_tiles = maximum(tile_space.most_tiles, own.most_tiles);
        work_tile.batch += warp_size;
        if (work_tile.batch < params.batch) continue;
        is_measured = true;
        if constexpr (has_others) {
          this->yield_sms(static_cast<float>(tile_space.total), warp_sum(beside));
          work_tile.batch = params.batch;
          if (this->block() < 0) return;
        }
        measure(params, tile_space, even, numbers);
        if (shares.is_scheduled) return schedule_first(params);
        if (!enter_strand()) return;
        work_tile.batch = 0;
        if (params.batch > warp_size) continue;
      }
      const int length = shares.strands == 1 ? shares.all_in_tile_space(own.length)
                                             : small_quotient(own.row_tiles, shares.strands) *
                                                   shares.in_tile_space(own.most_tiles);
      const int up_to_lane = params.batch > 1 ? sum_up_to_lane(length) : __shfl_sync(full_warp, length, 0);
      const int end = work_tile_begin + up_to_lane * params.heads_kv;
      const int place = shares.begin(tile_space_block_);
      const unsigned behind = __ballot_sync(full_warp, end > place);
      if (behind != 0) {
        const int lane = __ffs(static_cast<int>(behind)) - 1;
        work_tile.batch += lane;
        work_tile_begin = __shfl_sync(full_warp, end - length * params.heads_kv, lane);
        head_tiles_ = __shfl_sync(full_warp, own.most_tiles, lane);
        find_work_tile(params, place, __shfl_sync(full_warp, length, lane));
        return;
      }
      work_tile_begin = __shfl_sync(full_warp, end, warp_size - 1);
      work_tile.batch += warp_size;
    }
  }

  /// Whether there is a work tile; the block may have no split of it.
  JIT_DEVICE bool has_work_tile(const AttentionParams& params) const {
    return work_tile.batch < params.batch &&
           (shares.is_scheduled || work_tile_begin < shares.end(tile_space_block_));
  }
  /// The block's split of the work tile.
  JIT_DEVICE WorkTileSplit split() const {
    if constexpr (Config::split_keys != 0) {
      return span_split(shares, cuts(), tile_space_block_, span_tiles<Config>);
    } else {
      return shares.split(tile_space_block_, work_tile_begin, tiles.count());
    }
  }
  /// The block's tile info of the split.
  JIT_DEVICE SplitInfo info(const WorkTileSplit& split) const {
    return {work_tile.batch,
            work_tile.kv_head,
            work_tile.row_begin,
            work_tile.q,
            work_tile.kv,
            tile_space_block_ - split.first_block,
            split.splits,
            split.first_block,
            all_blocks_merge<Config> && shares.cuts_work_tiles(),
            all_blocks_merge<Config> ? mergers(split) : 0,
            false};
  }

  /// The tile info of a span, which begins with tile `tile` of the sequence.
  JIT_DEVICE SpanInfo span_info(const WorkTileSplit& split, int tile) const {
    const int begin = tiles.begin + split.tile_begin, end = tiles.begin + split.tile_end;
    return {info(split),
            cuts(),
            tile / span_tiles<Config>,
            begin / span_tiles<Config>,
            rounded_up_quotient(end, span_tiles<Config>),
            0};
  }

  /// Goes on to the next work tile. Requires: has_work_tile().
  JIT_DEVICE void next(const AttentionParams& params) {
    if (shares.is_scheduled) return skip(params, this->blocks());
    work_tile_begin += length_in_tile_space();
    if (work_tile.row_begin + shares.strands * tile_rows < rows()) {  // mutate: RowsOfOtherStrands
      enter_next_rows();
    } else {
      if (++work_tile.kv_head == params.heads_kv) {
        work_tile.kv_head = 0;
        ++work_tile.batch;
        enter(params);
        if (shares.strands > 1 && work_tile.batch < params.batch) head_tiles_ = most_tiles(params);
      }
      enter_first_rows();
    }
    if (work_tile.batch < params.batch) tiles = tiles_of<Config>(params, work_tile);
  }

 private:
  // The number of the work tile's blocks, without the last one if it goes on with the next work tile.
  JIT_DEVICE int mergers(const WorkTileSplit& split) const {
    return split.splits - (shares.goes_on(split, work_tile_begin + length_in_tile_space()) ? 1 : 0);
  }

  // Goes to the start of the block's strand. Returns whether the block has work.
  JIT_DEVICE bool enter_strand() {
    const StrandPlace place = shares.place(this->block());
    if (!shares.has_work(place)) return false;
    strand_ = place.strand;
    tile_space_block_ = shares.block_at(place);
    work_tile_begin = shares.strand_begin(strand_);
    shares.enter_strand(strand_);
    return true;
  }
  // The work tile's length; on strands that of the head's longest one, so that all are cut at the same keys.
  JIT_DEVICE int length_in_tile_space() const {
    // mutate: WorkTilesAsLongAsTheyAre
    return shares.in_tile_space(shares.strands > 1 ? head_tiles_ : tiles.count());
  }
  // Enter the head's first, or next, tile of rows on the block's strand. Each strand has equally many.
  JIT_DEVICE void enter_first_rows() {
    work_tile.enter_rows(strand_ * tile_rows, rows(), tile_rows);  // mutate: AllHaveTheFirstRows
  }
  JIT_DEVICE void enter_next_rows() {
    work_tile.enter_rows(work_tile.row_begin + shares.strands * tile_rows, rows(), tile_rows);
  }

  static constexpr bool has_others = requests_of<Config>() != Requests::all;

  JIT_DEVICE WorkTileCuts cuts() const { return {work_tile_begin, shares.length, tiles.begin, tiles.end}; }
  JIT_DEVICE int rows() const { return work_tile.q.length * Config::gqa_ratio; }

  // Finds the first work tile if all work tiles are equal.
  JIT_DEVICE void begin_known(const AttentionParams& params, const KnownTileSpace& known) {
    shares = known.shares;
    work_tile = {.batch = params.batch};
    if (shares.is_scheduled) return schedule_first(params);
    if (!enter_strand()) return;
    const int length = shares.in_tile_space(known.tiles);
    const int index = small_quotient(shares.begin(tile_space_block_) - work_tile_begin, length);
    work_tile.batch = small_quotient(index, known.work_tiles);
    work_tile_begin += index * length;
    enter(params);
    const int of_entry = index - work_tile.batch * known.work_tiles;
    work_tile.kv_head = known.row_tiles == 1 ? of_entry : small_quotient(of_entry, known.row_tiles);
    enter_first_rows();
    work_tile.enter_rows(
        work_tile.row_begin + (of_entry - work_tile.kv_head * known.row_tiles) * shares.strands * tile_rows,
        rows(), tile_rows);
    tiles = {0, known.tiles};
    head_tiles_ = known.tiles;
  }

  // Finds the first work tile if work tiles are scheduled whole.
  JIT_DEVICE void schedule_first(const AttentionParams& params) {
    tile_space_block_ = this->block();
    work_tile_begin = strand_ = head_tiles_ = 0;
    work_tile = {.batch = 0};
    enter(params);
    work_tile.row_begin = (row_tiles() - 1) * tile_rows;
    skip(params, this->block());  // mutate: SomeWorkTilesTwice
  }

  // Goes on by `count` work tiles. Each head begins with its last rows: these see the most keys under most masks, so
  // that short work tiles come last.
  JIT_DEVICE void skip(const AttentionParams& params, int count) {
    int place = work_tile.kv_head * row_tiles() + row_tiles() - 1 - work_tile.row_begin / tile_rows + count;
    if constexpr (has_key_lists<Config>) {
      if (work_tile.batch < params.batch) skip_lists(params, place);
    } else {
#pragma unroll 1
      while (work_tile.batch < params.batch && place >= row_tiles() * params.heads_kv) {
        place -= row_tiles() * params.heads_kv;
        ++work_tile.batch;
        enter(params);
      }
    }
    if (work_tile.batch >= params.batch) return;
    work_tile.kv_head = small_quotient(place, row_tiles());
    const int row_tile = row_tiles() - 1 - (place - work_tile.kv_head * row_tiles());
    work_tile.enter_rows(row_tile * tile_rows, rows(), tile_rows);
    tiles = tiles_of<Config>(params, work_tile);
  }

  // Goes on to the entry with the work tile at `place` of those from the current entry on, and makes `place` one of its own. Lists
  // are many, and blocks have few work tiles of each: each lane looks at one.
  JIT_DEVICE void skip_lists(const AttentionParams& params, int& place) {
    const VariableSequences<Config> sequences(params);
    int first = work_tile.batch;
#pragma unroll 1
    for (; first < params.batch; first += warp_size) {
      const int batch = first + lane_id();
      const int rows = batch < params.batch ? own_queries(sequences, batch).length * Config::gqa_ratio : 0;
      const int tiles = (rows + tile_rows - 1) / tile_rows * params.heads_kv;
      const int end = sum_up_to_lane(tiles);
      const unsigned behind = __ballot_sync(full_warp, end > place);
      if (behind != 0) {
        const int lane = __ffs(static_cast<int>(behind)) - 1;
        place -= __shfl_sync(full_warp, end - tiles, lane);
        first += lane;
        break;
      }
      place -= __shfl_sync(full_warp, end, warp_size - 1);
    }
    work_tile.batch = minimum(first, params.batch);
    enter(params);
  }

  JIT_DEVICE int row_tiles() const { return (rows() + tile_rows - 1) / tile_rows; }

  // Goes on to a batch entry that has queries.
  JIT_DEVICE void enter(const AttentionParams& params) {
    const VariableSequences<Config> sequences(params);
#pragma unroll 1
    for (; work_tile.batch < params.batch; ++work_tile.batch) {
      work_tile.q = own_queries(sequences, work_tile.batch);
      work_tile.kv = sequences.kv(work_tile.batch);
      if (work_tile.q.length > 0) break;
    }
  }
  // The most tiles of keys of a work tile of the current head; each lane tests some work tiles.
  JIT_DEVICE int most_tiles(const AttentionParams& params) const {
    int most = 0;
    SplitWorkTile other = work_tile;
#pragma unroll 1
    for (int row = lane_id() * tile_rows; row < rows(); row += warp_size * tile_rows) {
      other.enter_rows(row, rows(), tile_rows);
      most = maximum(most, tiles_of<Config>(params, other).count());
    }
    return __reduce_max_sync(full_warp, most);
  }

  // Computes `shares`. `tile_space` has the total of one KV head of all entries, and least and most of the lane's
  // entries; `even` is a total, too; `numbers` are the lane's.
  JIT_DEVICE void measure(const AttentionParams& params, const TileSpace& tile_space, int even,
                          StrandNumbers numbers) {
    TileSpace all = {tile_space.total * params.heads_kv, __any_sync(full_warp, tile_space.shares_keys) != 0,
                     __reduce_min_sync(full_warp, tile_space.least_tiles),
                     __reduce_max_sync(full_warp, tile_space.most_tiles)};
    const int blocks = this->blocks(), num_splits = params.sequences.num_splits;
    if (all.shares_keys && may_have_strands(tile_space.total, even)) {
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

  // Finds the batch entry's work tile at `place` of the tile space. All of its KV heads have the same length.
  JIT_DEVICE void find_work_tile(const AttentionParams& params, int place, int head_length) {
    enter(params);
    work_tile.kv_head = small_quotient(place - work_tile_begin, head_length);
    work_tile_begin += work_tile.kv_head * head_length;
    enter_first_rows();
#pragma unroll 1
    while (true) {
      tiles = tiles_of<Config>(params, work_tile);
      const int end = work_tile_begin + length_in_tile_space();
      if (end > place) return;
      work_tile_begin = end;
      enter_next_rows();
    }
  }

  int tile_space_block_;  // the block's index in KeyShares
  int strand_;            // the block's strand
  int head_tiles_;        // most tiles of a work tile of the head
};

/// Calls f(info, tiles) for each of the block's splits of work tiles, or for each span of them. `work.work_tile` is the
/// split's work tile. By a whole warp.
template <class Config, class Tiles = WorkTileKeys<Config>, class Work, class F>
JIT_DEVICE void for_each_split(const AttentionParams& params, Work& work, F f) {
  // Tiles [begin, end) of the work tile's.
  const auto visit = [&](const auto& info, int begin, int end) {
    const auto mask = mask_of<Config>(params, work.work_tile);
    const KeyRange keys{(work.tiles.begin + begin) * Config::tile_kv,
                        (work.tiles.begin + end) * Config::tile_kv};
    Tiles tiles(mask, queries_of<Config>(work.work_tile), keys, work.work_tile.kv.length);
    if constexpr (has_key_lists<Config>) {
      f(ListInfo{info, mask.owner}, tiles);
    } else {
      f(info, tiles);
    }
  };
  for (; work.has_work_tile(params); work.next(params)) {
    const WorkTileSplit mine = work.split();
    if (!mine.is_mine) continue;
    if constexpr (Config::split_keys == 0) {
      visit(work.info(mine), mine.tile_begin, mine.tile_end);
    } else {
      int tile = mine.tile_begin;  // a work tile without keys has one span
      do {
        // mutate: SpansFromTheWindowOnByWgmma
        const int span_end = ((work.tiles.begin + tile) / span_tiles<Config> + 1) * span_tiles<Config>;
        const int end = minimum(mine.tile_end, span_end - work.tiles.begin);
        visit(work.span_info(mine, work.tiles.begin + tile), tile, end);
        tile = end;
      } while (tile < mine.tile_end);
    }
  }
}

}  // namespace jit
