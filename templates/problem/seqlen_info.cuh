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

}  // namespace jit
