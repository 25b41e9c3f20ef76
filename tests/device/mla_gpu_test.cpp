// Values that are the first columns of keys, as multi-head latent attention has them. Varlen and paged sequences:
// tests/python/test_mla.py.
#include <jit/attention.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/stream_memory_words.h"

namespace jit::testing {
namespace {

/// Head dims of DeepSeek-V2 and -V3, and ones that take less time.
struct HeadDims {
  int keys, values;
};
constexpr HeadDims deepseek{576, 512}, small{192, 128};

AttentionCase case_of(HeadDims dims, int ratio, int batch, int seqlen_q, int seqlen_kv,
                      Layout layout = Layout::bshd) {
  return problem_of(
      {.head_dim = dims.keys, .head_dim_v = dims.values, .gqa_ratio = ratio, .values_in_keys = true}, batch,
      1, seqlen_q, seqlen_kv, layout);
}

KernelConfig config_of(const char* text) {
  return parse_config(std::string("family=forward_mla_wgmma ") + text);
}

std::vector<KernelConfig> configs() { return {config_of("stages=2"), config_of("stages=2 copies=cp_async")}; }

class MlaTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'})
      GTEST_SKIP() << "forward_mla_wgmma does not run on " << to_string(native_arch(device_));
  }
};

TEST_F(MlaTest, DecodesWithTheHeadDimsOfDeepSeek) {
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) {
    AttentionCase problem = case_of(deepseek, 16, 2, 1, 200);
    problem.spec.dtype = cases.size() % 2 == 0 ? DType::bf16 : DType::fp16;
    problem.spec.mask = mask::causal();
    cases.push_back({problem, config});
  }
  cases.push_back({case_of(deepseek, 128, 1, 1, 130)});
  cases.push_back({case_of(deepseek, 64, 1, 2, 65)});
  expect_some_right(cases, 4);
}

TEST_F(MlaTest, LengthsRatiosAndLayouts) {
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) {
    for (const int keys : {0, 1, 63, 64, 65, 129, 300})
      cases.push_back({case_of(small, 16, 2, 1, keys), config});
    cases.push_back({case_of(small, 24, 1, 3, 77, Layout::packed_qkv), config});
    cases.push_back({case_of(small, 128, 1, 4, 140, Layout::padded), config});
    AttentionCase prefill = case_of(small, 16, 1, 35, 100, Layout::bhsd);
    prefill.heads_kv = 2;
    prefill.spec.mask = mask::causal();
    cases.push_back({prefill, config});
  }
  expect_some_right(cases, 6);
}

// Tensors that TMA cannot map.
TEST_F(MlaTest, RowsThatRunBackwards) {
  expect_all_right({{case_of(small, 16, 1, 2, 100, Layout::reversed)},
                    {case_of(small, 16, 1, 2, 100, Layout::reversed), configs()[1]}});
}

TEST_F(MlaTest, MasksAndScores) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<KernelCase> cases;
  const auto add = [&](const char* mask, const char* score) {
    AttentionCase problem = case_of(small, 16, 2, 11, 150);
    problem.spec.mask = parse_mask(mask, masks);
    problem.spec.score = parse_score(score, scores);
    cases.push_back({problem, configs()[cases.size() % configs().size()]});
  };
  for (const char* mask :
       {"causal", "window(20, 0)", "prefix_lengths", "document", "tree", "draft_tree", "text(allowed-keys)",
        "block_mask(16, 64)", "causal && !causal", "text(ends_by_head)"})
    add(mask, "none");
  for (const char* score : {"softcap(15)", "alibi", "text(temperature), text(distance), alibi"})
    add("causal", score);
  expect_some_right(cases, 6);
}

