// The keys that one tile of queries after another may see, found by one warp that goes through many of them.
#pragma once

#include "functor.cuh"
#include "masks.cuh"
#include "prelude.cuh"

namespace jit {

/// `of(mask, batch, q_begin, q_end)` is a range with all keys that these queries see, as the mask's key_range
/// is. Of masks that must read tensors to find one, it keeps what can be used again within a batch entry.
template <class Mask>
struct KeyRanges {
  __device__ __forceinline__ KeyRange of(const Mask& mask, int, int q_begin, int q_end) {
    return mask.key_range(q_begin, q_end);
  }
};

/// The keys are cut into a piece for each lane, which holds the range of its ids. Only the first and the last
/// piece that a tile of queries meets are read again.
template <int slot_q, int slot_kv>
class KeyRanges<DocumentMask<slot_q, slot_kv>> {
  using Mask = DocumentMask<slot_q, slot_kv>;

 public:
  __device__ __forceinline__ KeyRange of(const Mask& mask, int batch, int q_begin, int q_end) {
    if (q_begin >= q_end || mask.seqlen_kv == 0) return {0, 0};
    const int piece = ((mask.seqlen_kv - 1) / (warp_size * ids_of_pass) + 1) * ids_of_pass;
    if (batch != batch_) {
      batch_ = batch;
      read_pieces(mask, piece);
    }
    const typename Mask::IdRange q = Mask::id_range(mask.ids_q, q_begin, q_end);
    const bool meets = lane_id() * piece < mask.seqlen_kv && ids_.low <= q.high && q.low <= ids_.high;
    const unsigned pieces = __ballot_sync(full_warp, meets);
    if (pieces == 0) return {0, 0};
    const auto keys_of = [&](int lane) {
      return KeyRange{lane * piece, minimum(lane * piece + piece, mask.seqlen_kv)};
    };
    // Ids may leave gaps: a piece around the queries' ids may hold none of them, and then ends up outside.
    const KeyRange first = keys_of(__ffs(pieces) - 1), last = keys_of(warp_size - 1 - __clz(pieces));
    const KeyRange range = {mask.matching(q, first.begin, first.end).begin,
                            mask.matching(q, last.begin, last.end).end};
    return range.begin < range.end ? range : KeyRange{0, 0};
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
  typename Mask::IdRange ids_{0, -1};  // of this lane's piece
};

template <class A, class B>
struct KeyRanges<AndMask<A, B>> {
  KeyRanges<A> a;
  KeyRanges<B> b;
  __device__ __forceinline__ KeyRange of(const AndMask<A, B>& mask, int batch, int q_begin, int q_end) {
    return common_keys(a.of(mask.a, batch, q_begin, q_end), b.of(mask.b, batch, q_begin, q_end));
  }
};

template <class A, class B>
struct KeyRanges<OrMask<A, B>> {
  KeyRanges<A> a;
  KeyRanges<B> b;
  __device__ __forceinline__ KeyRange of(const OrMask<A, B>& mask, int batch, int q_begin, int q_end) {
    return spanned_keys(a.of(mask.a, batch, q_begin, q_end), b.of(mask.b, batch, q_begin, q_end));
  }
};

}  // namespace jit
