// What a block knows of its split of a work tile whose keys are summed in spans. Compiled by the host and by NVRTC.
#pragma once

#include "scheduling/key_spans.cuh"
#include "split_keys/split_info.cuh"

namespace jit {

/// One span of a split. Splits of work tiles are recorded span by span.
struct SpanInfo : SplitInfo {
  WorkTileCuts cuts;  ///< of the work tile
  int span;           ///< counted from key 0 of the sequence
  int split_begin;    ///< first span of the split
  int split_end;
  mutable unsigned ticket;  ///< how many splits of the work tile were done before, once the split is
};

/// What is recorded where keys are summed in spans of `split_keys`, and where they are not.
template <int split_keys>
struct InfoFor {
  using type = SpanInfo;
};
template <>
struct InfoFor<0> {
  using type = SplitInfo;
};
template <class Config>
using Info = typename InfoFor<Config::split_keys>::type;

/// Whether queries come with what is recorded: spans of a split have the same.
template <class Config>
JIT_HOST_DEVICE constexpr bool brings_queries(const Info<Config>& info) {
  if constexpr (Config::split_keys != 0) return info.span <= info.split_begin;
  return true;
}
/// Whether nothing behind it has them.
template <class Config>
JIT_HOST_DEVICE constexpr bool takes_queries(const Info<Config>& info) {
  if constexpr (Config::split_keys != 0) return info.span + 1 >= info.split_end;
  return true;
}

JIT_HOST_DEVICE constexpr int info_bytes(bool has_spans) {
  return static_cast<int>(has_spans ? sizeof(SpanInfo) : sizeof(SplitInfo));
}

/// Tiles of keys of a span.
template <class Config>
inline constexpr int span_tiles = Config::split_keys / Config::tile_kv;

}  // namespace jit
