// The table of keys that come while a kernel computes: the tensor key_arrivals, int32 (rows, 4), is a header, the
// pieces of the keys in the order in which queries visit them, and a word for each copy. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The first rows. All 0: there are no pieces, and all keys are there.
struct ArrivalHeader {
  unsigned epoch;              ///< of the call, which the words of copies that have come hold
  int pieces;                  ///< rows behind the header
  int words;                   ///< of a call, of both kinds below
  unsigned half;               ///< that the call uses, counted from 1; 0: there was no call
  unsigned long long timeout;  ///< in nanoseconds
  unsigned* fault;      ///< a word, perhaps of the host, to which `broken` is written, too; may be null
  unsigned broken;      ///< the epoch of the first call whose wait timed out; 0: none
  int fault_word;       ///< which word that call had waited for
  unsigned fault_seen;  ///< what it held
  int peers;            ///< other ranks
  int granules_at;      ///< the row of the first ArrivalGranule
  int own_granules;     ///< of the rank's shard, which come first
  int granules;         ///< that the rank needs
  int unused;
};
inline constexpr int arrival_header_rows = sizeof(ArrivalHeader) / 16;
static_assert(sizeof(ArrivalHeader) == 64);

/// Keys [begin, end). They are there once the first `words` words hold the epoch. Numbers of words do not descend. Keys of no
/// piece are never written.
struct ArrivalPiece {
  int begin, end, words;
  int row;  ///< of the rank's shard, that stands at `begin`, where the keys are its own
};

/// Keys in granules, each of which lies in one piece, as gradients visit them.
inline constexpr int arrival_granule = 128;
/// The i-th: `words` are those of the piece in which the sequence's i-th granule lies, `visited` is the granule that is visited as
/// the i-th.
struct ArrivalGranule {
  int words, visited;
};

/// Which of the words behind the pieces is the i-th of a call: first one of each peer, which has begun the call, of calls of even
/// epochs, then of odd ones; then one of each copy, of calls that use the first half of buffers, then of the other ones.
JIT_HOST_DEVICE constexpr int arrival_word(int i, int words, int peers, unsigned epoch, unsigned half) {
  return i < peers ? static_cast<int>(epoch % 2) * peers + i
                   : peers + static_cast<int>(half) * (words - peers) + i;
}

/// Whether keys come while the kernel of a Config computes.
template <class Config>
concept has_arrivals = requires {
  typename Config::Arrivals;
};

}  // namespace jit
