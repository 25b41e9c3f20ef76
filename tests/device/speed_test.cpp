// How fast the emulator runs real kernels: figures for docs/emulator.md. One core: `taskset -c 0`.
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include <jit/attention.h>
#include <jit/emulation.h>

#include "tests/support/attention_run.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

TEST(Speed, WarpInstructionsPerSecond) {
  for (const int head_dim : {64, 128}) {
    AttentionCase problem;
    problem.spec.head_dim = head_dim;
    problem.spec.mask = mask::causal();
    problem.heads_kv = 4;
    problem.seqlen_q = problem.seqlen_kv = 512;
    problem.seed = 1;
    const AttentionRun run(problem);
    const TraceScope trace;
    attention(problem.spec, {}, Context(shared_cache_settings()))(run.arguments());
    EXPECT_EQ(run.check(64).failure, "");
    ASSERT_EQ(trace.launches().size(), 1u);
    const LaunchTrace& launch = trace.launches()[0];
    std::printf("head_dim %d: %.2f M warp instructions in %.2f s, %.2f M per second on all cores\n", head_dim,
                static_cast<double>(launch.warp_instructions()) * 1e-6, launch.seconds(),
                static_cast<double>(launch.warp_instructions()) / launch.seconds() * 1e-6);
    EXPECT_EQ(launch.findings(), std::vector<std::string>());
  }
}

}  // namespace
}  // namespace jit::testing
