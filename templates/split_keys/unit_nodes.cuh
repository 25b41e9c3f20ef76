// The nodes that the parts of a unit leave behind. Compiled by the host and by NVRTC.
#pragma once

#include "split_keys/span_note.cuh"
#include "split_keys/span_tree.cuh"

namespace jit {

/// Walks through them in the order of keys. A plain value.
class UnitNodes {
 public:
  JIT_HOST_DEVICE constexpr UnitNodes(const SpanNote& note, int span_tiles)
      : cuts_(note.cuts), span_tiles_(span_tiles), parts_(note.parts), first_block_(note.first_block) {
    enter(0);
  }

  JIT_HOST_DEVICE constexpr bool has_node() const { return part_ < parts_; }
  JIT_HOST_DEVICE constexpr const SpanNode& node() const { return node_; }
  /// Of the unit's parts, the one that kept the node.
  JIT_HOST_DEVICE constexpr int part() const { return part_; }
  /// All that the unit has.
  JIT_HOST_DEVICE constexpr SpanRange spans() const { return {cuts_.span_begin(span_tiles_), true}; }

  JIT_HOST_DEVICE constexpr void advance() {
    if (node_.end() < end_) {
      node_ = first_node(node_.end(), end_);
    } else {
      enter(part_ + 1);
    }
  }

 private:
  // Nodes of the first part count from span 0 on; none is kept that ends before the unit's first span.
  JIT_HOST_DEVICE constexpr void enter(int part) {
    part_ = part;
    if (!has_node()) return;
    const int block = first_block_ + part, unit_begin = cuts_.span_begin(span_tiles_);
    end_ = part + 1 == parts_ ? cuts_.span_end(span_tiles_) : cuts_.first_span(block + 1, span_tiles_);
    node_ = first_node(part == 0 ? 0 : cuts_.first_span(block, span_tiles_), end_);
    while (node_.end() <= unit_begin) node_ = first_node(node_.end(), end_);
  }

  UnitCuts cuts_;
  int span_tiles_;
  int parts_;
  int first_block_;
  int part_ = 0;
  int end_ = 0;  // of the part's spans
  SpanNode node_ = {0, 0};
};

}  // namespace jit
