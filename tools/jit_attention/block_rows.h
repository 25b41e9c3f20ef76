// Block-sparse rows (BSR) in files, in the layout of SciPy and FlashInfer.
#pragma once

#include <cstdint>
#include <string>

#include "array.h"

namespace jit::tool {

/// The map, uint8 (batch or 1, heads or 1, rows, columns), of rows with blocks indices[indptr[i]:indptr[i +
/// 1]]. File `indptr` contains integers (rows + 1) or (batch or 1, heads or 1, rows + 1), `indices` the
/// blocks of all rows. Throws BadInput for rows that end before they begin, and blocks that are out of range,
/// out of order or named twice.
Array map_of_rows(const std::string& indptr, const std::string& indices, std::int64_t columns);

}  // namespace jit::tool
