// Reading and writing tile infos of queries (step_infos.cuh).
#pragma once

#include "backward/step_infos.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

JIT_DEVICE void store_query_info(unsigned info, const QueryTileInfo& value) {
  store_shared(info, value.head);
  store_shared(info + 4, value.query);
  store_shared(info + 8, value.flags);
}
/// Reads the flags in each lane by itself.
JIT_DEVICE int load_own_query_info_flags(unsigned info) { return load_shared(info + 8); }
/// Read parts of a tile info. By whole warps.
JIT_DEVICE int load_query_info_head(unsigned info) { return load_shared_by_warp(info); }
JIT_DEVICE int load_query_info_query(unsigned info) { return load_shared_by_warp(info + 4); }
JIT_DEVICE int load_query_info_flags(unsigned info) { return load_shared_by_warp(info + 8); }

}  // namespace jit
