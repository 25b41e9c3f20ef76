#include "generator/operations/key_exchange/plan.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/tensors/tensor_checks.h"
#include "templates/key_exchange/params.cuh"

namespace jit {
namespace {

constexpr std::int64_t buffer_alignment = 256;
// Granularity of copies, in keys.
constexpr std::int64_t exchange_granule = arrival_granule;
// Each copy of a source is twice as long as the previous one, up to this multiple of the first: all take
// equal host time.
constexpr std::int64_t longest_chunk = 8;

std::int64_t rounded_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

void check(const KeyExchangeSpec& spec, const Placement& placement) {
  if (spec.dtype != DType::bf16 && spec.dtype != DType::fp16)
    refuse("dtype", fmt::format("is {}; it must be bf16 or fp16", to_string(spec.dtype)));
  const std::pair<const char*, std::int64_t> sizes[] = {{"batch", spec.batch},
                                                        {"heads_kv", spec.heads_kv},
                                                        {"head_dim", spec.head_dim},
                                                        {"head_dim_v", spec.head_dim_v},
                                                        {"chunk_bytes", spec.chunk_bytes}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) refuse(name, fmt::format("is {}; it must be at least 1", size));
  }
  for (const auto& [name, size] : {std::pair{"head_dim", spec.head_dim}, {"head_dim_v", spec.head_dim_v}}) {
    if (size % 8 != 0) refuse(name, fmt::format("is {}; it must be a multiple of 8", size));
  }
  if (placement.work.granule % exchange_granule != 0)
    refuse("placement", fmt::format("has granules of {}; they must be multiples of {}",
                                    placement.work.granule, exchange_granule));
  if (placement.ranks() > max_key_exchange_ranks)
    refuse("placement", fmt::format("is of {} ranks, which must be at most {}", placement.ranks(),
                                    max_key_exchange_ranks));
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    if (placement.rows(rank) == 0)
      refuse("placement", fmt::format("gives rank {} no rows; each rank must have some", rank));
  }
}

// Keys of a source's first copy.
std::int64_t chunk_keys(const KeyExchangeSpec& spec) {
  const std::int64_t each =
      spec.batch * spec.heads_kv * (spec.head_dim + spec.head_dim_v) * size_of(spec.dtype);
  return std::max<std::int64_t>(1, spec.chunk_bytes / each / exchange_granule) * exchange_granule;
}

// Ranges of keys that `rank` needs from `source`, ascending, of at most a copy's size each.
std::vector<IndexRange> chunks_between(const KeyExchangeSpec& spec, const Placement& placement, int rank,
                                       int source) {
  std::vector<IndexRange> chunks;
  const std::int64_t granule = placement.work.granule, first = chunk_keys(spec);
  std::int64_t most = first;
  for (const IndexRange& range : placement.needs[static_cast<std::size_t>(rank)]) {
    for (std::int64_t g = range.begin; g < range.end; ++g) {
      if (placement.owners[static_cast<std::size_t>(g)] != source) continue;
      const std::int64_t end = std::min((g + 1) * granule, placement.work.seqlen);
      for (std::int64_t begin = g * granule; begin < end;) {
        const std::int64_t last = chunks.empty() ? 0 : chunks.back().end - chunks.back().begin;
        if (last == 0 || chunks.back().end != begin || last >= most) {
          if (last >= most) most = std::min(2 * most, longest_chunk * first);
          chunks.push_back({begin, begin});
        }
        chunks.back().end = std::min(end, chunks.back().begin + most);
        begin = chunks.back().end;
      }
    }
  }
  return chunks;
}

}  // namespace

std::vector<KeyCopy> copies_to(const KeyExchangeSpec& spec, const Placement& placement, int rank) {
  const int ranks = placement.ranks();
  std::vector<KeyCopy> copies;
  std::vector<std::vector<IndexRange>> by_distance;
  for (int distance = 1; distance < ranks; ++distance) {
    const int source = (rank - distance + ranks) % ranks;
    copies.push_back({source, {}});
    by_distance.push_back(chunks_between(spec, placement, rank, source));
  }
  for (std::size_t round = 0, left = 1; left > 0; ++round) {
    left = 0;
    for (int distance = 1; distance < ranks; ++distance) {
      const std::vector<IndexRange>& chunks = by_distance[static_cast<std::size_t>(distance) - 1];
      if (round >= chunks.size()) continue;
      copies.push_back({(rank - distance + ranks) % ranks, chunks[round]});
      left += chunks.size() - round - 1;
    }
  }
  return copies;
}

