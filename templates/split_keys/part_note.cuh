// What a block knows of its part of a unit. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// A part of a unit: a tile of rows of one KV head of a batch entry, and some of the keys that they see.
struct PartNote {
  int batch;
  int kv_head;
  int row_begin;    ///< first row of the tile of rows
  int q_begin;      ///< first query of the sequence, as VariableSequences counts
  int seqlen_q;     ///< of the sequence
  int kv_begin;     ///< row of its first key, the same
  int seqlen_kv;    ///< of the sequence
  int part;         ///< which of the unit's parts, in the order of keys
  int parts;        ///< that the unit has
  int first_block;  ///< whose the first part is, as KeyShares counts them
  // Where all blocks of a unit merge it (split_keys/merge_shares.cuh), else 0:
  bool is_cut;  ///< whether blocks share units of this line
  int mergers;  ///< of the unit's blocks, those from the first one on that have nothing to do behind it
  mutable bool merges;  ///< whether the block merges a share of the unit, once its part is done
};

}  // namespace jit
