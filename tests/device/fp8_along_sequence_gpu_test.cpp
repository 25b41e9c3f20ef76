// Values of 8 bits that lie along the sequence: a row for each column, of all keys, behind whose last one lies poison.
// Types, head dims, lengths that fill no row, masks, scores and scales, against double precision.
#include <jit/attention.h>
#include <jit/tuning.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/access.h"
#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/forward_buffers.h"
#include "runtime/driver_api.h"
#include "tests/device/fp8_case.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

class AlongSequenceTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "v along the sequence needs sm_90a";
  }
  static KernelConfig config_of(const std::string& text) {
    return parse_config("family=forward_wgmma " + text);
  }
  static AttentionCase along_case(DType dtype, int head_dim, int seqlen_q, int seqlen_kv) {
    AttentionCase problem = fp8_case(dtype, head_dim, seqlen_q, seqlen_kv);
    problem.spec.v_along_sequence = true;
    return problem;
  }
};

constexpr const char* small_tiles = "tile_q=64 tile_kv=32 stages_q=2 stages_v=2 output=separate";

TEST_F(AlongSequenceTest, TypesOutputsAndConfigs) {
  std::vector<KernelCase> cases;
  int index = 0;
  for (const char* config :
       {"tile_q=128 tile_kv=128 stages_q=2 stages_v=2 output=separate order=ping_pong",
        "tile_q=128 tile_kv=160 stages_q=1 stages_v=2 output=direct",
        "tile_q=64 tile_kv=64 stages_q=2 stages_k=3 stages_v=3 output=separate promote_every=2",
        "tile_q=192 tile_kv=96 stages_v=2 output=separate order=ping_pong",
        "tile_q=64 tile_kv=192 stages_v=1 output=direct"}) {
    const DType dtype = index++ % 2 == 0 ? DType::fp8_e4m3 : DType::fp8_e5m2;
    cases.push_back({along_case(dtype, 64, 130, 200), config_of(config)});
  }
  for (const DType out : {DType::fp16, DType::fp32}) {
    AttentionCase problem = along_case(DType::fp8_e4m3, 32, 70, 90);
    problem.spec.out_dtype = out;
    problem.spec.gqa_ratio = 2;
    problem.with_lse = out != DType::fp16;
    cases.push_back({problem, {}});
  }
  expect_some_right(cases, 2);
}

// Columns that fill no step of the output, several panels of keys, gaps between rows.
TEST_F(AlongSequenceTest, HeadDimsAndGaps) {
  std::vector<KernelCase> cases;
  for (const auto& [d, dv] : {std::pair(8, 24), {72, 40}, {128, 192}, {256, 256}}) {
    AttentionCase problem = along_case(DType::fp8_e4m3, d, 33, 70);
    problem.spec.head_dim_v = dv;
    problem.layout = Layout::padded;  // rows keep 16 bytes
    cases.push_back({problem, config_of("tile_q=64 tile_kv=64 stages_v=2 output=direct")});
  }
  cases.push_back({along_case(DType::fp8_e5m2, 256, 130, 70), {}});
  expect_some_right(cases, 2);
}

// Keys end anywhere in a row, in a panel and in a tile, of which the last panel may have none.
TEST_F(AlongSequenceTest, LengthsThatFillNoRow) {
  std::vector<KernelCase> cases;
  for (const int seqlen_kv : {1, 15, 17, 31, 33, 129, 200}) {
    AttentionCase problem = along_case(DType::fp8_e4m3, 32, 20, seqlen_kv);
    problem.layout = seqlen_kv % 3 == 0 ? Layout::padded : Layout::bshd;
    cases.push_back({problem, config_of(seqlen_kv > 100 ? "tile_q=64 tile_kv=192 stages_v=2 output=direct"
                                                        : small_tiles)});
  }
  cases.push_back({along_case(DType::fp8_e4m3, 32, 5, 0), config_of(small_tiles)});
  expect_all_right(cases);
}

TEST_F(AlongSequenceTest, MasksAndScores) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, int seqlen_q, int seqlen_kv) {
    AttentionCase problem = along_case(DType::fp8_e4m3, 32, seqlen_q, seqlen_kv);
    problem.spec.gqa_ratio = 3;
    problem.spec.mask = mask;
    problem.spec.score = score;
    cases.push_back(
        {problem,
         config_of(cases.size() % 2 == 0 ? small_tiles : "tile_q=128 tile_kv=32 stages_v=2 output=direct")});
  };
  add(mask::causal(), {}, 150, 150);
  add(mask::causal(), score::softcap(3), 140, 90);  // rows without a key
  add(mask::sliding_window(40, 0), score::alibi(), 90, 130);
  add(mask::document(), score::bias(), 70, 70);
  expect_some_right(cases, 2);
}

