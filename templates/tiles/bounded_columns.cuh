// Boxes of values that lie along the sequence, which end with it. Compiled by the host, too.
//
// A row of such a tensor is a column of V, and its elements are of keys. Those behind a sequence's end are another
// sequence's, or anybody's, and must be zeros: 0 times what is not a number is not 0. As in bounded_box.cuh a second map of
// the tensor counts keys twice, and its first dimension ends with the sequence. But TMA's strides are multiples of 16
// bytes, so the second dimension counts keys by 16, and what is left of an end is the first one's: there is a map for each
// rest of an end by 16, which differ in the size of the first dimension alone.
//
//     dimensions    (key, head_dim_v, heads, keys by 16, batch)
//     sizes         (before + end % 16, head_dim_v, heads, keys / 16 + 1, batch), where pages are batch entries, and ragged
//                   sequences are one
//     a box         of which n keys are there, up to `end`: begins at (before + end % 16 - n, 0, head, end / 16, batch)
//
// where the map's address lies `before` keys in front of the tensor: n of the box's keys are within the first dimension,
// and address + before + end % 16 - n + 16 (end / 16) is that of key end - n.
#pragma once

#include "base/host_device.cuh"
#include "tiles/bounded_box.cuh"

namespace jit {

/// Keys that the second dimension counts by: bytes of TMA's strides.
inline constexpr int keys_of_step = 16;

/// How far a map's address lies in front of the tensor, for boxes of so many keys: as many as may be there. Boxes within
/// pages begin at multiples of a step, so that fewer do, and no row of the map is longer than one of the page.
JIT_HOST_DEVICE constexpr int keys_before(int box_keys, bool has_pages) {
  return has_pages ? box_keys - keys_of_step : box_keys;
}

/// Where a box that is there in part begins, by the map for its end.
struct ColumnsPlace {
  int rest;  ///< of its end by keys_of_step: which map
  int key;
  int step;
};
JIT_HOST_DEVICE constexpr ColumnsPlace columns_place(const BoundedBox& box, int box_keys, int before) {
  const int there = box_keys - box.missing, end = box.first + there, rest = end % keys_of_step;
  // mutate: RestsWithoutAKey
  return {.rest = rest, .key = before + rest - there, .step = end / keys_of_step};
}

}  // namespace jit