std::vector<SentCopy> copies_from(const KeyExchangeSpec& spec, const Placement& placement, int rank) {
  const int ranks = placement.ranks();
  std::vector<std::vector<SentCopy>> by_distance;
  for (int distance = 1; distance < ranks; ++distance) {
    const int target = (rank + distance) % ranks;
    const std::vector<KeyCopy> copies = copies_to(spec, placement, target);
    std::vector<SentCopy>& sent = by_distance.emplace_back();
    for (std::size_t word = 0; word < copies.size(); ++word) {
      if (copies[word].source == rank) sent.push_back({target, static_cast<int>(word), copies[word].keys});
    }
  }
  std::vector<SentCopy> all;
  for (std::size_t round = 0, left = 1; left > 0; ++round) {
    left = 0;
    for (const std::vector<SentCopy>& sent : by_distance) {
      if (round >= sent.size()) continue;
      all.push_back(sent[round]);
      left += sent.size() - round - 1;
    }
  }
  return all;
}

std::vector<ArrivalPiece> pieces_of(const Placement& placement, int rank,
                                    const std::vector<KeyCopy>& copies) {
  std::vector<ArrivalPiece> pieces;
  std::int64_t row = 0;
  const auto add = [&](const IndexRange& keys, std::size_t words) {
    pieces.push_back({static_cast<int>(keys.begin), static_cast<int>(keys.end), static_cast<int>(words),
                      static_cast<int>(words == 0 ? row : 0)});
  };
  for (const IndexRange& run : placement.runs(rank)) {
    add(run, 0);
    row += run.end - run.begin;
  }
  for (std::size_t word = 0; word < copies.size(); ++word) {
    if (copies[word].keys != IndexRange{}) add(copies[word].keys, word + 1);
  }
  return pieces;
}

std::vector<ArrivalGranule> granules_of(const Placement& placement, const std::vector<ArrivalPiece>& pieces) {
  std::vector<ArrivalGranule> granules(
      static_cast<std::size_t>(rounded_up(placement.work.seqlen, exchange_granule) / exchange_granule));
  std::size_t visited = 0;
  for (const ArrivalPiece& piece : pieces) {
    for (std::int64_t begin = piece.begin; begin < piece.end; begin += exchange_granule) {
      const std::int64_t granule = begin / exchange_granule;
      granules[static_cast<std::size_t>(granule)].words = piece.words;
      granules[visited++].visited = static_cast<int>(granule);
    }
  }
  return granules;
}

KeyExchangeLayout layout_of(const KeyExchangeSpec& spec, const Placement& placement) {
  check(spec, placement);
  KeyExchangeLayout layout;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    const std::vector<KeyCopy> copies = copies_to(spec, placement, rank);
    const auto pieces = static_cast<std::int64_t>(pieces_of(placement, rank, copies).size());
    const std::int64_t granules = rounded_up(placement.work.seqlen, exchange_granule) / exchange_granule;
    layout.table_rows =
        std::max(layout.table_rows,
                 granules_row(pieces, static_cast<std::int64_t>(copies.size())) + (granules + 1) / 2);
  }
  layout.table_bytes = rounded_up(layout.table_rows * 16, buffer_alignment);
  layout.key_bytes = spec.heads_kv * spec.head_dim * size_of(spec.dtype);
  layout.value_bytes = spec.heads_kv * spec.head_dim_v * size_of(spec.dtype);
  layout.rows = spec.batch * placement.work.seqlen;
  return layout;
}

std::size_t key_exchange_bytes(const KeyExchangeSpec& spec, const Placement& placement) {
  return static_cast<std::size_t>(layout_of(spec, placement).bytes());
}

}  // namespace jit