// Scales of every kind, means, and what LSE has lost.
TEST_F(AlongSequenceTest, ScalesAndMeans) {
  std::vector<KernelCase> cases;
  for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token, ScaleKind::block}) {
    for (const bool given_back : {false, true}) {
      AttentionCase problem = along_case(DType::fp8_e4m3, 32, 130, 170);
      AttentionSpec& spec = problem.spec;
      spec.head_dim_v = 48;
      spec.gqa_ratio = 2;
      spec.descale_per = kind;
      spec.v_mean = spec.lse_shift = given_back;
      if (given_back) spec.v_descale_per = ScaleKind::channel;
      if (!given_back) spec.mask = mask::causal();
      cases.push_back(
          {problem, config_of(given_back ? "tile_q=128 tile_kv=64 stages_q=2 stages_v=2 output=separate"
                                         : small_tiles)});
    }
  }
  expect_some_right(cases, 2);
}

// No lengths are read then, so that scales of blocks stay factors of tiles, and blocks need not stay.
TEST_F(AlongSequenceTest, Sinks) {
  std::vector<KernelCase> cases;
  for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token, ScaleKind::block}) {
    AttentionCase problem = along_case(DType::fp8_e4m3, 32, 130, 170);
    problem.spec.gqa_ratio = 2;
    problem.spec.sinks = true;
    problem.spec.descale_per = kind;
    problem.spec.v_mean = kind != ScaleKind::token;
    problem.spec.mask = kind == ScaleKind::block ? mask::none() : mask::causal();
    cases.push_back({problem, config_of(small_tiles)});
    cases.push_back({problem, config_of("tile_q=128 tile_kv=64 stages_q=2 stages_v=2 output=separate")});
  }
  expect_all_right(cases);
}

// Persistent blocks that take several work tiles; results are the same bits again.
TEST_F(AlongSequenceTest, ManyTilesOfManyHeads) {
  const CurrentDevice current(0);
  AttentionCase problem = along_case(DType::fp8_e4m3, 32, 100, 60);
  problem.heads_kv = device_.sm_count / 4 + 3;
  problem.spec.mask = mask::causal();
  AttentionRun run(problem);
  const Attention kernel = attention(problem.spec, config_of(small_tiles), context());
  std::vector<unsigned char> first;
  for (int launch = 0; launch < 2; ++launch) {
    run.poison_outputs();
    kernel(run.arguments());
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    if (launch == 0) {
      first = run.outputs();
      EXPECT_EQ(run.check().failure, "");
    }
  }
  EXPECT_EQ(run.outputs(), first);
}

// The tuner lays values out so, too, and its reference reads them.
TEST_F(AlongSequenceTest, TheTunersReferenceReadsTheSame) {
  const CurrentDevice scope(0);
  const Context fresh(shared_cache_settings());
  ContextState& state = *Access::state(fresh);
  const TestStream stream;
  AttentionSpec spec{.dtype = DType::fp8_e4m3, .head_dim = 32, .head_dim_v = 48, .v_along_sequence = true};
  const AttentionArguments arguments = sized_arguments(spec, {.heads_q = 2, .seqlen_q = 70, .seqlen_kv = 90});
  AttentionParams params;
  EXPECT_TRUE(fill_params(spec, {}, arguments, params));
  const ForwardBuffers buffers(state, spec, device_, params, stream.get());
  const auto checked = [&](const AttentionSpec& of) {
    BuiltKernel kernel = build_kernel(state, of, config_of(small_tiles), native_target(device_));
    return buffers.check(make_plan(state, of, std::move(kernel), 0, "test"), stream.get());
  };
  EXPECT_EQ(checked(spec), "");
  for (const SequenceKind keys : {SequenceKind::ragged, SequenceKind::paged}) {
    AttentionSpec own = spec;
    own.sequences_kv = keys;
    if (keys == SequenceKind::paged) own.page_size = 32;
    AttentionParams of_kind;
    EXPECT_TRUE(
        fill_params(own, {}, sized_arguments(own, {.heads_q = 2, .seqlen_q = 70, .seqlen_kv = 90}), of_kind));
    of_kind.batch = 2;
    const ForwardBuffers own_buffers(state, own, device_, of_kind, stream.get());
    BuiltKernel kernel = build_kernel(state, own, config_of(small_tiles), native_target(device_));
    EXPECT_EQ(own_buffers.check(make_plan(state, own, std::move(kernel), 0, "test"), stream.get()), "");
  }
  AttentionSpec other = spec;
  other.mask = mask::causal();
  EXPECT_THAT(checked(other), ::testing::StartsWith("wrong: "));
}

TEST_F(AlongSequenceTest, OtherFamiliesAreRefused) {
  using ::testing::HasSubstr;
  const CurrentDevice current(0);
  AttentionCase problem = along_case(DType::fp8_e4m3, 32, 20, 40);
  for (const char* family : {"forward_mma_sync", "forward_split_kv"}) {
    const Error error =
        error_of([&] { attention(problem.spec, parse_config(std::string("family=") + family), context()); });
    EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
    EXPECT_THAT(error.message(), HasSubstr("which forward_wgmma reads on sm_90a")) << family;
  }
}

}  // namespace
}  // namespace jit::testing
