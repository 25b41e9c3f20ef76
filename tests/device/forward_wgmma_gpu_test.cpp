// Properties of forward_wgmma alone: persistent blocks and their counter, and tensors that TMA cannot reach.
#include <jit/attention.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/device_tensor.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class ForwardWgmmaTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'})
      GTEST_SKIP() << "forward_wgmma runs on sm_90a only";
  }

  /// More tiles of 64 queries than multiprocessors, so that blocks take several.
  AttentionCase many_tiles(std::uint64_t salt = 0) const {
    AttentionCase problem =
        problem_of({.head_dim = 64, .mask = mask::causal()}, 2, device_.sm_count / 4 + 3, 130, 75);
    problem.seed = reference::test_seed() + salt;
    return problem;
  }

  /// One for each way in which a block goes from one work tile to the next; half of them in a run on an emulated device.
  std::vector<ForwardWgmma> moving_configs() const {
    std::vector<ForwardWgmma> configs;
    int index = 0;
    for (const char* text : {"tile_q=64 tile_kv=48 stages_q=2", "tile_q=64 tile_kv=48",
                             "tile_q=64 tile_kv=64 output=separate stages_v=2",
                             "tile_q=64 tile_kv=48 output=direct", "tile_q=64 tile_kv=64 order=free"}) {
      if (is_in_this_run(index++, 2))
        configs.push_back(std::get<ForwardWgmma>(parse_config(std::string("family=forward_wgmma ") + text)));
    }
    return configs;
  }

  static const int* counter_at(CUstream stream) {
    return StreamLease(Access::state(context())->memory, 0, stream).counter();
  }

  /// The counter after the launches on `stream`, which are complete.
  static int counter_of(CUstream stream) {
    const int* counter = counter_at(stream);
    int value = -1;
    check(driver().cuMemcpyDtoH(&value, reinterpret_cast<CUdeviceptr>(counter), sizeof(value)),
          "cuMemcpyDtoH");
    return value;
  }
};

TEST_F(ForwardWgmmaTest, TheCounterIsBackAtZeroAfterEachLaunch) {
  const CurrentDevice current(0);
  for (const ForwardWgmma& config : moving_configs()) {
    SCOPED_TRACE(to_string(config));
    AttentionRun run(many_tiles());
    const Attention kernel = attention(many_tiles().spec, config, context());
    const TestStream stream;
    std::vector<unsigned char> first;
    for (int launch = 0; launch < sized(20, 3); ++launch) {
      run.poison_outputs();
      kernel(run.arguments(), stream.get());
      stream.synchronize();
      ASSERT_EQ(counter_of(stream.get()), 0) << "launch " << launch;
      if (launch == 0) {
        first = run.outputs();
        EXPECT_EQ(run.check().failure, "");
      }
      ASSERT_EQ(run.outputs(), first) << "launch " << launch;
    }
  }
}

// Launches that follow one another without a wait between: each finds the counter as it needs it.
TEST_F(ForwardWgmmaTest, LaunchesBackToBack) {
  const CurrentDevice current(0);
  AttentionRun run(many_tiles());
  const Attention kernel = attention(many_tiles().spec, moving_configs()[0], context());
  const TestStream stream;
  for (int launch = 0; launch < sized(200, 2); ++launch) kernel(run.arguments(), stream.get());
  stream.synchronize();
  run.poison_outputs();
  for (int launch = 0; launch < 2; ++launch) kernel(run.arguments(), stream.get());
  stream.synchronize();
  EXPECT_EQ(run.check().failure, "");
  EXPECT_EQ(counter_of(stream.get()), 0);
}

TEST_F(ForwardWgmmaTest, InterleavedStreamsDoNotTakeEachOthersWork) {
  const CurrentDevice current(0);
  const Attention kernel = attention(many_tiles().spec, moving_configs()[0], context());
  const std::array<TestStream, 2> streams;
  std::array<AttentionRun, 2> runs = {AttentionRun(many_tiles(1)), AttentionRun(many_tiles(2))};
  for (int round = 0; round < sized(50, 2); ++round) {
    for (std::size_t i = 0; i < streams.size(); ++i) kernel(runs[i].arguments(), streams[i].get());
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].synchronize();
    EXPECT_EQ(runs[i].check().failure, "");
    EXPECT_EQ(counter_of(streams[i].get()), 0);
  }
  EXPECT_NE(counter_at(streams[0].get()), counter_at(streams[1].get()));
}

