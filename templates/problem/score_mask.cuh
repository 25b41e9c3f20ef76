// Scores that return −inf for some keys: tiles that are −inf as a whole are skipped, as tiles that a mask drops.
#pragma once

#include "problem/functor.cuh"
#include "problem/masks.cuh"

namespace jit {

/// `Mask` without the tiles for which `Kept` says that the score is −inf everywhere. Single scores depend on `Mask`
/// alone, since the score itself returns −inf.
template <class Mask, class Kept>
struct ScoredMask : Mask {
  Kept kept_by_score;
  __device__ explicit ScoredMask(const BlockContext& context) : Mask(context), kept_by_score(context) {}
  __device__ KeyRange key_range(int q_begin, int q_end) const {
    return Both::of_ranges(Mask::key_range(q_begin, q_end), kept_by_score.key_range(q_begin, q_end));
  }
  __device__ KeyRange lane_key_range(int seqlen_kv, int q_begin, int q_end) const {
    return Both::of_ranges(jit::lane_key_range(static_cast<const Mask&>(*this), seqlen_kv, q_begin, q_end),
                           kept_by_score.lane_key_range(seqlen_kv, q_begin, q_end));
  }
  __device__ TileClass classify(const ScoreTile& tile) const {
    return class_with_score(Mask::classify(tile), tile);
  }
  void next_tile() = delete;  // Mask::next_tile and its memory ignore the score
  static constexpr bool has_memory = false;
  __device__ bool differs_by_head() const {
    return heads_differ(static_cast<const Mask&>(*this)) || Kept::reads_head;
  }
  /// The class of a tile, given its class by the mask.
  __device__ TileClass class_with_score(TileClass by_mask, const ScoreTile& tile) const {
    return kept_by_score.classify(tile) == TileClass::empty ? TileClass::empty : by_mask;
  }
};

template <class Mask, class Kept, int tile_q>
struct TilesByWork<ScoredMask<Mask, Kept>, tile_q> : TilesByWork<Mask, tile_q> {};

template <class Mask, class Kept>
inline constexpr bool depends_on_head<ScoredMask<Mask, Kept>> = depends_on_head<Mask> || Kept::reads_head;

template <class Mask, class Kept>
inline constexpr bool reads_blocks<ScoredMask<Mask, Kept>> = reads_blocks<Mask>;

/// Scores drop themselves.
template <class Mask, class Kept, int tile_q, int tile_kv>
struct MaskOfTile<ScoredMask<Mask, Kept>, tile_q, tile_kv> : MaskOfTile<Mask, tile_q, tile_kv> {};

template <class Mask, class Kept>
inline constexpr bool keeps_every_score<ScoredMask<Mask, Kept>> = keeps_every_score<Mask>;

}  // namespace jit
