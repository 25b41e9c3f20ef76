// How two warpgroups share out the columns of O, where one has no registers for all: halves, in parts of whole panels of
// values. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

/// Warpgroups that multiply P with values. Each owns half of the columns of O.
inline constexpr int output_warpgroups = 2;

/// Columns of O of a warpgroup: whole panels, of which the last ones may be empty.
JIT_HOST_DEVICE constexpr int output_columns(int head_dim_v) {
  return (panel_count(head_dim_v) + output_warpgroups - 1) / output_warpgroups * panel_columns(head_dim_v);
}
/// Columns of one product of P and values, which come and are released together: half of a warpgroup's where these are
/// whole panels, so that values are released soon.
JIT_HOST_DEVICE constexpr int part_columns(int head_dim_v) {
  const int columns = output_columns(head_dim_v);
  return columns % (2 * panel_columns(head_dim_v)) == 0 ? columns / 2 : columns;
}
/// Parts of a warpgroup.
JIT_HOST_DEVICE constexpr int own_parts(int head_dim_v) {
  return output_columns(head_dim_v) / part_columns(head_dim_v);
}
/// The first column of a part: warpgroups have parts in turns.
JIT_HOST_DEVICE constexpr int first_part_column(int head_dim_v, int part) {
  return part % output_warpgroups * output_columns(head_dim_v) +
         part / output_warpgroups * part_columns(head_dim_v);  // mutate: PartsOfOneWarpgroup
}

}  // namespace jit
