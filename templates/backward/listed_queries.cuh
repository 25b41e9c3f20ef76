// Tiles of queries that lists of keys have put together: their rows are the heads of queries from anywhere in a sequence, so
// that each has a position of its own, which comes with the tile.
#pragma once

namespace jit {

/// Whether a one-pass kernel has such tiles: Config::QueryLists are the lists then.
template <class Config>
inline constexpr bool has_listed_queries = requires {
  typename Config::QueryLists;
};

/// The position of a row that is no query's.
inline constexpr int no_query = -1;

}  // namespace jit
