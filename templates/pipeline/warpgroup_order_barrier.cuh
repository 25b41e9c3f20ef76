// Orders the consumer warpgroups of a block: each one waits for its turn to issue wgmma (ping-pong scheduling).
#pragma once

#include "base/prelude.cuh"
#include "jit/options.h"
#include "ptx/warpgroup.cuh"

namespace jit {

/// Passes the turn from one consumer to the next in a cycle, by one named barrier per consumer.
template <class Traits>
class WarpgroupOrderBarrier {
 public:
  JIT_DEVICE explicit WarpgroupOrderBarrier(int consumer) : consumer_(consumer) {
    if (is_used && consumer == Traits::consumers - 1) pass();
  }
  JIT_DEVICE void wait() const {
    if constexpr (is_used) bar_sync(Traits::order_barrier + consumer_, 2 * warpgroup_size);
  }
  JIT_DEVICE void pass() const {
    if constexpr (is_used) bar_arrive(next(), 2 * warpgroup_size);
  }
  /// Passes the turn once `known`, which is uniform in the warp, has been computed.
  JIT_DEVICE void pass_behind(bool known) const {
    if constexpr (is_used) bar_arrive_behind(known, next(), 2 * warpgroup_size);
  }

 private:
  // The barrier of the next consumer.
  JIT_DEVICE int next() const {
    return Traits::order_barrier + (consumer_ == Traits::consumers - 1 ? 0 : consumer_ + 1);
  }

  static constexpr bool is_used = Traits::order != WarpgroupOrder::free && Traits::consumers > 1;
  int consumer_;
};

}  // namespace jit
