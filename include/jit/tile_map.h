/// @file
/// Which tiles of scores a mask, and a score that is −inf, leave: numbers, and a picture.
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

/// What of which tiles is asked.
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
  std::vector<std::string> notes;  ///< texts that are asked score by score, each with the reason

  /// The class of one tile. Requires: row and column are within the map.
  TileClass at(std::int64_t row, std::int64_t column) const {
    return classes[static_cast<std::size_t>(row * columns + column)];
  }
  /// How many tiles have a class.
  std::int64_t count(TileClass kind) const;
  /// The share of tiles that are computed, from 0 to 1: those that are not empty.
  double computed_share() const;
};

/// The classes that kernels give to tiles: of built-in masks those that their scores have, of texts what bounds of q
/// and k tell (docs/masks.md), of combinations what follows from their parts. What the text of `spec.score` is known to
/// make −inf is dropped as a mask would drop it; kernels need no mask code for a tile that is partial for this alone.
/// The host cannot run `classify` bodies: tiles of such texts are partial. `tensors` has what the mask, and such a
/// text, reads. Takes some seconds for 8,192 queries and keys. Throws Error invalid_argument for sizes below 1, a place
/// outside of the shape, more than 2^28 scores or 2^22 tiles, and when a tensor is missing.
TileMap tile_map(const AttentionSpec& spec, const AttentionShape& shape, const TilePlace& place,
                 const std::map<std::string, HostTensor, std::less<>>& tensors = {});

/// A picture of it: queries from top to bottom, keys from left to right, with counts below. SVG 1.1.
std::string to_svg(const TileMap& map, std::string_view title);

}  // namespace jit
