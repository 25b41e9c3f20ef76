// Problems whose q, k and v are of 8 bits.
#pragma once

#include "tests/support/attention_case.h"

namespace jit::testing {

/// A case of two batch entries and two heads.
inline AttentionCase fp8_case(DType dtype, int head_dim, int seqlen_q, int seqlen_kv) {
  return problem_of({.dtype = dtype, .head_dim = head_dim}, 2, 2, seqlen_q, seqlen_kv);
}

}  // namespace jit::testing
