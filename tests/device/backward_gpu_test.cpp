// Gradients on a device against fp64 on the CPU: head dims, heads, lengths, layouts, masks, scores, configs.
#include <jit/attention.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/attention_state.h"
#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/kernels/families.h"
#include "generator/problem/gradient_arguments.h"
#include "tests/device/backward_run.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

BackwardCase case_of(const AttentionSpec& spec, int batch, int heads_kv, int seqlen_q, int seqlen_kv) {
  static std::uint64_t seed = reference::test_seed();
  return {.spec = spec,
          .batch = batch,
          .heads_kv = heads_kv,
          .seqlen_q = seqlen_q,
          .seqlen_kv = seqlen_kv,
          .seed = seed++};
}

class BackwardTest : public GpuTest {
 protected:
  static void expect_right(const BackwardCase& problem) {
    try {
      BackwardRun run(problem);
      attention_when_called(problem.spec, context()).backward(run.arguments());
      EXPECT_EQ(run.check(), "") << to_string(problem);
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
};

TEST_F(BackwardTest, HeadDims) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const int head_dim : {8, 24, 64, 72, 128, 200, 256})
      expect_right(case_of({.dtype = dtype, .head_dim = head_dim}, 1, 1, 35, 41));
  }
  for (const auto& [d, dv] : {std::pair(192, 128), {64, 256}, {256, 8}, {40, 72}})
    expect_right(case_of({.head_dim = d, .head_dim_v = dv}, 1, 2, 35, 41));
}

}  // namespace
}  // namespace jit::testing
