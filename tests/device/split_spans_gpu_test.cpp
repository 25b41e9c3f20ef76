// split_keys: what a request comes out with, bit by bit, whatever stands beside it and however its queries are cut into
// calls. Varlen and paged sequences: tests/python/test_batch_invariance.py.
#include <jit/attention.h>

#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/cut_arguments.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

struct TestedConfig {
  const char* text;
  int tile_rows;
  int turn;  ///< on an emulated device those of one run are every second
};
std::ostream& operator<<(std::ostream& out, const TestedConfig& config) { return out << config.text; }

class SplitSpansTest : public GpuTest, public ::testing::WithParamInterface<TestedConfig> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const std::string reason = config_rejection(spec(), config(), device_);
    if (!reason.empty()) GTEST_SKIP() << reason;
    if (!is_in_this_run(GetParam().turn, 2))
      GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
  }

  static KernelConfig config() { return parse_config(GetParam().text); }

  static AttentionSpec spec() {
    AttentionSpec spec;
    spec.head_dim = 64;
    spec.gqa_ratio = 4;
    spec.split_keys = 192;
    spec.mask = mask::causal();
    return spec;
  }
};

TEST_P(SplitSpansTest, BitsDoNotDependOnTheBatchOrOnHowQueriesAreCut) {
  const CurrentDevice current(0);
  AttentionCase problem{.spec = spec(),
                        .batch = 3,
                        .heads_kv = 2,
                        .seqlen_q = sized(900, 45),
                        .seqlen_kv = sized(5000, 600),
                        .seed = reference::test_seed()};
  AttentionRun run(problem);
  const Attention kernel = attention(problem.spec, config(), context());
  const auto outputs_of = [&](auto launch_all) {
    run.poison_outputs();
    launch_all();
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    return run.outputs();
  };
  const auto together = outputs_of([&] { kernel(run.arguments()); });
  EXPECT_EQ(run.check().failure, "");
  const auto one_by_one = outputs_of([&] {
    for (int entry = 0; entry < problem.batch; ++entry) kernel(of_batch_entry(run.arguments(), entry));
  });
  EXPECT_EQ(one_by_one, together);
  for (const int size : {1, 16, 33}) {
    const auto in_chunks = outputs_of([&] {
      for (int begin = 0; begin < problem.seqlen_q; begin += size) {
        AttentionArguments arguments = run.arguments();
        arguments.num_splits = begin % 5;
        kernel(of_queries(arguments, begin, std::min(begin + size, problem.seqlen_q)));
      }
    });
    EXPECT_EQ(in_chunks, together) << size;
  }
}

// Many more units than blocks, which see the same keys: they are scheduled whole, and each block merges for itself.
TEST_P(SplitSpansTest, UnitsThatAreScheduledHaveTheSameBits) {
  const CurrentDevice current(0);
  AttentionCase problem{.spec = spec(),
                        .heads_kv = 2,
                        .seqlen_q = sized(20000, 101 * GetParam().tile_rows),
                        .seqlen_kv = 220,
                        .seed = reference::test_seed()};
  problem.spec.mask = mask::none();
  AttentionRun run(problem);
  const Attention kernel = attention(problem.spec, config(), context());
  kernel(run.arguments());
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  EXPECT_EQ(run.check().failure, "");
  const auto together = run.outputs();
  run.poison_outputs();
  for (const auto& [begin, end] : {std::pair(0, 10), {10, 1000}, {1000, problem.seqlen_q}}) {
    AttentionArguments arguments = of_queries(run.arguments(), begin, end);
    arguments.k = run.arguments().k;
    arguments.v = run.arguments().v;
    kernel(arguments);
  }
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  EXPECT_EQ(run.outputs(), together);
}

INSTANTIATE_TEST_SUITE_P(
    Configs, SplitSpansTest,
    ::testing::Values(
        TestedConfig{"family=forward_split_kv row_warps=1 key_warps=1 tile_kv=64 stages=3", 16, 0},
        TestedConfig{"family=forward_split_kv row_warps=2 key_warps=1 tile_kv=64 stages=2", 32, 1},
        TestedConfig{"family=forward_split_kv copies=tma row_warps=1 key_warps=1 tile_kv=64 stages=3", 16, 2},
        TestedConfig{"family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2", 64, 3},
        TestedConfig{"family=forward_split_wgmma tile_rows=128 tile_kv=64 stages=2 stages_q=2", 128, 4},
        TestedConfig{"family=forward_wgmma tile_q=128 tile_kv=64 stages_q=2 order=ping_pong", 128, 5},
        TestedConfig{"family=forward_mma_sync tile_q=64 tile_kv=64 warps=4 stages_k=1 stages_v=2", 64, 6},
        TestedConfig{"family=forward_mma_sync tile_q=128 tile_kv=64 warps=4 q_in_registers=true", 128, 7}));

}  // namespace
}  // namespace jit::testing
