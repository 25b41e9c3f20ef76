// Tiles as TMA writes them, for ldmatrix: chunks count along a row, from panel to panel. Compiled by the host (for
// tests) and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// Of a PanelTile, of whose rows `row_chunks` chunks are multiplied.
template <class Panels, int row_chunks>
struct PanelRows {
  static constexpr int rows = Panels::rows;
  static constexpr int chunks = row_chunks;
  static constexpr int row_bytes = Panels::row_bytes;  ///< from one row to the next of a panel
  static constexpr int bytes = Panels::bytes;

  /// Byte offset of chunk `chunk` of row `row` from the start of the tile.
  JIT_HOST_DEVICE static constexpr int offset(int row, int chunk) {
    return static_cast<int>(Panels::chunk_address(0, row, chunk));
  }

  /// As SmemTile::advance: requires that `rows_on` is a multiple of 8, that the bits of `chunks_on` lie above
  /// those of the first chunk, and that the tile starts at a multiple of 1024 bytes.
  JIT_HOST_DEVICE static constexpr unsigned advance(unsigned address, int rows_on, int chunks_on) {
    constexpr int of_panel = row_bytes / chunk_bytes;
    return (address ^ static_cast<unsigned>(chunks_on % of_panel * chunk_bytes)) +
           static_cast<unsigned>(rows_on * row_bytes + chunks_on / of_panel * Panels::panel_bytes);
  }
};

}  // namespace jit
