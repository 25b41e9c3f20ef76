// Keys and values of 8 bits that a kernel of its own makes numbers of 16 of, ahead of the one that reads them: against
// double precision over the numbers that codes and scales stand for. Rows of nobody hold no numbers, as the workspace does.
#include <jit/attention.h>
#include <jit/dtype.h>
#include <jit/tuning.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/forward_buffers.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

class UpcastAheadTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "needs sm_90a";
  }
  static KernelConfig ahead(const char* text) {
    return parse_config(fmt::format("family=forward_wgmma upcast_ahead=true {}", text));
  }
};

constexpr const char* two_consumers = "tile_q=128 tile_kv=64 stages_k=2 stages_v=2 order=ping_pong";

AttentionCase case_of(int head_dim, int head_dim_v = 0) {
  return problem_of({.head_dim = head_dim,
                     .head_dim_v = head_dim_v,
                     .gqa_ratio = 2,
                     .kv_dtype = DType::fp8_e4m3,
                     .mask = mask::causal()},
                    3, 2, 150, 210);
}

// Requests without keys, with fewer than queries, with some rows of a second chunk.
AttentionCase paged(AttentionCase problem, int page_size) {
  problem.spec.sequences_q = SequenceKind::varlen;
  problem.spec.sequences_kv = SequenceKind::paged;
  problem.spec.page_size = page_size;
  problem.used_queries = {70, 1, 150};
  problem.used_keys = {0, 33, 210};
  return problem;
}

TEST_F(UpcastAheadTest, PagesOfVarlenRequests) {
  std::vector<KernelCase> cases;
  cases.push_back({paged(case_of(128), 16), ahead(two_consumers)});
  AttentionCase narrow = paged(case_of(64), 2);  // by TMA pages of 8 rows are the smallest
  narrow.spec.kv_dtype = DType::fp8_e5m2;
  cases.push_back({narrow, ahead("tile_q=64 tile_kv=48 stages_v=2 rescale=on_overflow")});
  AttentionCase odd = paged(case_of(80, 40), 64);
  odd.spec.dtype = DType::fp16;
  odd.layout = Layout::padded;
  cases.push_back({odd, ahead("tile_q=128 tile_kv=80 stages_k=2 output=direct order=ping_pong")});
  AttentionCase wide = paged(case_of(256, 192), 8);
  wide.spec.gqa_ratio = 1;
  wide.spec.mask = mask::sliding_window(50, 0);
  cases.push_back({wide, ahead("tile_q=64 tile_kv=32")});
  expect_some_right(cases, 2);
}

TEST_F(UpcastAheadTest, DenseAndVarlenKeys) {
  std::vector<KernelCase> cases;
  cases.push_back({case_of(64, 128), ahead("tile_q=192 tile_kv=64 output=separate order=ping_pong")});
  AttentionCase used = case_of(72);
  used.spec.kv_dtype = DType::fp8_e5m2;
  used.spec.mask = mask::none();
  used.layout = Layout::padded;  // rows of 72 elements keep 16 bytes
  used.used_keys = {129, 0, 64};
  cases.push_back({used, ahead(two_consumers)});
  AttentionCase varlen = case_of(128);
  varlen.spec.sequences_q = varlen.spec.sequences_kv = SequenceKind::varlen;
  varlen.used_queries = {150, 2, 1};
  varlen.used_keys = {150, 0, 140};
  varlen.spare_rows = 3;
  cases.push_back({varlen, ahead("tile_q=128 tile_kv=112 stages_q=2 rescale=lazy")});
  expect_some_right(cases, 2);
}

// Scales reach scores that a functor sees, and sums that contain sinks.
TEST_F(UpcastAheadTest, ScoresSinksAndMasks) {
  std::vector<KernelCase> cases;
  AttentionCase capped = paged(case_of(64), 16);
  capped.spec.score = score::softcap(20);
  capped.spec.sinks = true;
  cases.push_back({capped, ahead(two_consumers)});
  AttentionCase documents = case_of(64);
  documents.spec.mask = mask::document();
  documents.spec.score = score::alibi();
  cases.push_back({documents, ahead(two_consumers)});
  expect_some_right(cases, 2);
}

// A call leaves nothing to the next one on its stream, however the workspace was filled.
TEST_F(UpcastAheadTest, AnyWorkspaceWillDo) {
  const CurrentDevice scope(0);
  const Context context(shared_cache_settings());
  const StreamMemory& memory = Access::state(context)->memory;
  const AttentionCase problem = paged(case_of(64), 16);
  const Attention attend = attention(problem.spec, ahead(two_consumers), context);
  AttentionRun run(problem);
  const std::int64_t rows = (problem.seqlen_kv + 15) / 16 * 16;
  const auto bytes = static_cast<std::size_t>(problem.batch * problem.heads_kv * rows * 2 * 64 * 2);
  void* const workspace = StreamLease(memory, 0, nullptr).workspace(bytes);
  check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(workspace), 0xff, bytes, nullptr),
        "cuMemsetD8Async");
  attend(run.arguments());
  EXPECT_EQ(run.check().failure, "");
  std::vector<unsigned char> left(bytes);
  check(driver().cuMemcpyDtoHAsync(left.data(), reinterpret_cast<CUdeviceptr>(workspace), bytes, nullptr),
        "cuMemcpyDtoHAsync");
  check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  // The request without keys is first: whole heads of nothing.
  const std::size_t nobodys = static_cast<std::size_t>(problem.heads_kv * rows * 64 * 2);
  EXPECT_TRUE(std::all_of(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(nobodys),
                          [](unsigned char byte) { return byte == 0xff; }))
      << "rows that are no request's were written";
  EXPECT_FALSE(std::all_of(left.begin() + static_cast<std::ptrdiff_t>(nobodys), left.end(),
                           [](unsigned char byte) { return byte == 0xff; }))
      << "it is another workspace than this test looks at";
  AttentionCase later = problem;
  later.seed += 1000;
  later.used_keys = {190, 0, 3};
  AttentionRun other(later);
  attend(other.arguments());
  EXPECT_EQ(other.check().failure, "");
  run.poison_outputs();
  attend(run.arguments());
  EXPECT_EQ(run.check().failure, "");
}

