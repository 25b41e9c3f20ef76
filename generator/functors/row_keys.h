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

}  // namespace jit
