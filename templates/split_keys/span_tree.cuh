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

/// So many levels of nodes there are at most: keys are counted in 31 bits, and a span has 64 of them or more.
inline constexpr int most_span_levels = 26;

/// Levels of the tree of so many spans.
JIT_HOST_DEVICE constexpr int span_levels(int spans) {
  int levels = 1;
  for (; spans > 1; spans -= spans / 2) ++levels;
  return levels;
}

struct SpanNode {
  int first;  ///< of its spans
  int level;

  JIT_HOST_DEVICE constexpr int index() const { return first >> level; }
  JIT_HOST_DEVICE constexpr int end() const { return first + (1 << level); }
  JIT_HOST_DEVICE constexpr bool is_right() const { return (index() & 1) != 0; }
  JIT_HOST_DEVICE constexpr SpanNode left_sibling() const { return {first - (1 << level), level}; }
  JIT_HOST_DEVICE constexpr SpanNode parent() const { return {index() >> 1 << (level + 1), level + 1}; }
};

/// The next step for a node's result.
enum class SpanStep {
  keep,   ///< it waits for its sibling's, or for what stands before that
  merge,  ///< merged with that of its left sibling it is its parent's
  rise,   ///< it is its parent's: its sibling has no key
  done,   ///< it is that of all keys
};

/// A range of spans side by side, whose results come in their order.
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

/// The first of the nodes that are kept in the end of spans [begin, end): the largest one that begins there. Requires:
/// begin < end.
JIT_HOST_DEVICE constexpr SpanNode first_node(int begin, int end) {
  SpanNode node{begin, 0};
  while (!node.is_right() && node.parent().end() <= end) node = node.parent();
  return node;
}

/// Goes up from a node: merge(left) takes the result of a left sibling in front of the one at hand, keep(node) puts that
/// away. Returns whether it is that of all keys.
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

// The nodes that the splits of a work tile leave behind. Compiled by the host and by NVRTC.

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