// The table of the ranges of key words holds one tile of keys in each place, or 2, 4 … of them together; more
// batch entries than it has places take several launches.
TEST_F(ForwardWgmmaTest, DocumentsAndTreesOfAnySizeFindTheirKeys) {
  const CurrentDevice current(0);
  struct Size {
    int batch, seqlen_q, seqlen_kv;
  };
  int index = 0;
  for (const Mask& mask : {mask::document(), mask::causal() && mask::document(), mask::tree()}) {
    if (!is_in_this_run(index++, 2)) continue;
    for (const auto& [batch, seqlen_q, seqlen_kv] :
         {Size{3, 150, 170}, Size{1, 70, 9000}, Size{2, 20, 18000}, Size{520, 3, 20}}) {
      AttentionCase problem{.batch = batch,
                            .heads_kv = 1,
                            .seqlen_q = seqlen_q,
                            .seqlen_kv = seqlen_kv,
                            .seed = reference::test_seed()};
      problem.spec.head_dim = 16;
      problem.spec.mask = mask;
      SCOPED_TRACE(to_string(problem.spec) + ", batch " + std::to_string(batch));
      AttentionRun run(problem);
      const KernelConfig config = parse_config("family=forward_wgmma tile_q=64 tile_kv=16 stages_q=2");
      const TestStream stream;
      attention(problem.spec, config, context())(run.arguments(), stream.get());
      stream.synchronize();
      EXPECT_EQ(run.check().failure, "");
    }
  }
}

