// Tiles as TMA writes them and wgmma reads them: panels side by side, each as wide as a swizzle's span.
//
//     columns:   0 … 63      64 … 127
//              ┌─────────┐ ┌─────────┐
//     rows     │ panel 0 │ │ panel 1 │     16-byte chunk c of row r lies at chunk c XOR (r mod 8)
//              └─────────┘ └─────────┘
//
// Compiled by the host, which encodes tensor maps, and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// Rows of A that a warpgroup multiplies (PTX ISA, "wgmma.mma_async", shapes).
inline constexpr int rows_per_warpgroup = 64;

/// Columns of a panel: the span of the swizzle of 128, 64 or 32 bytes, the narrowest that covers head_dim.
JIT_HOST_DEVICE constexpr int panel_columns(int head_dim, int bytes = element_bytes) {
  return (head_dim * bytes > 64 ? 128 : head_dim * bytes > 32 ? 64 : 32) / bytes;
}
JIT_HOST_DEVICE constexpr int panel_count(int head_dim, int bytes = element_bytes) {
  return (head_dim + panel_columns(head_dim, bytes) - 1) / panel_columns(head_dim, bytes);
}
/// Bytes of a tile: the last panel is whole, columns past head_dim are zero.
JIT_HOST_DEVICE constexpr int panel_tile_bytes(int rows, int head_dim, int bytes = element_bytes) {
  return rows * panel_count(head_dim, bytes) * panel_columns(head_dim, bytes) * bytes;
}

/// The half of a descriptor that depends on the address.
JIT_HOST_DEVICE constexpr unsigned lower_word(unsigned long long descriptor) {
  return static_cast<unsigned>(descriptor);
}

template <class Element, int tile_rows, int head_dim,
          int panel_width = panel_columns(head_dim, sizeof(Element))>
struct PanelTile {
  static constexpr int rows = tile_rows;
  static constexpr int columns = panel_width;  ///< columns of a panel
  static constexpr int panels = (head_dim + columns - 1) / columns;
  static constexpr int row_bytes = columns * static_cast<int>(sizeof(Element));
  static constexpr int panel_bytes = rows * row_bytes;
  static constexpr int bytes = panels * panel_bytes;

  /// Address of chunk `chunk` of row `row` of a tile at `tile`. A chunk is 16 bytes.
  JIT_HOST_DEVICE static constexpr unsigned chunk_address(unsigned tile, int row, int chunk) {
    constexpr int chunks = row_bytes / chunk_bytes;
    // The swizzle XORs address bits 4…6 with bits 7…9; a narrower one leaves out the upper ones.
    const int key = row * row_bytes / 128 % chunks;  // mutate: SwizzleKeyOfTheWrongRow
    return tile + static_cast<unsigned>(chunk / chunks * panel_bytes + row * row_bytes +
                                        ((chunk % chunks) ^ key) * chunk_bytes);
  }

  /// The address of the chunk `by` chunks after the one at `address`, which must be one of a row's first chunks, as
  /// many as a power of two that divides `by`. A loop over chunks then adds compile-time constants. Tiles begin at
  /// multiples of 1024.
  JIT_HOST_DEVICE static constexpr unsigned chunk_behind(unsigned address, int by) {
    constexpr int chunks = row_bytes / chunk_bytes;
    return (address ^ static_cast<unsigned>(by % chunks * chunk_bytes)) +
           static_cast<unsigned>(by / chunks * panel_bytes);
  }

  /// The address of the chunk `by` rows below the one at `address`, whose row has no bit of `by`. Tiles begin at
  /// multiples of 1024.
  JIT_HOST_DEVICE static constexpr unsigned row_behind(unsigned address, int by) {
    constexpr int chunks = row_bytes / chunk_bytes;
    const int key = by * row_bytes / 128 % chunks;  // mutate: SwizzleKeyOfTheRowBefore
    return (address ^ static_cast<unsigned>(key * chunk_bytes)) + static_cast<unsigned>(by * row_bytes);
  }

  /// wgmma's view of the tile with the sum along its columns (Q and K of Q Kᵀ), from row `row` and the k-step
  /// `step` on (PTX ISA, "Matrix Descriptor Format").
  JIT_HOST_DEVICE static constexpr unsigned long long along_columns(unsigned tile, int row, int step) {
    constexpr int steps = columns / mma_k, step_bytes = row_bytes / steps;
    return descriptor(tile + static_cast<unsigned>(row * row_bytes + step / steps * panel_bytes +
                                                   step % steps * step_bytes),
                      chunk_bytes);
  }

  /// wgmma's view of the tile with the sum along its rows (V of P V), from the k-step `step` on.
  JIT_HOST_DEVICE static constexpr unsigned long long along_rows(unsigned tile, int step) {
    // mutate: WrongPanelStrideOfV
    return descriptor(tile + static_cast<unsigned>(step * mma_k * row_bytes), panel_bytes);
  }

  /// The increment of a k-step to the lower word of the first step's descriptor; upper_word() is common to all steps.
  JIT_HOST_DEVICE static constexpr unsigned column_step(int step) {
    return lower_word(along_columns(0, 0, step) - along_columns(0, 0, 0));
  }
  /// The increment of a k-step if the free dimension begins at `row`, a multiple of 8.
  JIT_HOST_DEVICE static constexpr unsigned column_step(int step, int row) {
    return lower_word(along_columns(0, row, step) - along_columns(0, 0, 0));
  }
  JIT_HOST_DEVICE static constexpr unsigned row_step(int step) {
    return lower_word(along_rows(0, step) - along_rows(0, 0));
  }
  /// The increment of a k-step if the free dimension begins at `column`, the first column of a panel.
  JIT_HOST_DEVICE static constexpr unsigned row_step(int step, int column) {
    return lower_word(along_rows(static_cast<unsigned>(column / columns * panel_bytes), step) -
                      along_rows(0, 0));
  }
  JIT_HOST_DEVICE static constexpr unsigned upper_word() { return lower_word(descriptor(0, 0) >> 32); }

 private:
  static constexpr int mma_k = ElementTraits<Element>::mma_k;

  // The leading byte offset is that between panels, along the tile's free dimension; the stride byte offset that
  // between groups of eight rows.
  JIT_HOST_DEVICE static constexpr unsigned long long descriptor(unsigned address, int leading_bytes) {
    constexpr unsigned long long swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
    constexpr unsigned long long stride = 8 * row_bytes / 16;
    return (address & 0x3ffffu) >> 4 | static_cast<unsigned long long>(leading_bytes / 16) << 16 |
           stride << 32 | swizzle << 62;
  }
};

/// Rows of a PanelTile for ldmatrix: chunks count along a row, from panel to panel, and `row_chunks` are multiplied.
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
