// The order in which the results of spans of keys are merged. Host and NVRTC compile this file.
//
// Spans are the leaves of a binary tree, counted from key 0 of a sequence: node i of level l holds spans [i · 2^l, (i + 1) ·
// 2^l), and its result is the merge of its left child with its right child. A node without keys changes nothing. So the root
// depends on the keys alone, not on the blocks that computed the spans. For consecutive spans a block keeps at most a left and
// a right node of each level.
#pragma once

#include "base/host_device.cuh"
#include "split_keys/split_info.cuh"

namespace jit {

/// The most levels of nodes: keys are counted in 31 bits, and a span has at least 64.
inline constexpr int most_span_levels = 26;

/// Levels of the tree of `spans` spans.
JIT_HOST_DEVICE constexpr int span_levels(int spans) {
  int levels = 1;
  for (; spans > 1; spans -= spans / 2) ++levels;
  return levels;
}

struct SpanNode {
  int first;  ///< first span of the node
  int level;

  JIT_HOST_DEVICE constexpr int index() const { return first >> level; }
  JIT_HOST_DEVICE constexpr int end() const { return first + (1 << level); }
  JIT_HOST_DEVICE constexpr bool is_right() const { return (index() & 1) != 0; }
  JIT_HOST_DEVICE constexpr SpanNode left_sibling() const { return {first - (1 << level), level}; }
  JIT_HOST_DEVICE constexpr SpanNode parent() const { return {index() >> 1 << (level + 1), level + 1}; }
};

/// The next action on a node's result.
enum class SpanStep {
  keep,   ///< it waits for its sibling's result, or for an earlier one
  merge,  ///< merged with its left sibling's result, it becomes the parent's
  rise,   ///< it becomes the parent's result: its sibling has no keys
  done,   ///< it is the result of all keys
};

/// A range of consecutive spans, whose results arrive in order.
struct SpanRange {
  int begin;
  bool is_first;  ///< whether no span before `begin` has a key

  /// `is_last`: whether no span behind the node has a key.
  JIT_HOST_DEVICE constexpr SpanStep step(const SpanNode& node, bool is_last) const {
    if (!node.is_right()) {
      if (!is_last) return SpanStep::keep;
      return node.first == 0 ? SpanStep::done : SpanStep::rise;
    }
    if (is_first) return node.first > begin ? SpanStep::merge : SpanStep::rise;
    return node.left_sibling().first >= begin ? SpanStep::merge : SpanStep::keep;
  }
};

/// The first node that spans [begin, end) keep at their end: the largest one that begins at `begin`. Requires: begin <
/// end.
JIT_HOST_DEVICE constexpr SpanNode first_node(int begin, int end) {
  SpanNode node{begin, 0};
  while (!node.is_right() && node.parent().end() <= end) node = node.parent();
  return node;
}

/// Walks up from a node: merge(left) merges a left sibling's result with the current one, keep(node) stores the current
/// one. Returns whether it is the result of all keys.
template <class Merge, class Keep>
JIT_HOST_DEVICE constexpr bool settle(const SpanRange& range, SpanNode node, bool is_last, Merge merge,
                                      Keep keep) {
  while (true) {
    const SpanStep step = range.step(node, is_last);
    if (step == SpanStep::done) return true;
    if (step == SpanStep::keep) {
      keep(node);
      return false;
    }
    if (step == SpanStep::merge) merge(node.left_sibling());
    node = node.parent();
  }
}

// The nodes that the splits of a work tile have kept at their ends. Host and NVRTC compile this.

/// Iterates over these nodes in the order of keys. A plain value.
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
  /// All spans of the work tile.
  JIT_HOST_DEVICE constexpr SpanRange spans() const { return {cuts_.span_begin(span_tiles_), true}; }

  JIT_HOST_DEVICE constexpr void advance() {
    if (node_.end() < end_) {
      node_ = first_node(node_.end(), end_);
    } else {
      enter(split_ + 1);
    }
  }

 private:
  // Nodes of the first split count from span 0 on; nodes that end before the work tile's first span do not exist.
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
  int end_ = 0;  // end of the split's spans
  SpanNode node_ = {0, 0};
};

}  // namespace jit
