// Checks that all functions of a mask agree with its `keep`, which defines it: kernels call whichever is cheapest. Slow, since
// every score is evaluated.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "checks/mask_fault.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "ptx/atomic.cuh"

namespace jit {

/// One score, which a mask's `kept_bits` asks for as it asks for those of a tile (steps/score_bits.cuh).
class OneScore {
 public:
  struct Bits {
    bool is_kept;
    friend __device__ Bits operator&(Bits x, Bits y) { return {x.is_kept && y.is_kept}; }
    friend __device__ Bits operator|(Bits x, Bits y) { return {x.is_kept || y.is_kept}; }
    friend __device__ Bits operator~(Bits x) { return {!x.is_kept}; }
  };

  __device__ OneScore(int q, int k) : q_(q), k_(k) {}

  template <class Range>
  __device__ Bits of_ranges(const Range& range) const {
    const KeyRange keys = range(q_);
    return {k_ >= keys.begin && k_ < keys.end};
  }
  template <class Keep>
  __device__ Bits of_queries(const Keep& keep) const {
    return {keep(q_)};
  }
  template <class Keep>
  __device__ Bits of_queries(Bits asked, const Keep& keep) const {
    return {keep(q_, asked.is_kept)};
  }
  template <class Keep>
  __device__ Bits of_keys(const Keep& keep) const {
    return {keep(k_)};
  }
  template <class Keep>
  __device__ Bits of_keys(Bits asked, const Keep& keep) const {
    return {keep(k_, asked.is_kept)};
  }
  template <class Keep>
  __device__ Bits of_distances(const Keep& keep) const {
    const int before = minimum(q_, k_) % 16;  // asked of another score as far apart
    return {keep(q_ - before, k_ - before)};
  }
  template <class Keep>
  __device__ Bits of_blocks(const Keep& keep) const {
    return {keep(q_ / 8 * 8, k_ / 16 * 16)};
  }
  template <class Keep>
  __device__ Bits of_blocks(Bits asked, const Keep& keep) const {
    return {keep(q_ / 8 * 8, k_ / 16 * 16, asked.is_kept)};
  }
  template <bool is_long = false, class Keep>
  __device__ Bits of_scores(const Keep& keep) const {
    return {keep(q_, k_)};
  }

 private:
  int q_;
  int k_;
};

/// Asks a mask about tiles of scores in every way, and records what its `keep` contradicts. By a whole warp.
template <class Mask>
class MaskExaminer {
 public:
  __device__ MaskExaminer(const BlockContext& context, MaskFault* fault)
      : mask_(context), context_(context), fault_(fault) {}

  /// All keys of queries from q_begin to q_end, in tiles of `tile_kv` keys, a multiple of 16.
  __device__ void examine(int q_begin, int q_end, int tile_kv) const {
    const KeyRange keys = mask_.key_range(q_begin, q_end),
                   lane_keys = lane_key_range(mask_, context_.seqlen_kv, q_begin, q_end);
#pragma unroll 1
    for (int k = 0; k < context_.seqlen_kv; k += tile_kv) {
      const ScoreTile tile{q_begin, q_end, k, minimum(k + tile_kv, context_.seqlen_kv)};
      examine(tile, keys, lane_keys, next_tile(tile, tile_kv));
    }
  }

 private:
  static __device__ bool has(const KeyRange& keys, int k) { return k >= keys.begin && k < keys.end; }

  // The tile itself where the mask finds none by itself.
  __device__ SeenTile next_tile(const ScoreTile& tile, int tile_kv) const {
    if constexpr (finds_tiles<Mask>) {
      return mask_.next_tile(tile.q_begin, tile.q_end, tile.k_begin, context_.seqlen_kv, tile_kv);
    } else {
      return {tile.k_begin, false};
    }
  }

  __device__ void examine(const ScoreTile& tile, const KeyRange& keys, const KeyRange& lane_keys,
                          const SeenTile& seen) const {
    const TileClass kind = mask_.classify(tile);
    const int first_key = next_key(mask_, tile.q_begin, tile.q_end, tile.k_begin);
    const int first_query = next_query(mask_, tile.k_begin, tile.k_end, tile.q_begin);
    const int rows = tile.q_end - tile.q_begin, scores = rows * (tile.k_end - tile.k_begin);
#pragma unroll 1
    for (int i = lane_id(); i < scores; i += warp_size) {
      const int q = tile.q_begin + i % rows, k = tile.k_begin + i / rows;
      const bool is_kept = mask_.keep(q, k);
      const auto expect = [&](MaskStatement statement, bool may_be_kept, bool may_be_dropped) {
        if (is_kept ? may_be_kept : may_be_dropped) return;
        record({statement, context_.batch, context_.head, q, k, is_kept});
      };
      if constexpr (is_made_of_parts<Mask>) {
        const bool by_parts = kept_bits(mask_, OneScore(q, k)).is_kept;
        expect(has_row_range<Mask> ? MaskStatement::row_range : MaskStatement::kept_bits, by_parts,
               !by_parts);
      }
      if constexpr (key_words<Mask> < 2) {
        int word = 0;
        if constexpr (key_words<Mask> == 1) word = mask_.key_word(k);
        const bool by_terms = keeps(mask_, query_term(mask_, q), k, word);
        expect(MaskStatement::keeps, by_terms, !by_terms);
      }
      expect(MaskStatement::classify, kind != TileClass::empty, kind != TileClass::full);
      expect(MaskStatement::key_range, has(keys, k), true);
      expect(MaskStatement::lane_key_range, has(lane_keys, k), true);
      expect(MaskStatement::next_key, k >= first_key, true);
      expect(MaskStatement::next_query, q >= first_query, true);
      expect(MaskStatement::next_tile, k >= seen.k_begin, seen.k_begin != tile.k_begin || !seen.is_full);
    }
  }

  // Unless something else was recorded already.
  __device__ void record(const MaskFault& found) const {
    if (atomic_cas_relaxed(reinterpret_cast<int*>(&fault_->statement), 0,
                           static_cast<int>(found.statement)) != 0)
      return;
    fault_->batch = found.batch;
    fault_->head = found.head;
    fault_->q = found.q;
    fault_->k = found.k;
    fault_->is_kept = found.is_kept;
  }

  Mask mask_;
  BlockContext context_;
  MaskFault* fault_;
};

/// Compiles all of a mask, whatever a kernel asks of it: an error anywhere in it is an error of each kernel.
template <class Mask>
inline constexpr bool is_whole = [] {
  using Examine = void (MaskExaminer<Mask>::*)(int, int, int) const;
  constexpr Examine examine = &MaskExaminer<Mask>::examine;
  return examine != nullptr;
}();

}  // namespace jit
