// Ranges of visible keys of a query, as far as the host knows them without tensors.
#pragma once

#include <cstdint>
#include <optional>

#include <jit/mask.h>

#include "generator/functors/functor_table.h"

namespace jit {

/// A range that contains all visible keys of query q, in any batch entry and head, for a problem of these
/// sizes; clipped to the sequence, empty if none is visible. Nothing if the mask may keep any key, as masks
/// by tensors and unanalyzed texts may.
std::optional<KeyRange> row_keys(const Mask& mask, const Extents& sizes, std::int64_t q);

/// Visible keys of consecutive queries whose ranges are linear: query i sees keys from keys.begin + i ·
/// begin_step to before keys.end + i · end_step. All ranges are nonempty, or all are empty.
struct KeysOfRows {
  KeyRange keys;
  std::int64_t begin_step = 0, end_step = 0;
  std::int64_t rows = 1;  ///< number of these queries; later ones may continue the pattern, or not exist
};

/// row_keys of query q and of the following ones with the same pattern, so that one call covers a linear
/// section of a mask. Texts are evaluated row by row.
std::optional<KeysOfRows> row_keys_from(const Mask& mask, const Extents& sizes, std::int64_t q);

}  // namespace jit
