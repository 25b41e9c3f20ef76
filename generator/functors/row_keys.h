// Between which keys those lie that a query sees, as far as the host can tell without tensors.
#pragma once

#include <cstdint>
#include <optional>

#include <jit/mask.h>

#include "generator/functors/functor_table.h"

namespace jit {

/// The keys of query q in a problem of these sizes: a range that holds every key that it sees in any batch
/// entry and head, cut off at the ends of the sequence; it is empty where none is seen. Nothing where the
/// mask may keep any key, as one does that only tensors decide, and a text that cannot be followed.
std::optional<KeyRange> row_keys(const Mask& mask, const Extents& sizes, std::int64_t q);

/// The keys of queries that follow each other, which move alike: query i of them sees those from
/// keys.begin + i · begin_step to before keys.end + i · end_step. All of them see some, or none does.
struct KeysOfRows {
  KeyRange keys;
  std::int64_t begin_step = 0, end_step = 0;
  std::int64_t rows = 1;  ///< so many; more of them may move alike, too, and there may be fewer queries
};

/// row_keys of query q and of those behind it for which the same rule holds: one call tells of all rows between two
/// bends of a mask. Texts are followed row by row.
std::optional<KeysOfRows> row_keys_from(const Mask& mask, const Extents& sizes, std::int64_t q);

}  // namespace jit
