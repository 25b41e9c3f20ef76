// Properties of families whose keys are split over blocks: rows of several heads in one tile, keys shared by
// blocks, counters. Varlen and paged sequences: tests/python/test_sequences.py.
#include <jit/attention.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/stream_memory_words.h"

namespace jit::testing {
namespace {

struct TestedFamily {
  const char* label;  ///< in names of tests
  const char* name;
  Arch least;                        ///< that it runs on
  bool on_one_arch;                  ///< and on no later one
  std::vector<const char*> configs;  ///< one for each way to share rows and keys among warps
  const char* small;                 ///< for large head dims
  const char* large;                 ///< with the largest tiles, as for prefill
};
std::ostream& operator<<(std::ostream& out, const TestedFamily& family) { return out << family.label; }

const std::vector<TestedFamily>& families() {
  static const std::vector<TestedFamily> families = {
      {.label = "forward_split_kv",
       .name = "forward_split_kv",
       .least = {8, 0},
       .on_one_arch = false,
       .configs = {"row_warps=1 key_warps=4 tile_kv=64 stages=3 blocks_per_sm=1",
                   "row_warps=2 key_warps=2 tile_kv=32 stages=2",
                   "row_warps=4 key_warps=1 tile_kv=16 stages=4 blocks_per_sm=1",
                   "row_warps=1 key_warps=1 tile_kv=48 stages=2 blocks_per_sm=1"},
       .small = "key_warps=2 tile_kv=32 stages=2 blocks_per_sm=1",
       .large = "row_warps=4 key_warps=1 tile_kv=64 stages=2 blocks_per_sm=1"},
      {.label = "forward_split_kv_by_tma",
       .name = "forward_split_kv",
       .least = {9, 0, 'a'},
       .on_one_arch = true,
       .configs = {"copies=tma row_warps=1 key_warps=4 tile_kv=128 stages=2",
                   "copies=tma row_warps=2 key_warps=2 tile_kv=32 stages=3",
                   "copies=tma row_warps=4 key_warps=1 tile_kv=16 stages=4",
                   "copies=tma row_warps=1 key_warps=1 tile_kv=48 stages=2 blocks_per_sm=1"},
       .small = "copies=tma key_warps=2 tile_kv=32 stages=2 blocks_per_sm=1",
       .large = "copies=tma row_warps=4 key_warps=1 tile_kv=64 stages=2 blocks_per_sm=1"},
      {.label = "forward_split_wgmma",
       .name = "forward_split_wgmma",
       .least = {9, 0, 'a'},
       .on_one_arch = true,
       .configs = {"tile_rows=64 tile_kv=64 stages=2", "tile_rows=128 tile_kv=32 stages=2",
                   "tile_rows=64 tile_kv=16 stages=4 stages_q=2",
                   "tile_rows=128 tile_kv=48 stages=1 stages_q=2"},
       .small = "tile_rows=64 tile_kv=32 stages=1",
       .large = "tile_rows=128 tile_kv=128 stages=2"},
      {.label = "forward_split_cluster",
       .name = "forward_split_cluster",
       .least = {9, 0, 'a'},
       .on_one_arch = true,
       .configs = {"cluster=8 block_warps=2 tile_kv=16 stages=3",
                   "cluster=4 block_warps=4 tile_kv=32 stages=2",
                   "cluster=16 block_warps=1 tile_kv=16 stages=2",
                   "cluster=1 block_warps=3 tile_kv=16 stages=5"},
       .small = "cluster=2 block_warps=2 tile_kv=16 stages=2",
       .large = "cluster=2 block_warps=4 tile_kv=32 stages=2"}};
  return families;
}

class SplitKeysTest : public GpuTest, public ::testing::WithParamInterface<TestedFamily> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const Arch arch = native_arch(device_), least = GetParam().least;
    const bool runs = GetParam().on_one_arch
                          ? arch == least
                          : std::pair(arch.major, arch.minor) >= std::pair(least.major, least.minor);
    if (!runs) GTEST_SKIP() << GetParam().name << " does not run on " << to_string(arch);
  }

  static KernelConfig config_of(const char* text) {
    return parse_config(fmt::format("family={} {}", GetParam().name, text));
  }
  static std::vector<KernelConfig> configs() {
    std::vector<KernelConfig> configs;
    for (const char* text : GetParam().configs) configs.push_back(config_of(text));
    return configs;
  }
};