// Tiles of rows that see the same keys: as many strands of the line, few or many units on each.
TEST_F(MlaTest, TilesOfRowsThatSeeTheSameKeys) {
  struct Sizes {
    int ratio, batch, queries, keys;
  };
  std::vector<KernelCase> cases;
  for (const auto [ratio, batch, queries, keys] : {Sizes{128, 90, 1, 200},  // more units than blocks
                                                   {128, 45, 2, 150},
                                                   {16, 40, 12, 150},  // three tiles of rows
                                                   {24, 14, 13, 150},  // five, and blocks left over
                                                   {16, 5, 27, 300},   // seven
                                                   {32, 1, 34, 20},    // more than there are blocks
                                                   {128, 1, 1, 20}}) {
    for (const Mask& mask : {mask::none(), mask::causal()}) {
      AttentionCase problem = case_of(small, ratio, batch, queries, keys);
      problem.spec.mask = mask;
      cases.push_back({problem, configs()[cases.size() % configs().size()]});
      if (queries != 2) continue;
      problem.spec.split_keys = 192;
      cases.push_back({problem, config_of("stages=2")});
    }
  }
  expect_some_right(cases, 4);
}

// Columns that are keys alone are as many as those of a part of the values, and come by pipelines of their own. Producers
// are ahead of those who multiply by as many tiles as there is room for.
TEST_F(MlaTest, KeysAloneAsWideAsAPartOfValues) {
  for (const char* config : {"stages=2 copies=cp_async", "stages=2"}) {
    AttentionCase problem = case_of(small, 16, 40, 12, 150);
    problem.spec.mask = mask::causal();
    expect_right(problem, config_of(config));
  }
}

TEST_F(MlaTest, RepeatedRunsAreBitIdenticalAndLeaveMailboxesEmpty) {
  const CurrentDevice current(0);
  int index = 0;
  for (const KernelConfig& config : configs()) {
    const int ratio = index % 3 == 0 ? 16 : 64;  // one block of a unit merges it, or all do
    if (!is_in_this_run(index++, 2)) continue;
    SCOPED_TRACE(to_string(config) + ", " + std::to_string(ratio) + " heads");
    const AttentionCase problem = case_of(small, ratio, 2, 2, sized(5000, 700));
    AttentionRun run(problem);
    const Attention kernel = attention(problem.spec, config, context());
    const TestStream stream;
    std::vector<unsigned char> first;
    for (int launch = 0; launch < sized(50, 2); ++launch) {
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

TEST_F(MlaTest, AnyNumberOfSplitsIsRight) {
  const CurrentDevice current(0);
  for (const int ratio : {8, 64}) {  // one block of a unit merges it, or all do
    const AttentionCase problem = case_of(small, ratio, 1, ratio == 8 ? 9 : 2, 900);
    AttentionRun run(problem);
    const Attention kernel = attention(problem.spec, configs()[0], context());
    for (const int num_splits : {1, 2, 3, 1000}) {
      AttentionArguments arguments = run.arguments();
      arguments.num_splits = num_splits;
      run.poison_outputs();
      kernel(arguments);
      check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
      EXPECT_EQ(run.check().failure, "") << ratio << " " << num_splits;
    }
  }
}

// Head dims that other families have room for: they read the values as a tensor of their own.
TEST_F(MlaTest, OtherFamiliesReadTheSame) {
  AttentionCase problem = case_of({64, 40}, 4, 2, 3, 130);
  expect_all_right({{problem, parse_config("family=forward_split_kv")},
                    {problem, parse_config("family=forward_split_wgmma tile_rows=64 tile_kv=64")},
                    {problem, parse_config("family=forward_mma_sync")},
                    {problem, parse_config("family=forward_wgmma")}});
}

TEST_F(MlaTest, ValuesBesideTheKeysAreRefused) {
  const CurrentDevice current(0);
  const AttentionCase problem = case_of(small, 16, 1, 1, 64);
  const AttentionRun run(problem);
  AttentionArguments arguments = run.arguments();
  arguments.v = arguments.k;
  const Error error = error_of([&] { attention(problem.spec, configs()[0], context())(arguments); });
  EXPECT_EQ(error.field(), "v");
  EXPECT_THAT(error.what(), ::testing::HasSubstr("values_in_keys"));
}

}  // namespace
}  // namespace jit::testing
