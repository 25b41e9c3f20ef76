// The place at which a mask contradicts its own `keep`. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// Statements of a mask about scores, beside `keep` (problem/masks.cuh).
enum class MaskStatement : int {
  none,
  row_range,
  kept_bits,
  keeps,
  key_range,
  lane_key_range,
  classify,
  next_key,
  next_query,
  next_tile
};

/// Queries that a warp looks at.
inline constexpr int mask_check_rows = 128;

/// The first score that was found of which a statement is wrong. All 0: none was.
struct MaskFault {
  MaskStatement statement;
  int batch;
  int head;
  int q;
  int k;
  int is_kept;  ///< by `keep`
};

}  // namespace jit
