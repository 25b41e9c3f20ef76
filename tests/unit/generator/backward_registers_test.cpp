// How warpgroups of one-pass backward kernels share registers.
#include <gtest/gtest.h>

#include <jit/attention.h>

#include "generator/kernels/backward_wgmma/family.h"

namespace jit::backward_wgmma {
namespace {

// A multiprocessor has 512 for the threads that stand in one place of each warpgroup, and setmaxnreg takes them by eights.
TEST(BackwardRegisters, SharesFitAMultiprocessor) {
  constexpr int all = 512, launched_with_most = 240;
  for (const int head_dim : {8, 32, 40, 64, 72, 128, 136, 256}) {
    for (const int head_dim_v : {8, 64, 72, 128, 256}) {
      for (const bool dropout : {false, true}) {
        const AttentionSpec spec{.head_dim = head_dim, .head_dim_v = head_dim_v, .dropout = dropout};
        const RegisterShares shares = register_shares(spec);
        EXPECT_LE(shares.producer + 2 * shares.consumer + shares.dq, all) << head_dim << " " << head_dim_v;
        EXPECT_LE(shares.consumer, launched_with_most);
        EXPECT_EQ(shares.dq != 0, has_query_consumer(spec)) << head_dim << " " << head_dim_v;
        for (const int share : {shares.producer, shares.consumer, shares.dq}) EXPECT_EQ(share % 8, 0);
      }
    }
  }
}

}  // namespace
}  // namespace jit::backward_wgmma
