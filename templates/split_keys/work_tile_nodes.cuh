// The nodes that the splits of a work tile leave behind. Compiled by the host and by NVRTC.
#pragma once

#include "split_keys/span_tree.cuh"
#include "split_keys/split_info.cuh"

namespace jit {

/// Walks through them in the order of keys. A plain value.
class WorkTileNodes {
 public:
  JIT_HOST_DEVICE constexpr WorkTileNodes(const SpanInfo& info, int span_tiles)
      : cuts_(info.cuts), span_tiles_(span_tiles), splits_(info.splits), first_block_(info.first_block) {
    enter(0);
  }

  JIT_HOST_DEVICE constexpr bool has_node() const { return split_ < splits_; }
  JIT_HOST_DEVICE constexpr const SpanNode& node() const { return node_; }
  /// The split of the work tile that kept the node.
  JIT_HOST_DEVICE constexpr int split() const { return split_; }
  /// All that the work tile has.
  JIT_HOST_DEVICE constexpr SpanRange spans() const { return {cuts_.span_begin(span_tiles_), true}; }

  JIT_HOST_DEVICE constexpr void advance() {
    if (node_.end() < end_) {
      node_ = first_node(node_.end(), end_);
    } else {
      enter(split_ + 1);
    }
  }

 private:
  // Nodes of the first split count from span 0 on; none is kept that ends before the work tile's first span.
  JIT_HOST_DEVICE constexpr void enter(int split) {
    split_ = split;
    if (!has_node()) return;
    const int block = first_block_ + split, work_tile_begin = cuts_.span_begin(span_tiles_);
    end_ = split + 1 == splits_ ? cuts_.span_end(span_tiles_) : cuts_.first_span(block + 1, span_tiles_);
    node_ = first_node(split == 0 ? 0 : cuts_.first_span(block, span_tiles_), end_);
    while (node_.end() <= work_tile_begin) node_ = first_node(node_.end(), end_);
  }

  WorkTileCuts cuts_;
  int span_tiles_;
  int splits_;
  int first_block_;
  int split_ = 0;
  int end_ = 0;  // of the split's spans
  SpanNode node_ = {0, 0};
};

}  // namespace jit
