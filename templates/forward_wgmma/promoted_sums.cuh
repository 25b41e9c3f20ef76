// The second level of accumulation. wgmma adds products of 8 bits to an accumulator of which 13 bits behind the point
// count, so that a sum of many values with a mean loses what is small beside it (DeepSeek-AI, "DeepSeek-V3 Technical
// Report", 3.3.2). Every so many tiles of keys it moves to floats that ordinary additions sum up.
#pragma once

#include "base/prelude.cuh"
#include "ptx/wgmma.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

/// One level is enough.
template <class Config, class Output, bool is_used = (Config::promote_every > 0)>
class PromotedSums {
 public:
  /// Before the first tile of a work tile.
  JIT_DEVICE void begin() {}
  /// Behind each tile of keys, whose products are in `output`.
  JIT_DEVICE void take(Output&) {}
  JIT_DEVICE void scale_rows(const float (&)[Output::rows]) {}
  /// Behind the last one: all is in `output`.
  JIT_DEVICE void finish(Output&) const {}
};

template <class Config, class Output>
class PromotedSums<Config, Output, true> {
 public:
  JIT_DEVICE void begin() {
    sums_.clear();
    tiles_ = 0;
  }
  JIT_DEVICE void take(Output& output) {
    if (uniform(++tiles_) == Config::promote_every) {
      tiles_ = 0;
      add(sums_, output);  // mutate: PromotedSumsLost
      output.clear();      // mutate: PromotedSumsTwice
    }
    wgmma_hold(output.registers[0]);  // the next wgmma's fence stands behind all that is written here
  }
  JIT_DEVICE void scale_rows(const float (&factors)[Output::rows]) {
    sums_.scale_rows(factors);  // mutate: PromotedSumsUnscaled
  }
  JIT_DEVICE void finish(Output& output) const { add(output, sums_); }

 private:
  static JIT_DEVICE void add(Output& to, const Output& from) {
#pragma unroll
    for (int r = 0; r < Output::rows; ++r) {
#pragma unroll
      for (int n = 0; n < Output::column_blocks; ++n) {
        to.at(r, n, 0) += from.at(r, n, 0);
        to.at(r, n, 1) += from.at(r, n, 1);
      }
    }
  }

  Output sums_;
  int tiles_;
};

}  // namespace jit::forward_wgmma
