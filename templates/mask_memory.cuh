// What the key loader remembers of a mask from one tile of queries to the next. Masks that are arithmetic
// leave nothing to remember; those that read tensors would read the same again and again.
#pragma once

#include "functor.cuh"
#include "masks.cuh"
#include "prelude.cuh"

namespace jit {

/// By one warp. `key_range` is as the mask's own, and comes first for a tile of queries; `classify` is then
/// for these queries or some of them.
template <class Mask>
struct MaskMemory {
  __device__ __forceinline__ KeyRange key_range(const Mask& mask, int, int q_begin, int q_end) {
    return mask.key_range(q_begin, q_end);
  }
  __device__ __forceinline__ TileClass classify(const Mask& mask, const ScoreTile& tile) const {
    return mask.classify(tile);
  }
};

/// The keys of a batch entry are cut into a piece for each lane, which holds the range of its ids. Only the
/// first and the last piece that a tile of queries meets are read again.
template <int slot_q, int slot_kv>
class MaskMemory<DocumentMask<slot_q, slot_kv>> {
  using Mask = DocumentMask<slot_q, slot_kv>;

 public:
  __device__ __forceinline__ KeyRange key_range(const Mask& mask, int batch, int q_begin, int q_end) {
    if (q_begin >= q_end || mask.seqlen_kv == 0) return {0, 0};
    const int piece = ((mask.seqlen_kv - 1) / (warp_size * ids_of_pass) + 1) * ids_of_pass;
    if (batch != batch_) {
      batch_ = batch;
      read_pieces(mask, piece);
    }
    queries_ = Mask::id_range(mask.ids_q, q_begin, q_end);
    const bool meets =
        lane_id() * piece < mask.seqlen_kv && ids_.low <= queries_.high && queries_.low <= ids_.high;
    const unsigned pieces = __ballot_sync(full_warp, meets);
    if (pieces == 0) return {0, 0};
    const auto keys_of = [&](int lane) {
      return KeyRange{lane * piece, minimum(lane * piece + piece, mask.seqlen_kv)};
    };
    // Ids may leave gaps: a piece around the queries' ids may hold none of them, and then ends up outside.
    const KeyRange first = keys_of(__ffs(pieces) - 1), last = keys_of(warp_size - 1 - __clz(pieces));
    const KeyRange range = {mask.matching(queries_, first.begin, first.end).begin,
                            mask.matching(queries_, last.begin, last.end).end};
    return range.begin < range.end ? range : KeyRange{0, 0};
  }

  /// The ids of fewer queries lie in the same range.
  __device__ __forceinline__ TileClass classify(const Mask& mask, const ScoreTile& tile) const {
    return Mask::classify(queries_, Mask::id_range(mask.ids_kv, tile.k_begin, tile.k_end));
  }

 private:
  static constexpr int loads = 8;  // in flight
  static constexpr int ids_of_pass = loads * warp_size;

  __device__ __forceinline__ void read_pieces(const Mask& mask, int piece) {
#pragma unroll 1
    for (int lane = 0; lane * piece < mask.seqlen_kv; ++lane) {
      const int begin = lane * piece;
      const typename Mask::IdRange ids =
          Mask::template id_range<loads>(mask.ids_kv, begin, minimum(begin + piece, mask.seqlen_kv));
      if (lane == lane_id()) ids_ = ids;
    }
  }

  int batch_ = -1;
  typename Mask::IdRange ids_{0, -1};      // of this lane's piece
  typename Mask::IdRange queries_{0, -1};  // of the tile of queries
};

template <class A, class B>
struct MaskMemory<AndMask<A, B>> {
  MaskMemory<A> a;
  MaskMemory<B> b;
  __device__ __forceinline__ KeyRange key_range(const AndMask<A, B>& mask, int batch, int q_begin,
                                                int q_end) {
    return common_keys(a.key_range(mask.a, batch, q_begin, q_end),
                       b.key_range(mask.b, batch, q_begin, q_end));
  }
  __device__ __forceinline__ TileClass classify(const AndMask<A, B>& mask, const ScoreTile& tile) const {
    return class_of_both(a.classify(mask.a, tile), b.classify(mask.b, tile));
  }
};

template <class A, class B>
struct MaskMemory<OrMask<A, B>> {
  MaskMemory<A> a;
  MaskMemory<B> b;
  __device__ __forceinline__ KeyRange key_range(const OrMask<A, B>& mask, int batch, int q_begin, int q_end) {
    return spanned_keys(a.key_range(mask.a, batch, q_begin, q_end),
                        b.key_range(mask.b, batch, q_begin, q_end));
  }
  __device__ __forceinline__ TileClass classify(const OrMask<A, B>& mask, const ScoreTile& tile) const {
    return class_of_either(a.classify(mask.a, tile), b.classify(mask.b, tile));
  }
};

/// A mask together with what is remembered of it: itself a mask, for one tile of queries.
template <class Mask>
struct RememberedMask {
  const Mask& mask;
  MaskMemory<Mask>& memory;
  int batch;
  __device__ __forceinline__ KeyRange key_range(int q_begin, int q_end) const {
    return memory.key_range(mask, batch, q_begin, q_end);
  }
  __device__ __forceinline__ TileClass classify(const ScoreTile& tile) const {
    return memory.classify(mask, tile);
  }
};

}  // namespace jit
