// What a block knows of its part of a unit whose keys are summed in spans. Compiled by the host and by NVRTC.
#pragma once

#include "scheduling/key_spans.cuh"
#include "split_keys/part_note.cuh"

namespace jit {

/// One span of a part. Parts of units are noted span by span.
struct SpanNote : PartNote {
  UnitCuts cuts;   ///< of the unit
  int span;        ///< counted from key 0 of the sequence
  int part_begin;  ///< first span of the part
  int part_end;
  mutable unsigned ticket;  ///< how many parts of the unit were done before, once the part is
};

/// What is noted where keys are summed in spans of `split_keys`, and where they are not.
template <int split_keys>
struct NoteFor {
  using type = SpanNote;
};
template <>
struct NoteFor<0> {
  using type = PartNote;
};
template <class Config>
using Note = typename NoteFor<Config::split_keys>::type;

/// Whether queries come with what is noted: spans of a part have the same.
template <class Config>
JIT_HOST_DEVICE constexpr bool brings_queries(const Note<Config>& note) {
  if constexpr (Config::split_keys != 0) return note.span <= note.part_begin;
  return true;
}
/// Whether nothing behind it has them.
template <class Config>
JIT_HOST_DEVICE constexpr bool takes_queries(const Note<Config>& note) {
  if constexpr (Config::split_keys != 0) return note.span + 1 >= note.part_end;
  return true;
}

JIT_HOST_DEVICE constexpr int note_bytes(bool has_spans) {
  return static_cast<int>(has_spans ? sizeof(SpanNote) : sizeof(PartNote));
}

/// Tiles of keys of a span.
template <class Config>
inline constexpr int span_tiles = Config::split_keys / Config::tile_kv;

}  // namespace jit
