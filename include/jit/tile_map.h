/// @file
/// The tiles of scores that a mask, and a score of −inf, keep: as numbers, and as a picture.
///
/// @code
/// const jit::AttentionSpec spec{.mask = jit::mask::causal()};
/// const jit::TileMap map = jit::tile_map(spec, {.seqlen_q = 512, .seqlen_kv = 512}, {.tile_q = 128, .tile_kv = 128});
/// assert(map.at(0, 1) == jit::TileClass::empty && map.at(1, 0) == jit::TileClass::full);
/// assert(map.count(jit::TileClass::partial) == 4 && map.computed_share() == 10.0 / 16);
/// const std::string picture = jit::to_svg(map, "causal");
/// @endcode
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <jit/host_tensor.h>
#include <jit/options.h>
#include <jit/spec.h>
#include <jit/tuning.h>

namespace jit {

/// The tiles to classify.
struct TilePlace {
  std::int64_t batch = 0;  ///< batch entry
  std::int64_t head = 0;   ///< query head
  int tile_q = 128;        ///< queries of a tile
  int tile_kv = 128;       ///< keys of a tile
};

/// The tiles of one batch entry and query head.
struct TileMap {
  AttentionShape shape;            ///< sizes of the call
  TilePlace place;                 ///< which tiles these are
  std::int64_t rows = 0;           ///< tiles of queries
  std::int64_t columns = 0;        ///< tiles of keys
  std::vector<TileClass> classes;  ///< row after row
  std::vector<std::string> notes;  ///< one sentence for each text that has to be evaluated for every score

  /// The class of one tile. Requires: row and column are within the map.
  TileClass at(std::int64_t row, std::int64_t column) const {
    return classes[static_cast<std::size_t>(row * columns + column)];
  }
  /// Number of tiles of a class.
  std::int64_t count(TileClass kind) const;
  /// The fraction of tiles that are not empty, from 0 to 1.
  double computed_share() const;
};

/// Classifies tiles as kernels do: built-in masks by their scores, texts by bounds of q and k (docs/masks.md),
/// combinations by their parts. A score whose text provably returns −inf drops keys as a mask does. Tiles of texts with
/// a `classify` body, which the host cannot run, are partial. `tensors` has the tensors that mask and score read. 8,192
/// queries and keys take some seconds. Thread safe. Throws Error invalid_argument for sizes below 1, a place outside
/// the shape, more than 2^28 scores or 2^22 tiles, and for a missing tensor.
TileMap tile_map(const AttentionSpec& spec, const AttentionShape& shape, const TilePlace& place,
                 const std::map<std::string, HostTensor, std::less<>>& tensors = {});

/// A picture of the map as SVG 1.1: queries from top to bottom, keys from left to right, with counts below.
std::string to_svg(const TileMap& map, std::string_view title);

}  // namespace jit
