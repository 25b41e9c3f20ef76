// The table of keys that arrive while a kernel runs. The tensor key_arrivals, int32 (rows, 4), holds a header, the
// pieces of keys in the order of visits, and a word for each copy. Host and NVRTC compile this file.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The first rows of the table. All 0: there are no pieces, and all keys are in memory.
struct ArrivalHeader {
  unsigned epoch;              ///< epoch of the call; words of finished copies hold it
  int pieces;                  ///< rows behind the header
  int words;                   ///< words per call, of both kinds (arrival_word)
  unsigned half;               ///< half of the buffers that the call uses, 1 or 2; 0: there was no call
  unsigned long long timeout;  ///< in nanoseconds
  unsigned* fault;      ///< a word, possibly in host memory, to which `broken` is also written; may be null
  unsigned broken;      ///< the epoch of the first call whose wait timed out; 0: none
  int fault_word;       ///< index of the word that this wait needed
  unsigned fault_seen;  ///< value of that word
  int peers;            ///< other ranks
  int granules_at;      ///< the row of the first ArrivalGranule
  int own_granules;     ///< granules of the rank's shard, which come first
  int granules;         ///< granules that the rank needs
  int unused;
};
inline constexpr int arrival_header_rows = sizeof(ArrivalHeader) / 16;
static_assert(sizeof(ArrivalHeader) == 64);

/// Keys [begin, end), which have arrived once the first `words` words hold the epoch. `words` does not decrease from
/// piece to piece. Keys outside of all pieces are never written.
struct ArrivalPiece {
  int begin, end, words;
  int row;  ///< row of the rank's shard of key `begin`, if the keys are the rank's own
};

/// Keys per granule, the unit in which gradients visit keys; each granule lies in one piece.
inline constexpr int arrival_granule = 128;
/// Entry i: `words` of the piece that contains the sequence's i-th granule, and the granule that is visited i-th
/// (`visited`).
struct ArrivalGranule {
  int words, visited;
};

/// The index of a call's i-th word. The first words, one per peer, say that it has begun the call: one set for even
/// epochs, one for odd ones. The others, one per copy, have one set for each half of the buffers.
JIT_HOST_DEVICE constexpr int arrival_word(int i, int words, int peers, unsigned epoch, unsigned half) {
  return i < peers ? static_cast<int>(epoch % 2) * peers + i
                   : peers + static_cast<int>(half) * (words - peers) + i;
}

/// Whether keys arrive while the kernel of a Config runs.
template <class Config>
concept has_arrivals = requires {
  typename Config::Arrivals;
};

}  // namespace jit