/// Query heads of a KV head, of 64 columns each: the block with the first part of a unit merges it, or all of its blocks do.
constexpr int merged_by_one = 4, merged_by_all = 64;

AttentionCase case_of(int ratio, int batch, int seqlen_q, int seqlen_kv, Layout layout = Layout::bshd) {
  return problem_of({.head_dim = 64, .gqa_ratio = ratio}, batch, 2, seqlen_q, seqlen_kv, layout);
}

TEST_P(SplitKeysTest, LengthsRatiosAndLayouts) {
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) {
    cases.push_back({case_of(4, 2, 1, 500), config});
    cases.push_back({case_of(1, 1, 1, 1), config});
    cases.push_back({case_of(1, 2, 3, 0), config});
    cases.push_back({case_of(3, 1, 9, 130, Layout::bhsd), config});
    cases.push_back({case_of(7, 2, 5, 64, Layout::padded), config});
    if (!GetParam().on_one_arch) cases.push_back({case_of(24, 1, 2, 77, Layout::reversed), config});
    cases.push_back({case_of(24, 1, 2, 77), config});
    cases.push_back({case_of(2, 1, 33, 200, Layout::packed_qkv), config});
  }
  expect_some_right(cases, 8);
}

TEST_P(SplitKeysTest, HeadDimsAndAlignments) {
  std::vector<KernelCase> cases;
  for (const auto& [d, dv] : {std::pair(8, 8), {40, 72}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      AttentionCase problem = case_of(4, 1, 2, 100);
      problem.spec.dtype = dtype;
      problem.spec.head_dim = d;
      problem.spec.head_dim_v = dv;
      cases.push_back({problem, config_of(GetParam().small)});
    }
  }
  for (const int alignment : {2, 4, 8}) {
    if (GetParam().on_one_arch) break;  // TMA wants rows aligned to 16 bytes
    AttentionCase problem = case_of(2, 1, 3, 70, Layout::padded);
    problem.spec.alignment = alignment;
    cases.push_back({problem, configs()[0]});
  }
  expect_some_right(cases, 5);
}

// The line of work is as long for one KV head as for another, though the first of them sees fewest keys.
TEST_P(SplitKeysTest, KvHeadsThatSeeDifferentKeys) {
  AttentionCase problem = case_of(1, 2, 5, 700);
  problem.heads_kv = 3;
  problem.spec.mask = parse_mask("text(grows_by_head)", reference::mask_texts());
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) cases.push_back({problem, config});
  expect_some_right(cases, 2);
}

TEST_P(SplitKeysTest, MasksAndScores) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<KernelCase> cases;
  const auto add = [&](const char* mask, const char* score) {
    AttentionCase problem = case_of(3, 2, 11, 150);
    problem.spec.head_dim = 32;
    problem.spec.mask = parse_mask(mask, masks);
    problem.spec.score = parse_score(score, scores);
    cases.push_back({problem, configs()[cases.size() % configs().size()]});
  };
  for (const char* mask : {"causal",
                           "causal(top_left)",
                           "window(20, 0)",
                           "window(0, 5, top_left)",
                           "prefix(40)",
                           "prefix_lengths",
                           "document",
                           "tree",
                           "causal_per_request",
                           "draft_tree",
                           "!draft_tree",
                           "draft_tree && window(9, 5)",
                           "causal_per_request || document",
                           "text(stripes)",
                           "text(allowed-keys)",
                           "text(blocks)",
                           "text(by_head.and_batch)",
                           "text(ends_by_head)",
                           "text(recent)",
                           "text(band)",
                           "!causal",
                           "block_mask(16, 64)",
                           "block_mask(16, 32, causal)",
                           "!block_mask(16, 16) && window(90, 0)",
                           "window(16, 16) || prefix(8) && causal",
                           "!(causal && text(blocks))",
                           "causal && !causal"})
    add(mask, "none");
  for (const char* score :
       {"softcap(15)", "alibi", "bias", "bias(fp16)", "text(distance)", "text(temperature)", "text(offsets)",
        "softcap(30), alibi", "text(temperature), text(distance), alibi"})
    add("causal", score);
  expect_some_right(cases, 11);
}

