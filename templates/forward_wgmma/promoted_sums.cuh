// The second level of accumulation. wgmma keeps only 13 fractional bits when it accumulates 8-bit products, so a long
// sum of values with a nonzero mean loses small terms (DeepSeek-AI, "DeepSeek-V3 Technical Report", 3.3.2). Every
// `promote_every` tiles of keys, the accumulators are added to fp32 registers by ordinary additions.
#pragma once

#include "base/prelude.cuh"
#include "ptx/wgmma.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

/// Does nothing: the wgmma accumulators are the only level.
template <class Config, class Output, bool is_used = (Config::promote_every > 0)>
class PromotedSums {
 public:
  /// Clears the sums, before the first tile of a work tile.
  JIT_DEVICE void begin() {}
  /// Adds `output` to the sums every `promote_every` tiles. Called after P V of each tile of keys.
  JIT_DEVICE void take(Output&) {}
  JIT_DEVICE void scale_rows(const float (&)[Output::rows]) {}
  /// Adds the sums to `output`, after the last tile.
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
    wgmma_hold(output.registers[0]);  // orders the writes above before the fence of the next wgmma
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
