#include <jit/placement.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "cache/digest.h"
#include "generator/placement/balance.h"
#include "generator/placement/granule_set.h"
#include "generator/placement/placement_error.h"

namespace jit {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

void add_joined(std::vector<IndexRange>& ranges, IndexRange range) {
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else
    ranges.push_back(range);
}

std::vector<int> owners_of_chunks(const PlacementWork& work,
                                  const std::vector<std::vector<IndexRange>>& chunks, int ranks) {
  if (static_cast<int>(chunks.size()) != ranks)
    refuse_placement("chunks", fmt::format("are of {} ranks, and there are {}", chunks.size(), ranks));
  std::vector<int> owners(index(work.granules()), -1);
  for (int rank = 0; rank < ranks; ++rank)
    for (const IndexRange& chunk : chunks[index(rank)]) {
      const bool ends_well = chunk.end % work.granule == 0 || chunk.end == work.seqlen;
      if (chunk.begin < 0 || chunk.begin >= chunk.end || chunk.end > work.seqlen ||
          chunk.begin % work.granule != 0 || !ends_well)
        refuse_placement("chunks",
                         fmt::format("rank {} has positions {} to {}; they must be multiples of the granule, "
                                     "{}, up to the end, {}",
                                     rank, chunk.begin, chunk.end, work.granule, work.seqlen));
      for (std::int64_t i = chunk.begin / work.granule; i * work.granule < chunk.end; ++i) {
        if (owners[index(i)] >= 0)
          refuse_placement("chunks", fmt::format("ranks {} and {} both have position {}", owners[index(i)],
                                                 rank, i * work.granule));
        owners[index(i)] = rank;
      }
    }
  const auto missing = std::find(owners.begin(), owners.end(), -1);
  if (missing != owners.end())
    refuse_placement("chunks",
                     fmt::format("no rank has position {}", (missing - owners.begin()) * work.granule));
  return owners;
}

std::vector<int> owners_of(const PlacementWork& work, int ranks, const PlacementOptions& options) {
  if (options.mode == PlacementMode::chunks) return owners_of_chunks(work, options.chunks, ranks);
  const std::int64_t count = work.granules(), all = ranks;
  std::vector<int> owners(index(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t owner = i * all / count;
    if (options.mode == PlacementMode::zigzag) {
      const std::int64_t chunk = i * 2 * all / count;
      owner = std::min(chunk, 2 * all - 1 - chunk);
    } else if (options.mode == PlacementMode::striped) {
      owner = i / options.stripe % all;
    }
    owners[index(i)] = static_cast<int>(owner);
  }
  if (options.mode == PlacementMode::balanced) balance(work, ranks, options.tolerance, owners);
  return owners;
}

std::vector<std::vector<IndexRange>> needs_of_ranks(const PlacementWork& work, const std::vector<int>& owners,
                                                    int ranks) {
  std::vector<std::vector<std::int64_t>> granules(index(ranks));
  for (std::int64_t i = work.granules(); i-- > 0;) granules[index(owners[index(i)])].push_back(i);
  std::vector<std::vector<IndexRange>> needs;
  GranuleSet needed(work.granules());
  for (const std::vector<std::int64_t>& of_rank : granules) {
    needed.clear();
    IndexRange
        known{};  // from the last granule on: needs of causal granules lie within those of the following one
    for (const std::int64_t granule : of_rank)
      for (const IndexRange& range : work.needs_of(granule)) {
        if (known.begin <= range.begin && range.end <= known.end) continue;
        needed.add(range);
        known = range;
      }
    needs.push_back(needed.ranges());
  }
  return needs;
}

}  // namespace

std::string_view to_string(PlacementMode mode) {
  switch (mode) {
    case PlacementMode::balanced:
      return "balanced";
    case PlacementMode::contiguous:
      return "contiguous";
    case PlacementMode::zigzag:
      return "zigzag";
    case PlacementMode::striped:
      return "striped";
    default:
      return "chunks";
  }
}

double Placement::imbalance() const {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  return sum > 0 ? *std::max_element(loads.begin(), loads.end()) * ranks() / sum : 1;
}

std::int64_t Placement::rows(int rank) const {
  std::int64_t sum = 0;
  for (const IndexRange& run : runs(rank)) sum += run.end - run.begin;
  return sum;
}

std::int64_t Placement::remote_rows(int rank) const {
  std::int64_t sum = 0;
  for (const IndexRange& range : needs[index(rank)])
    for (std::int64_t i = range.begin; i < range.end; ++i)
      if (owners[index(i)] != rank)
        sum += std::min<std::int64_t>(work.granule, work.seqlen - i * work.granule);
  return sum;
}

std::vector<IndexRange> Placement::runs(int rank) const {
  std::vector<IndexRange> runs;
  for (std::int64_t i = 0; i < work.granules(); ++i)
    if (owners[index(i)] == rank)
      add_joined(runs, {i * work.granule, std::min((i + 1) * work.granule, work.seqlen)});
  return runs;
}

std::vector<PositionPiece> Placement::pieces(int rank) const {
  std::vector<PositionPiece> pieces;
  std::int64_t row = 0;
  IndexRange last{};
  for (const IndexRange& run : runs(rank)) {
    const std::int64_t length = run.end - run.begin;
    PositionPiece* const piece = pieces.empty() ? nullptr : &pieces.back();
    // A run extends the last piece if it is no longer, that one's runs are whole, and the stride fits.
    const bool is_first = piece != nullptr && row - piece->row == piece->run;
    const bool fits = piece != nullptr && length <= piece->run && last.end - last.begin == piece->run &&
                      (is_first || run.begin - last.begin == piece->stride);
    if (fits)
      piece->stride = run.begin - last.begin;
    else
      pieces.push_back({.row = row, .position = run.begin, .run = length, .stride = length});
    row += length;
    last = run;
  }
  return pieces;
}

std::string Placement::digest() const {
  Digester digester;
  digester.add(static_cast<std::uint64_t>(work.seqlen)).add(static_cast<std::uint64_t>(work.granule));
  digester.add(static_cast<std::uint64_t>(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    for (const auto& ranges : {runs(rank), needs[index(rank)]}) {
      digester.add(static_cast<std::uint64_t>(ranges.size()));
      for (const IndexRange& range : ranges)
        digester.add(static_cast<std::uint64_t>(range.begin)).add(static_cast<std::uint64_t>(range.end));
    }
  }
  return digester.finish().hex();
}

Placement place(const PlacementWork& work, int ranks, const PlacementOptions& options) {
  constexpr int most_ranks = 1 << 16;
  if (ranks < 1 || ranks > most_ranks)
    refuse_placement("ranks", fmt::format("is {}; there must be from 1 to {}", ranks, most_ranks));
  if (work.granules() < 1 || work.first.size() != work.costs.size() + 1)
    refuse_placement("work", "has no granules; make it with work_of_mask or work_of_blocks");
  if (options.stripe < 1)
    refuse_placement("stripe", fmt::format("is {}; a stripe has at least one granule", options.stripe));
  if (!(options.tolerance >= 1))
    refuse_placement("tolerance", fmt::format("is {}; it must be at least 1", options.tolerance));
  Placement placement{.work = work, .mode = options.mode, .owners = owners_of(work, ranks, options)};
  placement.loads.resize(index(ranks));
  for (std::int64_t i = 0; i < work.granules(); ++i)
    placement.loads[index(placement.owners[index(i)])] += work.costs[index(i)];
  placement.needs = needs_of_ranks(work, placement.owners, ranks);
  return placement;
}

}  // namespace jit
