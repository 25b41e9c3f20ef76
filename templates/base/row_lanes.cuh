// Distributes rows over groups of lanes of a warp. Host and NVRTC compile this file.
#pragma once

#include "base/element.cuh"

namespace jit {

/// The division of a row into pieces, one for each lane; of long rows a lane has several, `lanes` apart.
struct RowLanes {
  int piece;       ///< elements, a power of two
  int pieces;      ///< pieces of a row
  int lanes;       ///< lanes of a row, a power of two up to 32
  int iterations;  ///< pieces of a lane
};

/// The division of rows of `columns` elements. `bytes` is the size of the wider element type, of the source or the
/// target. Pieces have at most 16 bytes and do not straddle multiples of `grain` columns.
JIT_HOST_DEVICE constexpr RowLanes row_lanes(int columns, int grain, int bytes) {
  int piece = chunk_bytes / bytes;
  while (columns % piece != 0 || grain % piece != 0) piece /= 2;
  const int pieces = columns / piece;
  int lanes = 1;
  while (lanes < pieces && lanes < 32) lanes *= 2;
  return {piece, pieces, lanes, (pieces + lanes - 1) / lanes};
}

/// Rows by half as many lanes, if they have 16 or more: a lane has twice the bytes for the same addresses.
JIT_HOST_DEVICE constexpr RowLanes halved(RowLanes share) {
  if (share.lanes < 16) return share;
  const int lanes = share.lanes / 2;
  return {share.piece, share.pieces, lanes, (share.pieces + lanes - 1) / lanes};
}

}  // namespace jit
