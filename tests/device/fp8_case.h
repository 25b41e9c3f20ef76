// Problems whose q, k and v are of 8 bits.
#pragma once

#include "tests/support/attention_run.h"
#include "tests/support/seed.h"

namespace jit::testing {

/// Of two batch entries and two heads; each with another seed.
inline AttentionCase fp8_case(DType dtype, int head_dim, int seqlen_q, int seqlen_kv) {
  static std::uint64_t seed = reference::test_seed();
  AttentionCase problem{.batch = 2, .heads_kv = 2, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv};
  problem.spec.dtype = dtype;
  problem.spec.head_dim = head_dim;
  problem.seed = seed++;
  return problem;
}

}  // namespace jit::testing
