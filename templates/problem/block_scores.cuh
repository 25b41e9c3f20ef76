// A block mask with precomputed bits for the scores of its partial blocks, in a tensor.
#pragma once

#include "base/bit_words.cuh"
#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/block_mask.cuh"
#include "problem/masks.cuh"

namespace jit {

/// The mask within visible blocks. The int32 tensor (batch, heads, block_rows, block_columns) in slot `slot_places`
/// holds for each block an index into slot `slot_scores`, int32 (batch, heads, room, words of a block), whose bits say
/// which scores are kept (base/bit_words.cuh). In blocks with any other number, `Within` decides.
template <class Within, int slot_places, int slot_scores, int block_q, int block_kv>
struct MaskBits {
  static constexpr int queries_of_block = block_q, keys_of_block = block_kv;

  Within within;
  const int* places;  ///< of the batch entry and head, as are all other members
  long long place_stride;
  int rows;
  int columns;
  const unsigned* scores;
  long long score_stride;
  int room;
  int seqlen_kv;
  bool has_heads;

  __device__ explicit MaskBits(const BlockContext& context) : within(context), seqlen_kv(context.seqlen_kv) {
    const FunctorTensor &of_places = context.tensors[slot_places], &of_scores = context.tensors[slot_scores];
    places = static_cast<const int*>(of_places.data) + context.batch * of_places.strides[0] +
             context.head * of_places.strides[1];
    place_stride = of_places.strides[2];
    rows = of_places.rows;
    columns = of_places.last_size;
    scores = static_cast<const unsigned*>(of_scores.data) + context.batch * of_scores.strides[0] +
             context.head * of_scores.strides[1];
    score_stride = of_scores.strides[2];
    room = of_scores.rows;
    has_heads = of_places.strides[1] != 0 || of_scores.strides[1] != 0;
  }

  static constexpr bool reads_head = true;
  __device__ bool differs_by_head() const { return has_heads || heads_differ(within); }

  __device__ KeyRange key_range(int, int) const { return {0, seqlen_kv}; }
  static constexpr bool has_one_class = true;
  __device__ TileClass classify(const ScoreTile&) const { return TileClass::partial; }
  __device__ bool keep(int q, int k) const {
    const unsigned* const words = words_of(q, k);
    if (words == nullptr) return within.keep(q, k);
    const ScoreBitPlace at = score_bit_place(q % block_q, k % block_kv, block_q);
    return (__ldg(words + at.word) >> at.bit & 1) != 0;
  }

  /// The words of the block of score (q, k); null: the block has none.
  JIT_DEVICE const unsigned* words_of(int q, int k) const {
    const int row = q / block_q, column = k / block_kv;
    if (row >= rows || column >= columns) return nullptr;
    const int place = __ldg(places + row * place_stride + column);
    return place >= 0 && place < room ? scores + place * score_stride : nullptr;  // mutate: PlacesThatAreNone
  }
};

template <class Within, int slot_places, int slot_scores, int block_q, int block_kv>
inline constexpr bool reads_blocks<MaskBits<Within, slot_places, slot_scores, block_q, block_kv>> = true;

/// The BlockMask type with precomputed scores.
template <class Within, int slot_table, int slot_places, int slot_scores, int block_q, int block_kv>
using BlockScores =
    BlockMask<MaskBits<Within, slot_places, slot_scores, block_q, block_kv>, slot_table, block_q, block_kv>;

template <class Within, int slot_places, int slot_scores, int block_q, int block_kv, int tile_q, int tile_kv>
inline constexpr int mask_bit_words<MaskBits<Within, slot_places, slot_scores, block_q, block_kv>, tile_q,
                                    tile_kv> = words_of_known_tile(block_q, block_kv, tile_q, tile_kv);

}  // namespace jit
