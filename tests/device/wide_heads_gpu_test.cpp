// Head dims above 256 on a device against fp64 on the CPU: warps share out the columns of what they sum.
#include <jit/attention.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing {
namespace {

struct WideDims {
  int keys, values;
};
// Multiples of 128 columns and others, one side within 256, and the least of both.
const std::vector<WideDims> wide_dims = {{512, 512}, {264, 264}, {320, 448},
                                         {512, 72},  {40, 384},  {456, 328}};

const KernelConfig wide_dense = parse_config(
    "family=forward_mma_sync tile_q=32 tile_kv=32 warps=2 stages_k=1 stages_v=1 blocks_per_sm=1");
const KernelConfig wide_few_rows = parse_config(
    "family=forward_mma_sync tile_q=16 tile_kv=16 warps=1 stages_k=2 stages_v=2 blocks_per_sm=1");
const KernelConfig wide_split =
    parse_config("family=forward_split_kv row_warps=1 key_warps=1 tile_kv=16 stages=2 blocks_per_sm=1");
const KernelConfig wide_split_rows =
    parse_config("family=forward_split_kv row_warps=2 key_warps=1 tile_kv=16 stages=2 blocks_per_sm=1");
const KernelConfig wide_split_keys =
    parse_config("family=forward_split_kv row_warps=1 key_warps=2 tile_kv=32 stages=2 blocks_per_sm=1");

class WideHeadsTest : public GpuTest {
 protected:
  static AttentionSpec spec_of(const WideDims& dims, int ratio = 1) {
    return {.head_dim = dims.keys, .head_dim_v = dims.values, .gqa_ratio = ratio};
  }
  // Configs that fit the shared memory of this device.
  bool fits(const AttentionSpec& spec, const KernelConfig& config) const {
    return config_rejection(spec, config, device_limits(device_)).empty();
  }
  void expect_gradients(const AttentionCase& problem, bool deterministic = false) const {
    try {
      BackwardRun run(problem);
      attention_when_called(problem.spec, context()).backward(run.arguments(deterministic));
      EXPECT_EQ(run.check(), "") << to_string(problem);
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
};

TEST_F(WideHeadsTest, DenseSequences) {
  std::vector<KernelCase> cases;
  for (const WideDims& dims : wide_dims) {
    AttentionSpec spec = spec_of(dims, 2);
    cases.push_back({problem_of(spec, 1, 1, 35, 70), wide_dense});
    spec.dtype = DType::fp16;
    spec.alignment = cases.size() % 2 == 0 ? 2 : 8;
    spec.mask = mask::causal();
    spec.score = score::softcap(4);
    cases.push_back({problem_of(spec, 1, 1, 41, 50, Layout::padded), wide_few_rows});
  }
  AttentionSpec masked = spec_of({512, 512}, 4);
  masked.mask = mask::sliding_window(9, 0) || mask::prefix(5);
  masked.score = score::alibi();
  cases.push_back({problem_of(masked, 1, 1, 50, 61)});
  expect_some_right(cases, 5);
}

TEST_F(WideHeadsTest, SplitKeys) {
  std::vector<KernelCase> cases;
  for (const WideDims& dims : wide_dims) {
    for (const KernelConfig& config : {wide_split, wide_split_rows, wide_split_keys}) {
      AttentionSpec spec = spec_of(dims, cases.size() % 2 == 0 ? 8 : 3);
      if (cases.size() % 3 == 0) spec.dtype = DType::fp16;
      spec.sinks = cases.size() % 4 == 0;
      spec.mask = mask::causal();
      if (fits(spec, config))
        cases.push_back({problem_of(spec, 2, 1, 1 + static_cast<int>(cases.size()) % 4, 150), config});
    }
  }
  AttentionSpec latents = spec_of({320, 256}, 16);
  latents.values_in_keys = true;
  cases.push_back({problem_of(latents, 1, 1, 2, 100), wide_split});
  AttentionSpec spans = spec_of({512, 384}, 2);
  spans.split_keys = 64;
  cases.push_back({problem_of(spans, 1, 1, 3, 200)});
  expect_some_right(cases, 5);
}

TEST_F(WideHeadsTest, PagesVarlenSequencesAndCaches) {
  std::vector<KernelCase> cases;
  const auto add = [&](const AttentionSpec& spec, std::optional<KernelConfig> config) {
    if (config && !fits(spec, *config)) config.reset();
    AttentionCase problem = problem_of(spec, 2, 1, 7, 130);
    problem.used_queries = {7, 1};
    problem.used_keys = {130, 77};
    cases.push_back({problem, config});
  };
  for (const WideDims& dims : {WideDims{512, 512}, {264, 320}, {384, 200}}) {
    AttentionSpec spec = spec_of(dims, 4);
    spec.mask = mask::causal();
    spec.sequences_q = SequenceKind::varlen;
    for (const int page_size : {1, 16, 48}) {
      spec.sequences_kv = SequenceKind::paged;
      spec.page_size = page_size;
      spec.sinks = page_size == 16;
      add(spec, wide_split);
      if (page_size == 1) continue;
      spec.kv_dtype = page_size == 16 ? DType::fp8_e4m3 : DType::fp8_e5m2;
      spec.alignment = (dims.keys | dims.values) % 16 == 0 ? 16 : 8;
      for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token}) {
        spec.descale_per = kind;
        add(spec, wide_split_keys);
      }
      spec.kv_dtype = {};
      spec.alignment = 16;
      spec.descale_per = ScaleKind::head;
    }
    spec.sequences_kv = SequenceKind::varlen;
    spec.page_size = 0;
    spec.sinks = false;
    add(spec, {});
  }
  AttentionSpec cache = spec_of({512, 512}, 3);
  cache.dtype = DType::fp16;
  cache.kv_dtype = DType::fp8_e4m3;
  cases.push_back({problem_of(cache, 1, 2, 3, 90)});
  expect_some_right(cases, 5);
}

TEST_F(WideHeadsTest, Gradients) {
  int index = 0;
  for (const WideDims& dims : wide_dims) {
    for (const bool causal : {false, true}) {
      AttentionSpec spec = spec_of(dims, causal ? 2 : 1);
      if (causal) spec.mask = mask::causal();
      if (causal) spec.score = score::softcap(4);
      spec.dtype = index % 3 == 0 ? DType::fp16 : DType::bf16;
      if (is_in_this_run(index++, 4)) expect_gradients(problem_of(spec, 1, 1, 35, 41), causal);
    }
  }
  AttentionSpec drops = spec_of({320, 512});
  drops.dropout = true;
  AttentionCase problem = problem_of(drops, 1, 2, 33, 40);
  problem.dropout_p = 0.3f;
  if (is_in_this_run(index++, 4)) expect_gradients(problem);
}

// Gradients of tensors that scores read, of sinks, and of a loss of LSE.
TEST_F(WideHeadsTest, GradientsOfTensors) {
  AttentionSpec spec = spec_of({512, 264}, 2);
  spec.mask = mask::causal();
  spec.score = score::bias();
  AttentionCase biased = problem_of(spec, 1, 1, 33, 40);
  biased.d_tensors = {"bias"};
  if (is_in_this_run(0, 2)) expect_gradients(biased);
  spec.score = {};
  spec.sinks = true;
  AttentionCase sinks = problem_of(spec, 1, 1, 33, 40);
  sinks.with_d_lse = true;
  if (is_in_this_run(1, 2)) expect_gradients(sinks);
}

// A row whose keys all have a bias of −1e9 is computed behind the others.
TEST_F(WideHeadsTest, GradientsOfLargeRows) {
  AttentionSpec spec = spec_of({512, 320}, 2);
  spec.score = score::text({.name = "far_away", .body = "return q % 3 == 0 ? score - 1e9f : score;"});
  AttentionCase problem = problem_of(spec, 1, 1, 20, 24);
  problem.score = [](double score, int, int, int q, int) { return q % 3 == 0 ? score - 1e9 : score; };
  expect_gradients(problem);
}

TEST_F(WideHeadsTest, GradientsOfVarlenSequences) {
  VarlenBackwardCase problem{.spec = spec_of({384, 512}, 2),
                             .heads_kv = 1,
                             .q = {.lengths = {0, 40, 1, 33}},
                             .kv = {.lengths = {40, 65, 20, 0}},
                             .seed = reference::next_seed()};
  problem.spec.sequences_q = problem.spec.sequences_kv = SequenceKind::varlen;
  problem.spec.mask = mask::causal();
  VarlenBackwardRun run(problem);
  attention_when_called(problem.spec, context()).backward(run.arguments());
  EXPECT_EQ(run.check(), "") << to_string(problem);
}

TEST_F(WideHeadsTest, WiderOnesAndThoseOfEightBitsAreRefused) {
  for (const auto& [spec, words] :
       {std::pair(AttentionSpec{.head_dim = 520}, "from 8 to 512"),
        {AttentionSpec{.dtype = DType::fp8_e4m3, .head_dim = 512}, "from 8 to 256"}}) {
    try {
      attention(spec, {}, context());
      ADD_FAILURE() << to_string(spec);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace jit::testing
