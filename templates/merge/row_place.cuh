// The place of a row of o in its tensors.
#pragma once

#include "base/prelude.cuh"
#include "merge/params.cuh"

namespace jit {

/// The coordinates of a row. Heads are consecutive rows.
class RowPlace {
 public:
  template <class Params>
  JIT_DEVICE RowPlace(const Params& params, unsigned row) {
    const unsigned token = params.heads.quotient(row);
    head_ = row - token * params.heads.divisor;
    batch_ = params.seqlen.quotient(token);
    seq_ = token - batch_ * params.seqlen.divisor;
  }

  JIT_DEVICE long long operator()(const TensorStrides& strides) const {
    return batch_ * strides.batch + seq_ * strides.seq + head_ * strides.head;
  }

 private:
  unsigned head_, seq_, batch_;
};

}  // namespace jit
