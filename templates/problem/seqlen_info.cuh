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

/// Whether queries of a Config have lists of the keys that they see (problem/key_lists.cuh): a batch entry is the rows of q
/// that share a list then, and its keys are those along the list.
template <class Config>
concept has_key_lists = requires {
  typename Config::Lists;
};

/// The sequence of the queries that share a list of keys.
struct ListOwner {
  int sequence;
  int query;    ///< the first one, of those of the sequence
  int queries;  ///< of the sequence's; 0: the first row is no query's
  Sequence q;
  Sequence kv;
};

}  // namespace jit