// A graph has a counter of its own, since it may run beside the stream that it was captured from.
TEST_F(ForwardWgmmaTest, ACapturedLaunchReplays) {
  const CurrentDevice current(0);
  for (const ForwardWgmma& config : moving_configs()) {
    SCOPED_TRACE(to_string(config));
    AttentionRun run(many_tiles());
    const Attention kernel = attention(many_tiles().spec, config, context());
    const TestStream stream;
    kernel(run.arguments(), stream.get());
    stream.synchronize();
    const std::vector<unsigned char> direct = run.outputs();

    check(driver().cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    kernel(run.arguments(), stream.get());
    CUgraph graph = nullptr;
    check(driver().cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture");
    CUgraphExec executable = nullptr;
    check(driver().cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
    const TestStream elsewhere;
    for (int replay = 0; replay < 2; ++replay) {
      run.poison_outputs();
      check(driver().cuGraphLaunch(executable, elsewhere.get()), "cuGraphLaunch");
      elsewhere.synchronize();
      EXPECT_EQ(run.check().failure, "");
      EXPECT_EQ(run.outputs(), direct) << "who computes a tile must not matter";
    }
    EXPECT_EQ(counter_of(stream.get()), 0);
    driver().cuGraphExecDestroy(executable);
    driver().cuGraphDestroy(graph);
  }
}

TEST_F(ForwardWgmmaTest, LayoutsThatTmaCannotReach) {
  AttentionCase problem{.batch = 1, .heads_kv = 2, .seqlen_q = 100, .seqlen_kv = 90};
  problem.spec.head_dim = 64;
  problem.seed = reference::test_seed();
  problem.layout = Layout::reversed;
  const AttentionRun run(problem);
  try {
    attention(problem.spec, moving_configs()[0], context())(run.arguments());
    ADD_FAILURE() << "a tensor that runs backwards was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.field(), "q");
    EXPECT_THAT(error.what(), HasSubstr("positive strides"));
  }
  EXPECT_TRUE(run.untouched());

  const Attention kernel = attention(problem.spec, {}, context());
  kernel(run.arguments());
  EXPECT_EQ(run.check().failure, "");
  EXPECT_EQ(family_name(kernel.kernel(run.arguments()).config()), "forward_mma_sync");

  problem.layout = Layout::bshd;
  const AttentionRun forward(problem);
  kernel(forward.arguments());
  EXPECT_EQ(forward.check().failure, "");
  EXPECT_EQ(family_name(kernel.kernel(forward.arguments()).config()), "forward_wgmma");
}

// Keys that all batch entries share, by a stride of 0.
TEST_F(ForwardWgmmaTest, SharedKeysAreNotForTma) {
  AttentionCase problem{.batch = 2, .heads_kv = 1, .seqlen_q = 40, .seqlen_kv = 40};
  problem.spec.head_dim = 64;
  problem.seed = reference::test_seed();
  const AttentionRun run(problem);
  AttentionArguments arguments = run.arguments();
  arguments.v.strides[0] = 0;
  try {
    attention(problem.spec, moving_configs()[0], context())(arguments);
    ADD_FAILURE() << "a stride of 0 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.field(), "v");
  }
  EXPECT_TRUE(run.untouched());
  const Attention kernel = attention(problem.spec, {}, context());
  EXPECT_EQ(family_name(kernel.kernel(arguments).config()), "forward_mma_sync");
  EXPECT_NO_THROW(kernel(arguments));
}

TEST_F(ForwardWgmmaTest, WithoutKeysOutputsAreZero) {
  for (const ForwardWgmma& config : moving_configs()) {
    AttentionCase problem = many_tiles();
    problem.seqlen_kv = 0;
    expect_right(problem, config);  // zeros, and an LSE of −inf, as the reference has them
  }
}

// Rows with keys and rows without, in turns: a block goes from one kind to the other and back.
TEST_F(ForwardWgmmaTest, SomeTilesSeeNoKeys) {
  for (const ForwardWgmma& config : moving_configs()) {
    AttentionCase problem = many_tiles();
    problem.seqlen_kv = 40;  // fewer than queries: causal leaves the first ones nothing
    expect_right(problem, config);
    problem.spec.mask = mask::prefix_lengths();
    expect_right(problem, config);
  }
}

// Rows of a block mask are scheduled as its table says, where tiles are parts of blocks: a table that names a row twice
// leaves out the other one.
TEST_F(ForwardWgmmaTest, TablesSayInWhichOrderRowsAreScheduled) {
  const CurrentDevice current(0);
  int index = 0;
  struct Case {
    int tile_q, block_q;
    bool is_followed;
    const char* more;
  };
  for (const auto& [tile_q, block_q, is_followed, more] :
       {Case{64, 64, true, "stages_q=2"}, Case{64, 128, true, ""}, Case{128, 128, true, "output=direct"},
        Case{128, 64, false, ""}}) {
    if (!is_in_this_run(index++, 2)) continue;
    const int rows = 4, seqlen_q = rows * block_q - block_q / 2 - 6;  // of the last row a tile may be missing
    AttentionCase problem{.batch = 2, .heads_kv = 3, .seqlen_q = seqlen_q, .seqlen_kv = 80};
    problem.spec.head_dim = 64;
    problem.seed = reference::test_seed();
    AttentionSpec over_table = problem.spec;
    over_table.mask = mask::block_mask(block_q, 64, mask::causal());
    problem.spec.mask = mask::causal();
    const KernelConfig config = parse_config(
        fmt::format("family=forward_wgmma tile_q={} tile_kv=48 blocks_per_sm=1 {}", tile_q, more));
    const Attention kernel = attention(over_table, config, context());
    for (const auto& [words, order, is_right] : {std::tuple{2, std::array{0, 0, 0, 0}, true},
                                                 {3, {0, 1, 2, 3}, true},
                                                 {3, {2, 0, 1, 3}, true},
                                                 {3, {3, 1, 0, 2}, true},  // a last row that is not cut
                                                 {3, {1, 0, 1, 3}, false}}) {
      DeviceTensor table(DType::int32, {1, 3, rows, words});
      for (std::int64_t head = 0; head < 3; ++head) {
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::array word = {3, 0,
                                   head == 1 ? order[static_cast<std::size_t>(i)] : static_cast<int>(i)};
          for (int at = 0; at < words; ++at)  // two blocks, both partial, and perhaps a row
            table.set({0, head, i, at}, word[static_cast<std::size_t>(at)]);
        }
      }
      table.upload();
      AttentionRun run(problem);
      AttentionArguments arguments = run.arguments();
      arguments.tensors.add({"block_mask", table.view()});
      std::string trouble;
      try {
        kernel(arguments);
        trouble = run.check().failure;
      } catch (const Error& error) {  // an emulated device sees that two blocks write the same rows
        trouble = error.message();
      }
      EXPECT_EQ(trouble.empty(), is_right || !is_followed)
          << to_string(config) << " in blocks of " << block_q << " from row " << order[0] << ": " << trouble;
    }
  }
}

// The key producer keeps a table's words of 1,024 blocks of a row, and for several rows their union.
TEST_F(ForwardWgmmaTest, TablesOfManyBlocks) {
  AttentionCase problem{.batch = 1, .heads_kv = 2, .seqlen_q = 100, .seqlen_kv = 16 * 1024 + 900};
  problem.spec.head_dim = 16;
  problem.seed = reference::test_seed();
  for (const auto& [mask, config] : {std::pair{"block_mask(64, 16)", "tile_q=64 tile_kv=16 stages_q=2"},
                                     {"block_mask(32, 16)", "tile_q=64 tile_kv=64"}}) {
    problem.spec.mask = parse_mask(mask);
    expect_right(problem, parse_config(fmt::format("family=forward_wgmma {}", config)));
  }
}

// Scores that differ by more than exponentials can hold, from one tile of keys to the next, and rows that see
// nothing of the first tile.
TEST_F(ForwardWgmmaTest, TilesThatOverflowAreComputedAgain) {
  int index = 0;
  for (const char* text : {"tile_q=128 tile_kv=32 stages_q=2 stages_v=2 order=ping_pong",
                           "tile_q=128 tile_kv=48 stages_q=2 order=free", "tile_q=64 tile_kv=16"}) {
    const KernelConfig config =
        parse_config(std::string("family=forward_wgmma rescale=on_overflow blocks_per_sm=1 ") + text);
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      ++index;  // another mask with the next type and config
      for (const Mask& mask : {Mask(), mask::causal(), mask::sliding_window(20, 0)}) {
        if (!is_in_this_run(index++, 3)) continue;
        for (const float amplitude : {4.0f, 12.0f}) {
          AttentionCase problem{.batch = 1, .heads_kv = 2, .seqlen_q = 150, .seqlen_kv = 160};
          problem.spec = {.dtype = dtype, .head_dim = 64, .mask = mask};
          problem.amplitude = amplitude;
          problem.seed = reference::test_seed();
          SCOPED_TRACE(::testing::Message() << to_string(config) << ", amplitude " << amplitude);
          expect_right(problem, config);
        }
      }
    }
  }
}

}  // namespace
}  // namespace jit::testing
