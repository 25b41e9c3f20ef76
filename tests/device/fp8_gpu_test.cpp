// Queries, keys and values of 8 bits: types, head dims, configs, masks, scores, scales and sequences, against double
// precision over the numbers that codes and scales stand for.
#include <jit/attention.h>
#include <jit/tuning.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

class Fp8Test : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "q of fp8 needs sm_90a";
  }
  static KernelConfig config_of(const std::string& text) {
    return parse_config("family=forward_wgmma " + text);
  }
};

constexpr const char* small = "tile_q=64 tile_kv=32 stages_q=2 stages_v=2 separate_o=true";

AttentionCase case_of(DType dtype, int head_dim, int seqlen_q, int seqlen_kv) {
  static std::uint64_t seed = reference::test_seed();
  AttentionCase problem{.batch = 2, .heads_kv = 2, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv};
  problem.spec.dtype = dtype;
  problem.spec.head_dim = head_dim;
  problem.seed = seed++;
  return problem;
}

TEST_F(Fp8Test, TypesOutputsAndConfigs) {
  std::vector<KernelCase> cases;
  for (const char* config :
       {"tile_q=128 tile_kv=128 stages_q=2 stages_v=2 separate_o=true order=ping_pong",
        "tile_q=128 tile_kv=160 stages_q=1 stages_v=2 direct_o=true rescale=always",
        "tile_q=64 tile_kv=64 stages_q=2 stages_k=3 stages_v=3 separate_o=true q_in_registers=true",
        "tile_q=192 tile_kv=96 stages_v=2 separate_o=true overlap=false order=softmax_lock"}) {
    for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2})
      cases.push_back({case_of(dtype, 64, 130, 200), config_of(config)});
  }
  for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
    AttentionCase problem = case_of(DType::fp8_e4m3, 64, 70, 90);
    problem.spec.out_dtype = out;
    problem.spec.gqa_ratio = 2;
    cases.push_back({problem, {}});
  }
  expect_all_right(cases);
}

}  // namespace
}  // namespace jit::testing
