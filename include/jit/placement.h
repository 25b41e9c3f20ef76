/// @file
/// Placements: which rank of a group computes which queries of a sequence, and which keys it needs of the others.
///
/// @code
/// const jit::PlacementWork work = jit::work_of_mask(jit::mask::causal(), 8192);
/// const jit::Placement balanced = jit::place(work, 4);
/// assert(balanced.imbalance() <= 1.02 && balanced.rows(0) == 2048);
/// const jit::Placement plain = jit::place(work, 4, {.mode = jit::PlacementMode::contiguous});
/// assert(plain.imbalance() > 1.7 && plain.remote_rows(0) == 0);
/// std::printf("%s", balanced.show().c_str());
///
/// // Which rows a rank has, and where they stand.
/// assert(plain.ranks() == 4 && plain.runs(1)[0] == (jit::IndexRange{2048, 4096}));
/// assert(plain.pieces(1)[0].position == 2048 && plain.digest() != balanced.digest());
/// assert(jit::to_string(plain.mode) == "contiguous");
///
/// // Of a table of blocks: what granules cost, and which keys they need.
/// const jit::PlacementWork blocks = jit::work_of_blocks(std::vector<std::uint8_t>{1, 0, 2, 1}, 256);
/// assert(blocks.granules() == 2 && blocks.needs_of(1)[0] == (jit::IndexRange{0, 2}));
/// @endcode
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jit/mask.h>

namespace jit {

/// Whole numbers from `begin` up to before `end`.
struct IndexRange {
  std::int64_t begin = 0;  ///< the first
  std::int64_t end = 0;    ///< behind the last

  bool operator==(const IndexRange&) const = default;  ///< member by member
};

/// The work of a sequence in granules: as many queries and keys as one rank computes and holds together. The last granule
/// may be shorter.
struct PlacementWork {
  std::int64_t seqlen = 0;  ///< queries, and as many keys
  int granule = 128;        ///< queries of a granule: a multiple of 16
  /// Scores that kernels compute for each granule of queries, tiles being whole.
  std::vector<double> costs = {};
  /// Granules of keys that granules of queries need: ascending, with gaps between.
  std::vector<IndexRange> needs = {};
  /// For each granule its first range in `needs`; at the end how many there are.
  std::vector<std::int64_t> first = {};

  /// Number of granules.
  std::int64_t granules() const { return static_cast<std::int64_t>(costs.size()); }
  /// The granules of keys that a granule of queries needs.
  std::span<const IndexRange> needs_of(std::int64_t granule_of_queries) const;
};

/// The work of a mask whose kept keys follow from positions, such as full, causal and window. `documents` holds the
/// lengths of packed sequences, each of which sees itself alone; empty: there is one. Thread safe. Throws Error
/// invalid_argument if a size is below 1, a granule is no multiple of 16, lengths do not sum to seqlen, or the mask
/// depends on tensors: use work_of_blocks then.
PlacementWork work_of_mask(const Mask& mask, std::int64_t seqlen, int granule = 128,
                           std::span<const std::int64_t> documents = {});

/// The work of any mask by the classes of its blocks, granule × granule each, row after row: 0 empty, 1 partial, 2 full.
/// A partial block costs `partial_weight` full ones. Thread safe. Throws Error invalid_argument for other classes or
/// sizes.
PlacementWork work_of_blocks(std::span<const std::uint8_t> classes, std::int64_t seqlen, int granule = 128,
                             double partial_weight = 1);

/// How granules are given to ranks.
enum class PlacementMode : std::uint8_t {
  balanced,    ///< contiguous, then swaps of equally many granules until the largest load is near the mean
  contiguous,  ///< each rank has one run
  zigzag,      ///< two runs each: one from the front, one from the back
  striped,     ///< runs of `stripe` granules, in turn
  chunks,      ///< as `chunks` says
};

/// The name of a mode: "balanced".
std::string_view to_string(PlacementMode mode);

/// Options of `place`.
struct PlacementOptions {
  PlacementMode mode = PlacementMode::balanced;  ///< how granules are given to ranks
  std::int64_t stripe = 1;                       ///< granules of a stripe
  /// With PlacementMode::chunks, for each rank its positions: ascending, from multiples of a granule up to multiples or
  /// the end, each position with one rank.
  std::vector<std::vector<IndexRange>> chunks = {};
  double tolerance = 1.02;  ///< with PlacementMode::balanced: the largest load in terms of the mean
};

/// Rows of a shard that stand at a regular distance: row + i is the query and key at
/// position + (i / run) · stride + i % run.
struct PositionPiece {
  std::int64_t row = 0;       ///< the first row in the shard; the piece ends where the next one begins
  std::int64_t position = 0;  ///< of this row in the sequence
  std::int64_t run = 0;       ///< rows whose positions follow each other
  std::int64_t stride = 0;    ///< from the position of a run to that of the next

  bool operator==(const PositionPiece&) const = default;  ///< member by member
};

/// Which rank computes which queries, and holds the keys at the same positions. A rank's shard has its rows by ascending
/// position. Equal inputs give equal placements on every machine.
struct Placement {
  PlacementWork work = {};                       ///< that it was made for
  PlacementMode mode = PlacementMode::balanced;  ///< how it was made
  std::vector<int> owners = {};                  ///< the rank of each granule
  std::vector<double> loads = {};                ///< of each rank: the sum of its costs
  std::vector<std::vector<IndexRange>> needs =
      {};  ///< of each rank: granules of keys for its queries, own included

  /// Number of ranks.
  int ranks() const { return static_cast<int>(loads.size()); }
  /// The largest load in terms of the mean, at least 1.
  double imbalance() const;
  /// Number of queries of a rank, which are its keys, too. Requires: 0 <= rank < ranks(), here and below.
  std::int64_t rows(int rank) const;
  /// Number of keys that a rank needs of other ranks. Bytes are these times those of a key and its value.
  std::int64_t remote_rows(int rank) const;
  /// The positions of a rank's shard: runs of rows, ascending.
  std::vector<IndexRange> runs(int rank) const;
  /// These positions in as few pieces as there are regular ones, as kernels read them.
  std::vector<PositionPiece> pieces(int rank) const;
  /// A picture: one line for each rank, of at most `columns` signs for the sequence: # own, + own and of others, - keys of
  /// others that it needs, and . those that it does not.
  std::string show(int columns = 64) const;
  /// 32 hexadecimal digits that differ if sizes, owners or needs do.
  std::string digest() const;
};

/// Gives the granules of some work to ranks. Ranks may be more than granules: some have empty shards then. Takes a
/// millisecond or two for 8,192 granules. Thread safe. Throws Error invalid_argument if there is no rank, an option is
/// out of range, or chunks leave out a position or have it twice.
Placement place(const PlacementWork& work, int ranks, const PlacementOptions& options = {});

}  // namespace jit