// The cost model's plan of a prefill, without a config.
TEST_F(UpcastAheadTest, IsChosenForManyQueries) {
  const Context context(shared_cache_settings());
  AttentionSpec spec = paged(case_of(128), 16).spec;
  spec.gqa_ratio = 4;
  const Attention attend = attention(spec, {}, context);
  const auto upcasts = [&](const Attention& one, std::int64_t batch, std::int64_t queries,
                           std::int64_t keys) {
    const AttentionShape shape{.batch = batch, .heads_q = 32, .seqlen_q = queries, .seqlen_kv = keys};
    const KernelConfig config = one.kernel(sized_arguments(spec, shape)).config();
    const auto* const own = std::get_if<ForwardWgmma>(&config);
    return own != nullptr && own->upcast_ahead;
  };
  EXPECT_TRUE(upcasts(attend, 8, 2048, 2048));
  EXPECT_FALSE(upcasts(attend, 8, 16, 2048)) << "each key is read by few tiles of queries";
  EXPECT_FALSE(upcasts(attend, 8, 2048, 65536)) << "the workspace would be larger than it may";
  const KernelConfig of_any_size = attend.kernel().config();
  const auto* const own = std::get_if<ForwardWgmma>(&of_any_size);
  EXPECT_FALSE(own != nullptr && own->upcast_ahead) << "calls of all sizes may run it under capture";
}

// Candidates are measured, and checked, on the tuner's own keys and values.
TEST_F(UpcastAheadTest, TheTunersReferenceReadsTheSame) {
  const CurrentDevice scope(0);
  const Context context(shared_cache_settings());
  ContextState& state = *Access::state(context);
  const TestStream stream;
  AttentionSpec spec = paged(case_of(64), 16).spec;
  const AttentionArguments arguments =
      sized_arguments(spec, {.batch = 2, .heads_q = 4, .seqlen_q = 100, .seqlen_kv = 160});
  AttentionParams params;
  ASSERT_TRUE(fill_params(spec, {}, arguments, params));
  const ForwardBuffers buffers(state, spec, device_, params, stream.get());
  const auto check_of = [&](const KernelConfig& config) {
    return buffers.check(
        make_plan(state, spec, build_kernel(state, spec, config, native_target(device_)), 0, "test"),
        stream.get());
  };
  EXPECT_EQ(check_of(ahead(two_consumers)), "");
}

TEST_F(UpcastAheadTest, TheTunersReferenceReadsCachesOfFewerBits) {
  const CurrentDevice scope(0);
  const Context context(shared_cache_settings());
  ContextState& state = *Access::state(context);
  const TestStream stream;
  for (const DType stored :
       reference::some_of<DType>({DType::int8, DType::int4, DType::nvfp4, DType::mxfp4}, 2)) {
    AttentionSpec spec = paged(case_of(128), 16).spec;
    spec.kv_dtype = stored;
    if (facts(stored).scale_columns == 0) spec.descale_per = ScaleKind::token;
    const AttentionArguments arguments =
        sized_arguments(spec, {.batch = 2, .heads_q = 4, .seqlen_q = 20, .seqlen_kv = 160});
    AttentionParams params;
    ASSERT_TRUE(fill_params(spec, {}, arguments, params));
    const ForwardBuffers buffers(state, spec, device_, params, stream.get());
    for (const KernelConfig& config :
         {ahead(two_consumers), parse_config("family=forward_split_kv copies=tma tile_kv=64 stages=2")}) {
      EXPECT_EQ(buffers.check(make_plan(state, spec,
                                        build_kernel(state, spec, config, native_target(device_)), 0, "test"),
                              stream.get()),
                "")
          << to_string(stored);
    }
  }
}

TEST_F(UpcastAheadTest, WhatCannotBeServedIsRefused) {
  AttentionCase problem = paged(case_of(64), 16);
  problem.spec.checked = true;
  const Error checked = error_of([&] { attention(problem.spec, ahead(two_consumers)); });
  EXPECT_EQ(checked.code(), ErrorCode::no_valid_config);
  EXPECT_THAT(checked.message(), ::testing::HasSubstr("upcast_ahead must be false with checked and pages"));
}

}  // namespace
}  // namespace jit::testing
