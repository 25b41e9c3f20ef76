// The share of scores that a mask, or a score of −inf, keeps.
#include <jit/workload.h>

#include <algorithm>

#include "generator/functors/score_mask.h"
#include "generator/functors/tile_classes.h"
#include "generator/problem/arguments.h"

namespace jit {
namespace {

// Limits that bound the time to a fraction of a second.
constexpr std::int64_t max_pairs = 1 << 24, min_queries = 8;
constexpr std::int64_t max_classes = 1 << 19, max_text_queries = 256, max_text_places = 4;

/// Number `i` of `count` evenly spaced numbers below `end`.
std::int64_t spaced(std::int64_t i, std::int64_t count, std::int64_t end) {
  return (2 * i + 1) * end / (2 * count);
}

// The density of a mask that the host can evaluate, from evenly spaced queries.
double exact_share(const AttentionSpec& spec, const AttentionShape& shape, const HostProblem& problem) {
  // Without tensors, batch entries and heads have equal densities.
  const bool reads_tensors = !spec.mask.tensors().empty();
  const std::int64_t batches = reads_tensors ? shape.batch : 1;
  const std::int64_t pairs_of_query = std::max<std::int64_t>(1, batches * shape.seqlen_kv);  // of one head
  const std::int64_t most_heads = std::max<std::int64_t>(1, max_pairs / (pairs_of_query * min_queries));
  const std::int64_t heads = reads_tensors ? std::min<std::int64_t>(most_heads, shape.heads_q) : 1;
  const std::int64_t queries = std::min(
      shape.seqlen_q, std::max(min_queries, max_pairs / (pairs_of_query * std::max<std::int64_t>(1, heads))));
  const HostKeep keep = host_keep(spec.mask, problem);
  std::int64_t kept = 0;
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t i = 0; i < heads; ++i)
      for (std::int64_t j = 0; j < queries; ++j) {
        Place place{
            .b = b, .h = spaced(i, heads, shape.heads_q), .q = spaced(j, queries, shape.seqlen_q), .k = 0};
        for (place.k = 0; place.k < shape.seqlen_kv; ++place.k) kept += keep(place) ? 1 : 0;
      }
  return static_cast<double>(kept) /
         (static_cast<double>(batches * heads * queries) * static_cast<double>(shape.seqlen_kv));
}

/// Counts kept scores by bisecting ranges of keys until they are full or empty.
class Halving {
 public:
  /// Nothing if a single score is undecided, or the limit of evaluations is exceeded.
  std::optional<std::int64_t> kept(const ClassOfTile& class_of, const TileBounds& row) {
    if (++asked_ > max_classes) return {};
    const TileClass kind = class_of(row);
    const std::int64_t keys = row.k_end - row.k_begin;
    if (kind == TileClass::full) return keys;
    if (kind == TileClass::empty) return 0;
    if (keys == 1) return {};
    TileBounds first = row, second = row;
    first.k_end = second.k_begin = row.k_begin + keys / 2;
    const std::optional<std::int64_t> a = kept(class_of, first);
    if (!a) return {};
    const std::optional<std::int64_t> b = kept(class_of, second);
    if (!b) return {};
    return *a + *b;
  }

 private:
  std::int64_t asked_ = 0;
};

// The density of a mask with text, from some batch entries, heads and queries.
std::optional<double> followed_share(const AttentionSpec& spec, const AttentionShape& shape,
                                     const HostProblem& problem) {
  const std::int64_t batches = std::min(shape.batch, max_text_places);
  const std::int64_t heads = std::min(shape.heads_q, max_text_places);
  const std::int64_t queries =
      std::min({shape.seqlen_q, max_text_queries,
                std::max(min_queries, max_pairs / (batches * heads * shape.seqlen_kv))});
  Halving halving;
  std::int64_t kept = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const ClassOfTile class_of =
          class_of_tiles(spec, problem, spaced(b, batches, shape.batch), spaced(h, heads, shape.heads_q));
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t q = spaced(i, queries, shape.seqlen_q);
        const std::optional<std::int64_t> of_row = halving.kept(class_of, {q, q + 1, 0, shape.seqlen_kv});
        if (!of_row) return {};
        kept += *of_row;
      }
    }
  }
  return static_cast<double>(kept) /
         (static_cast<double>(batches * heads * queries) * static_cast<double>(shape.seqlen_kv));
}

}  // namespace

std::optional<double> mask_density(const AttentionSpec& spec, const AttentionShape& shape,
                                   const std::map<std::string, HostTensor, std::less<>>& tensors) {
  if (!drops_keys(spec)) return 1.0;
  const HostProblem problem{.sizes = extents_of(spec, ProblemShape{.batch = shape.batch,
                                                                   .heads_q = shape.heads_q,
                                                                   .seqlen_q = shape.seqlen_q,
                                                                   .seqlen_kv = shape.seqlen_kv}),
                            .tensors = tensors};
  if (has_host_meaning(spec.mask) && score_mask(spec.score) == nullptr)
    return exact_share(spec, shape, problem);
  return followed_share(spec, shape, problem);
}

}  // namespace jit