// Several tiles of rows of a head, too few units to deal them: as many strands of the line.
TEST_P(SplitKeysTest, TilesOfRowsThatSeeTheSameKeys) {
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) {
    for (const int queries : {8, 12, 40, 96}) {  // two or three tiles of some configs, up to 24 of others
      AttentionCase problem = case_of(4, 1 + 160 / queries, queries, 170);
      cases.push_back({problem, config});
      problem.spec.mask = mask::causal();
      cases.push_back({problem, config});
    }
  }
  expect_some_right(cases, 6);
}

TEST_P(SplitKeysTest, RepeatedRunsAreBitIdenticalAndLeaveMailboxesEmpty) {
  const CurrentDevice current(0);
  int index = 0;
  for (const KernelConfig& config : configs()) {
    const int ratio = index % 3 == 0 ? merged_by_one : merged_by_all;
    if (!is_in_this_run(index++, 2)) continue;
    SCOPED_TRACE(to_string(config) + ", " + std::to_string(ratio) + " heads of a KV head");
    const AttentionCase problem = case_of(ratio, 2, 2, sized(5000, 700));
    AttentionRun run(problem);
    const Attention kernel = attention(problem.spec, config, context());
    const TestStream stream;
    std::vector<unsigned char> first;
    for (int launch = 0; launch < sized(50, 3); ++launch) {
      run.poison_outputs();
      kernel(run.arguments(), stream.get());
      stream.synchronize();
      EXPECT_EQ(disorder(context(), stream.get()), "") << "launch " << launch;
      if (launch == 0) {
        first = run.outputs();
        EXPECT_EQ(run.check().failure, "");
      }
      ASSERT_EQ(run.outputs(), first) << "launch " << launch;
    }
  }
}

TEST_P(SplitKeysTest, AnyNumberOfSplitsIsRight) {
  const CurrentDevice current(0);
  for (const int ratio : {merged_by_one, merged_by_all}) {
    const AttentionCase problem = case_of(ratio, 1, 3, ratio == merged_by_one ? 900 : sized(900, 300));
    AttentionRun run(problem);
    const Attention kernel = attention(problem.spec, configs()[1], context());
    for (const int num_splits : {1, 2, 3, 7, 1000}) {
      AttentionArguments arguments = run.arguments();
      arguments.num_splits = num_splits;
      run.poison_outputs();
      kernel(arguments);
      check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
      EXPECT_EQ(run.check().failure, "") << ratio << " " << num_splits;
    }
  }
}

// Many parts of one unit: they are merged in groups, or groups of lanes share them.
TEST_P(SplitKeysTest, ManyPartsAreMerged) {
  const CurrentDevice current(0);
  int index = 0;
  for (const KernelConfig& config : configs()) {
    for (const int ratio : {merged_by_one, merged_by_all}) {
      if (!is_in_this_run(index++, 4)) continue;
      const AttentionCase problem{.spec = {.head_dim = 64, .gqa_ratio = ratio},
                                  .batch = 1,
                                  .heads_kv = 1,
                                  .seqlen_q = ratio == merged_by_one ? 2 : 1,
                                  .seqlen_kv = sized(20000, 3000)};
      AttentionRun run(problem);
      run.poison_outputs();
      attention(problem.spec, config, context())(run.arguments());
      check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
      EXPECT_EQ(run.check().failure, "") << to_string(config) << " " << ratio;
    }
  }
}

// Rows whose pieces are no power of two, beside tiles that leave few registers.
TEST_P(SplitKeysTest, LargeTilesAreMerged) {
  const CurrentDevice current(0);
  struct Rows {
    int head_dim, ratio, queries;
  };
  int index = 0;
  for (const auto [head_dim, ratio, queries] : {Rows{40, 4, 33}, {80, 4, 33}, {40, 128, 1}, {80, 64, 2}}) {
    if (!is_in_this_run(index++, 2)) continue;
    for (const int keys : {300, 1500}) {  // few parts, and many
      const AttentionCase problem{.spec = {.head_dim = head_dim, .gqa_ratio = ratio},
                                  .batch = 1,
                                  .heads_kv = 2,
                                  .seqlen_q = queries,
                                  .seqlen_kv = keys};
      AttentionRun run(problem);
      run.poison_outputs();
      attention(problem.spec, config_of(GetParam().large), context())(run.arguments());
      check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
      EXPECT_EQ(run.check().failure, "") << head_dim << " " << ratio << " " << keys;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, SplitKeysTest, ::testing::ValuesIn(families()),
                         [](const auto& info) { return std::string(info.param.label); });

}  // namespace
}  // namespace jit::testing
