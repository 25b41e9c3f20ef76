// The list of all tiles of queries that a launch computes.
#pragma once

#include "params.cuh"
#include "prelude.cuh"
#include "tensor_map.cuh"

namespace jit {

/// A tile of queries of one slice.
struct WorkTile {
  int batch;
  int head;     ///< query head
  int q_begin;  ///< first query
};

/// The list of all work tiles.
/// They are ordered by sections of slices, few enough to share the L2 cache; within a section
/// the last queries come first, because they see most keys under most masks.
template <int tile_q>
class WorkList {
 public:
  __device__ __forceinline__ WorkList(const AttentionParams& params, const TensorMaps& maps, int seqlen_q)
      : tiles_q_((seqlen_q + tile_q - 1) / tile_q),
        heads_(params.heads_q),
        batch_begin_(params.batch_begin),
        section_slices_(maps.section_slices),
        count_(maps.work_tiles) {}

  __device__ __forceinline__ WorkTile at(int index) const {
    const int slices = count_ / tiles_q_;
    const int section = index / (section_slices_ * tiles_q_);
    const int in_section = index - section * section_slices_ * tiles_q_;
    const int width = minimum(section_slices_, slices - section * section_slices_);
    const int row = in_section / width;
    const int slice = section * section_slices_ + in_section - row * width;
    const int batch = slice / heads_;
    return {.batch = batch_begin_ + batch,
            .head = slice - batch * heads_,
            .q_begin = (tiles_q_ - 1 - row) * tile_q};
  }

 private:
  int tiles_q_;
  int heads_;
  int batch_begin_;
  int section_slices_;
  int count_;
};

}  // namespace jit
