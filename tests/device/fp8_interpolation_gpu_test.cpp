// Exponentials of fp8 that are interpolated: masks, scores, scales and configs against double precision, and where they
// are and must not be.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/device/fp8_case.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/fp8_interpolation.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

class Fp8InterpolationTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "q of fp8 needs sm_90a";
  }
};

// P V sums P of the tiles of the second one alone.
constexpr const char* two =
    "tile_q=128 tile_kv=64 stages_q=2 stages_v=2 output=direct order=ping_pong converter_warps=2";
constexpr const char* summing =
    "tile_q=128 tile_kv=96 stages_q=2 stages_v=2 output=direct order=ping_pong converter_warps=2";

// Several tiles of keys, with sums by products and by lanes.
TEST_F(Fp8InterpolationTest, MasksScoresAndScales) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, int seqlen_q, int seqlen_kv, const auto& change,
                       const std::string& config) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, seqlen_q, seqlen_kv);
    problem.with_lse = false;
    problem.spec.mask = mask;
    problem.spec.score = score;
    change(problem.spec);
    cases.push_back({problem, parse_config("family=forward_wgmma " + config)});
  };
  const auto nothing = [](AttentionSpec&) {};
  const auto shared = [](AttentionSpec& spec) { spec.gqa_ratio = 3; };
  const auto of_tokens = [](AttentionSpec& spec) { spec.descale_per = ScaleKind::token; };
  const auto sinking = [](AttentionSpec& spec) { spec.sinks = true; };
  add({}, {}, 130, 400, shared, two);
  add({}, {}, 130, 400, nothing, summing);
  add(mask::causal(), {}, 300, 201, nothing, summing);  // rows without keys
  add(mask::causal(), {}, 201, 333, shared, two);
  add(mask::sliding_window(150, 0), {}, 260, 500, nothing, summing);
  add({}, score::alibi(), 130, 400, nothing, two);  // scores below zero that grow
  add(mask::causal(), score::alibi(), 70, 390, nothing, summing);
  add({}, score::softcap(3), 66, 410, of_tokens, two);
  add({}, {}, 130, 391, of_tokens, summing);
  add(mask::causal(), {}, 100, 390, sinking, two);
  add({}, {}, 1, 97, sinking, two);
  add({}, {}, 5, 0, nothing, summing);
  expect_some_right(cases, 4);
}

TEST_F(Fp8InterpolationTest, Configs) {
  std::vector<KernelCase> cases;
  const auto add = [&](DType dtype, int head_dim, const std::string& config) {
    AttentionCase problem = fp8_case(dtype, head_dim, 130, 400);
    problem.with_lse = false;
    cases.push_back({problem, parse_config("family=forward_wgmma stages_v=2 " + config)});
  };
  const DType e4m3 = DType::fp8_e4m3, e5m2 = DType::fp8_e5m2;
  add(e4m3, 256, "tile_q=64 tile_kv=96 output=direct converter_warps=4");
  add(e4m3, 192, "tile_q=128 tile_kv=96 output=direct order=ping_pong converter_warps=2");
  add(e5m2, 32, "tile_q=64 tile_kv=96 output=direct converter_warps=4");
  add(e4m3, 64, "tile_q=64 tile_kv=64 output=direct converter_warps=2 promote_every=2");
  add(e4m3, 64, "tile_q=128 tile_kv=128 stages_q=2 output=separate order=ping_pong converter_warps=2");
  add(e4m3, 32, "tile_q=192 tile_kv=160 stages_q=2 output=separate order=ping_pong converter_warps=2");
  expect_some_right(cases, 3);
}

TEST_F(Fp8InterpolationTest, RowsThatManyKeysShare) {
  for (const bool sums_by_products : {false, true})
    EXPECT_EQ(fault_of_spread_rows(sums_by_products, context()), "") << sums_by_products;
}

TEST_F(Fp8InterpolationTest, RowsThatOneKeyDominates) {
  const int keys = sized(8192, 3000);
  for (const int place : {0, keys / 2, keys - 1}) {
    for (const bool sums_by_products : {false, true})
      EXPECT_EQ(fault_of_dominated_rows(keys, place, sums_by_products, context()), "")
          << place << ", " << sums_by_products;
  }
}

TEST_F(Fp8InterpolationTest, SmallWeightsBesideALargeOne) {
  for (const int place : {0, 150, 299}) {
    for (const bool sums_by_products : {false, true})
      EXPECT_EQ(fault_of_small_weights(place, sums_by_products, context()), "")
          << place << ", " << sums_by_products;
  }
}

// In a later tile, among keys that are interpolated in either row of a lane.
TEST_F(Fp8InterpolationTest, KeysThatAreNoNumbers) {
  for (const int key : {200, 216, 399}) {
    for (const float score : {2.0f, -2.0f}) {
      for (const Mask& mask : {Mask(), mask::causal()})
        EXPECT_EQ(fault_of_no_number(key, score, mask, context()), "") << key << ", " << score;
    }
  }
}

// Rounding of large exponents would exceed the error of interpolation.
TEST_F(Fp8InterpolationTest, LargeExponents) {
  for (const bool sums_by_products : {false, true})
    EXPECT_EQ(fault_of_large_exponents(sums_by_products, context()), "") << sums_by_products;
}

// More work tiles than there are blocks, whose rows have sums of their own.
TEST_F(Fp8InterpolationTest, EqualBitsInAllBatches) {
  for (const bool sums_by_products : {false, true}) {
    for (const int batch : {1, 3, device_.sm_count + 2})
      EXPECT_EQ(fault_of_batches(batch, sums_by_products, context()), "") << sums_by_products;
  }
}

}  // namespace
}  // namespace jit::testing
