#include <jit/tile_map.h>

#include <algorithm>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/functors/tile_classes.h"
#include "generator/functors/unfollowed.h"
#include "generator/problem/arguments.h"

namespace jit {
namespace {

void check(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::invalid_argument, "validate", name,
              fmt::format("{} = {}; it must be from {} to {}", name, value, least, most));
}

}  // namespace

std::int64_t TileMap::count(TileClass kind) const { return std::count(classes.begin(), classes.end(), kind); }

double TileMap::computed_share() const {
  return 1 - static_cast<double>(count(TileClass::empty)) / static_cast<double>(classes.size());
}

TileMap tile_map(const AttentionSpec& spec, const AttentionShape& shape, const TilePlace& place,
                 const std::map<std::string, HostTensor, std::less<>>& tensors) {
  validate(spec);
  // Built-in masks are evaluated score by score.
  constexpr std::int64_t most_scores = std::int64_t{1} << 31;
  constexpr std::int64_t most_tiles = 1 << 22, most = 1 << 24;
  check("batch", shape.batch, 1, most);
  check("heads_q", shape.heads_q, 1, most);
  check("seqlen_q", shape.seqlen_q, 1, most);
  check("seqlen_kv", shape.seqlen_kv, 1, most);
  if (shape.seqlen_kv > most_scores / shape.seqlen_q) {
    throw Error(
        ErrorCode::invalid_argument, "validate", "seqlen_kv",
        fmt::format("seqlen_q = {} times seqlen_kv = {} is more than the {} scores that a map is made "
                    "of; ask for fewer queries or keys",
                    shape.seqlen_q, shape.seqlen_kv, most_scores));
  }
  check("place.batch", place.batch, 0, shape.batch - 1);
  check("place.head", place.head, 0, shape.heads_q - 1);
  check("place.tile_q", place.tile_q, 1, most);
  check("place.tile_kv", place.tile_kv, 1, most);
  TileMap map{.shape = shape,
              .place = place,
              .rows = (shape.seqlen_q + place.tile_q - 1) / place.tile_q,
              .columns = (shape.seqlen_kv + place.tile_kv - 1) / place.tile_kv,
              .classes = {},
              .notes = unfollowed_texts(spec)};
  check("tiles", map.rows * map.columns, 1, most_tiles);
  const Extents sizes = extents_of(spec, ProblemShape{.batch = shape.batch,
                                                      .heads_q = shape.heads_q,
                                                      .seqlen_q = shape.seqlen_q,
                                                      .seqlen_kv = shape.seqlen_kv});
  const ClassOfTile classify =
      class_of_tiles(spec, {.sizes = sizes, .tensors = tensors}, place.batch, place.head);
  for (std::int64_t q = 0; q < shape.seqlen_q; q += place.tile_q)
    for (std::int64_t k = 0; k < shape.seqlen_kv; k += place.tile_kv)
      map.classes.push_back(classify(
          {q, std::min(q + place.tile_q, shape.seqlen_q), k, std::min(k + place.tile_kv, shape.seqlen_kv)}));
  return map;
}

}  // namespace jit
