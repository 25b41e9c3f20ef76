// What a block knows of its split of a work tile. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// A split of a work tile: a tile of rows of one KV head of a batch entry, and some of the keys that they see.
struct SplitInfo {
  int batch;
  int kv_head;
  int row_begin;    ///< first row of the tile of rows
  int q_begin;      ///< first query of the sequence, as VariableSequences counts
  int seqlen_q;     ///< of the sequence
  int kv_begin;     ///< row of its first key, the same
  int seqlen_kv;    ///< of the sequence
  int split;        ///< which of the work tile's splits, in the order of keys
  int splits;       ///< that the work tile has
  int first_block;  ///< whose the first split is, as KeyShares counts them
  // Where all blocks of a work tile merge it (split_keys/merge_shares.cuh), else 0:
  bool is_cut;  ///< whether blocks share work tiles of this tile space
  int mergers;  ///< of the work tile's blocks, those from the first one on that have nothing to do behind it
  mutable bool merges;  ///< whether the block merges a share of the work tile, once its split is done
};

}  // namespace jit
