// Lengths and starts of sequences. Host and NVRTC compile this file.
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

/// Whether queries of a Config have lists of the keys that they see (problem/key_lists.cuh). Then a batch entry is the
/// rows of q that share a list, and its keys are those along the list.
template <class Config>
concept has_key_lists = requires {
  typename Config::Lists;
};

/// The sequence of the queries that share a list of keys.
struct ListOwner {
  int sequence;
  int query;    ///< first query, counted in the sequence
  int queries;  ///< number of queries; 0: the first row belongs to no query
  Sequence q;
  Sequence kv;
};

}  // namespace jit
