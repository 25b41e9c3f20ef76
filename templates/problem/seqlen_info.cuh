// How long sequences are, and where they begin. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// The rows of one sequence among those of its batch entry.
struct Sequence {
  int begin;
  int length;
};

/// Queries and keys of one batch entry.
struct SeqlenInfo {
  Sequence q;
  Sequence kv;
};

/// Whether each query of a Config has a list of the keys that it sees (problem/key_lists.cuh): a batch entry is a row of q
/// then, and its keys are those along its list.
template <class Config>
concept has_key_lists = requires {
  typename Config::Lists;
};

/// The sequence of a query that has a list of keys.
struct ListOwner {
  int sequence;
  int query;  ///< of those of the sequence; negative: the row is no query's
  Sequence q;
  Sequence kv;
};

}  // namespace jit
