// Attention through jit/c.h beside the references of the C++ interface's tests.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/capi/c_tensors.h"
#include "tests/support/attention_run.h"
#include "tests/support/backward_run.h"
#include "tests/support/fresh_folder.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Runs a forward call through the C interface and expects what the reference says.
void expect_right(const AttentionCase& problem) {
  const CContext context = make_context();
  const std::string text = text_of(problem.spec);
  SCOPED_TRACE(text);
  const COperation attention = make_operation(context, JIT_ATTENTION, text);
  AttentionRun run(problem);
  CTensors tensors;
  const jit_forward_arguments arguments = c_arguments(run.arguments(), tensors);
  expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &arguments, nullptr, error); });
  EXPECT_EQ(run.check().failure, "");
}

TEST(CAttention, MasksAndGroupedQueries) {
  expect_right({.spec = {.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal() && mask::sliding_window(30)},
                .batch = 2,
                .heads_kv = 2,
                .seqlen_q = 50,
                .seqlen_kv = 70});
}

TEST(CAttention, TensorsOfScoresGoByName) {
  expect_right({.spec = {.dtype = DType::fp16,
                         .head_dim = 32,
                         .score = score::softcap(5).then(score::alibi()).then(score::bias(DType::bf16)),
                         .softmax_scale = 0.3f},
                .heads_kv = 2,
                .seqlen_q = 33,
                .seqlen_kv = 40});
}

TEST(CAttention, VarlenQueriesOverPages) {
  expect_right({.spec = {.head_dim = 64,
                         .gqa_ratio = 4,
                         .sequences_q = SequenceKind::varlen,
                         .sequences_kv = SequenceKind::paged,
                         .page_size = 16,
                         .sinks = true,
                         .mask = mask::causal()},
                .batch = 3,
                .seqlen_q = 9,
                .seqlen_kv = 80,
                .used_keys = {80, 17, 33},
                .used_queries = {1, 9, 4}});
}

TEST(CAttention, CachesOfEightBitsHaveScales) {
  expect_right({.spec = {.head_dim = 64,
                         .sequences_kv = SequenceKind::paged,
                         .page_size = 16,
                         .kv_dtype = DType::fp8_e4m3,
                         .mask = mask::causal()},
                .batch = 2,
                .heads_kv = 2,
                .seqlen_q = 1,
                .seqlen_kv = 48,
                .used_keys = {48, 20}});
}

// Runs a backward call and expects what the reference says.
void expect_right_gradients(const AttentionCase& problem) {
  const CContext context = make_context();
  const COperation attention = make_operation(context, JIT_ATTENTION, text_of(problem.spec));
  BackwardRun run(problem);
  CTensors tensors;
  const jit_backward_arguments arguments = c_arguments(run.arguments(/*deterministic=*/true), tensors);
  expect_ok([&](jit_error** error) { return jit_backward(attention.get(), &arguments, nullptr, error); });
  EXPECT_EQ(run.check(), "");
}

TEST(CAttention, Gradients) {
  expect_right_gradients({.spec = {.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()},
                          .heads_kv = 2,
                          .seqlen_q = 40,
                          .seqlen_kv = 60,
                          .with_d_lse = true});
}

TEST(CAttention, GradientsOfSinksAndOfABias) {
  expect_right_gradients({.spec = {.head_dim = 32, .sinks = true, .score = score::bias()},
                          .heads_kv = 2,
                          .seqlen_q = 20,
                          .seqlen_kv = 24,
                          .d_tensors = {"bias"}});
}

TEST(CAttention, AMaskOfOnesOwnReadsItsTensor) {
  const CContext context = make_context();
  const COperation attention =
      make_operation(context, JIT_ATTENTION, "--head-dim 16 --mask 'causal && text( allowed )'",
                     {{"allowed", "// tensor: ids int32\n// constant: least = 3\nreturn ids[k] >= least;"}});
  constexpr int seqlen = 12;
  DeviceTensor q(DType::bf16, {1, seqlen, 1, 16}), k(DType::bf16, {1, seqlen, 1, 16}),
      v(DType::bf16, {1, seqlen, 1, 16}), o(DType::bf16, {1, seqlen, 1, 16}), ids(DType::int32, {seqlen});
  q.fill([](auto) { return 0.0; });
  k.fill([](auto) { return 0.0; });
  v.fill([](auto flat) { return static_cast<double>(flat / 16); });
  ids.fill([](auto flat) { return flat % 2 == 0 ? 3.0 : 2.0; });  // even keys are seen
  for (const DeviceTensor* tensor : {&q, &k, &v, &o, &ids}) tensor->upload();
  CTensors tensors;
  const jit_named_tensor named = {"ids", tensors(ids.view())};
  const jit_forward_arguments arguments = {.size = sizeof(arguments),
                                           .q = tensors(q.view()),
                                           .k = tensors(k.view()),
                                           .v = tensors(v.view()),
                                           .o = tensors(o.view()),
                                           .lse = nullptr,
                                           .tensors = &named,
                                           .tensor_count = 1};
  expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &arguments, nullptr, error); });
  o.download();
  for (int query = 0; query < seqlen; ++query)
    EXPECT_NEAR(o.get({0, query, 0, 0}), query / 2, 0.05) << query;  // the mean of 0, 2, … up to the query
}

TEST(CAttention, AGateOnTheOutputKeepsWhatItWasGiven) {
  const CContext context = make_context();
  const COperation attention =
      make_operation(context, JIT_ATTENTION, "--head-dim 16 --output 'row_gate(fp32)'");
  DeviceTensor q(DType::bf16, {1, 3, 1, 16}), k(DType::bf16, {1, 1, 1, 16}), v(DType::bf16, {1, 1, 1, 16}),
      o(DType::bf16, {1, 3, 1, 16}), raw(DType::bf16, {1, 3, 1, 16}), gate(DType::fp32, {1, 3, 1});
  q.fill([](auto) { return 1.0; });
  k.fill([](auto) { return 0.0; });
  v.fill([](auto flat) { return 1 + static_cast<double>(flat); });  // of the only key, and so o
  gate.fill([](auto flat) { return static_cast<double>(flat) - 1; });
  for (const DeviceTensor* tensor : {&q, &k, &v, &o, &raw, &gate}) tensor->upload();
  CTensors tensors;
  const jit_named_tensor named = {"gate", tensors(gate.view())};
  const jit_forward_arguments arguments = {.size = sizeof(arguments),
                                           .q = tensors(q.view()),
                                           .k = tensors(k.view()),
                                           .v = tensors(v.view()),
                                           .o = tensors(o.view()),
                                           .tensors = &named,
                                           .tensor_count = 1,
                                           .o_raw = tensors(raw.view())};
  expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &arguments, nullptr, error); });
  o.download();
  raw.download();
  for (int query = 0; query < 3; ++query) {
    EXPECT_EQ(raw.get({0, query, 0, 4}), 5);
    EXPECT_NEAR(o.get({0, query, 0, 4}), 5 / (1 + std::exp(1 - query)), 0.02) << query;
  }
}

TEST(CAttention, OutputsOf8BitsFindScalesBesideMeansOfScores) {
  const CContext context = make_context();
  const COperation attention = make_operation(
      context, JIT_ATTENTION, "--head-dim 16 --softmax-scale 1 --out-dtype int8 --o-descale --mean-score");
  DeviceTensor q(DType::bf16, {1, 3, 1, 16}), k(DType::bf16, {1, 1, 1, 16}), v(DType::bf16, {1, 1, 1, 16}),
      o(DType::int8, {1, 3, 1, 16}), scales(DType::fp32, {1, 1, 3}), mean(DType::fp32, {1, 1, 3});
  q.fill([](auto flat) { return static_cast<double>(flat / 16); });
  k.fill([](auto) { return 0.5; });
  v.fill([](auto flat) { return 254.0 - 16 * static_cast<double>(flat); });  // of the only key, and so o
  for (const DeviceTensor* tensor : {&q, &k, &v, &o}) tensor->upload();
  CTensors tensors;
  const jit_forward_arguments arguments = {.size = sizeof(arguments),
                                           .q = tensors(q.view()),
                                           .k = tensors(k.view()),
                                           .v = tensors(v.view()),
                                           .o = tensors(o.view()),
                                           .mean_score = tensors(mean.view()),
                                           .o_descale = tensors(scales.view())};
  expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &arguments, nullptr, error); });
  for (DeviceTensor* tensor : {&o, &scales, &mean}) tensor->download();
  for (int query = 0; query < 3; ++query) {
    EXPECT_EQ(scales.get({0, 0, query}), 2);
    EXPECT_EQ(o.get({0, query, 0, 4}), 95);  // (254 − 64) / 2
    EXPECT_EQ(mean.get({0, 0, query}), 8 * query);
  }
}

TEST(CAttention, DropoutTakesARateAndASeed) {
  const CContext context = make_context();
  const COperation attention = make_operation(context, JIT_ATTENTION, "--head-dim 32 --dropout");
  AttentionRun run({.spec = {.head_dim = 32}, .seqlen_q = 20, .seqlen_kv = 20});
  DeviceTensor state(DType::int64, {2});
  state.fill([](auto flat) { return static_cast<double>(flat + 5); });
  state.upload();
  CTensors tensors;
  jit_forward_arguments arguments = c_arguments(run.arguments(), tensors);
  arguments.rng_state = tensors(state.view());
  arguments.dropout_p = 0.5f;
  const auto outputs = [&] {
    expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &arguments, nullptr, error); });
    return run.outputs();
  };
  const auto first = outputs();
  EXPECT_EQ(outputs(), first);
  state.set({0}, 6);
  state.upload();
  EXPECT_NE(outputs(), first);
}

TEST(CAttention, ACheckComputesNothing) {
  const CContext context = make_context(-1);
  const COperation attention = make_operation(context, JIT_ATTENTION, "--head-dim 64");
  AttentionRun run({.spec = {.head_dim = 64}, .seqlen_q = 8, .seqlen_kv = 8});
  CTensors tensors;
  jit_forward_arguments arguments = c_arguments(run.arguments(), tensors);
  arguments.only_check = 1;
  expect_ok([&](jit_error** error) { return jit_forward(attention.get(), &arguments, nullptr, error); });
  EXPECT_TRUE(run.untouched());
  arguments.k = nullptr;
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_forward(attention.get(), &arguments, nullptr, error);
            }).field,
            "k");
}

TEST(CAttention, KernelsCanBePreparedAndRead) {
  const CContext context = make_context();
  const COperation attention = make_operation(context, JIT_ATTENTION, "--head-dim 64 --mask causal");
  AttentionRun run({.spec = {.head_dim = 64, .mask = mask::causal()}, .seqlen_q = 8, .seqlen_kv = 8});
  CTensors tensors;
  const jit_forward_arguments forward = c_arguments(run.arguments(), tensors);
  expect_ok([&](jit_error** error) { return jit_prepare(attention.get(), &forward, nullptr, error); });
  EXPECT_TRUE(run.untouched());
  const auto part = [&](jit_kernel_part wanted) {
    return c_text([&](char** text, jit_error** error) {
      return jit_kernel_text(attention.get(), &forward, nullptr, wanted, text, error);
    });
  };
  EXPECT_THAT(part(JIT_KERNEL_SOURCE), HasSubstr("head_dim = 64"));
  EXPECT_THAT(part(JIT_KERNEL_PTX), HasSubstr(".target sm_90a"));
  EXPECT_THAT(part(JIT_KERNEL_REPORT), StartsWith("{"));

  BackwardRun gradients({.spec = {.head_dim = 64, .mask = mask::causal()}, .seqlen_q = 8, .seqlen_kv = 8});
  const jit_backward_arguments backward = c_arguments(gradients.arguments(), tensors);
  expect_ok([&](jit_error** error) { return jit_prepare(attention.get(), nullptr, &backward, error); });
  EXPECT_THAT(c_text([&](char** text, jit_error** error) {
                return jit_kernel_text(attention.get(), nullptr, &backward, JIT_KERNEL_SOURCE, text, error);
              }),
              HasSubstr("backward"));
  char* json = nullptr;
  EXPECT_EQ(failure_of([&](jit_error** error) {
              return jit_tune(attention.get(), &forward, nullptr, &json, error);
            }).code,
            JIT_UNSUPPORTED_DEVICE);  // an emulated device has no time
  EXPECT_EQ(json, nullptr);
}

TEST(CAttention, AConfigIsUsed) {
  const CContext context = make_context();
  const jit_spec spec = {
      .size = sizeof(spec),
      .text = "--head-dim 64",
      .functors = nullptr,
      .functor_count = 0,
      .config = "family=forward_mma_sync tile_q=64 tile_kv=32",
  };
  jit_operation* made = nullptr;
  expect_ok([&](jit_error** error) {
    return jit_operation_create(context.get(), JIT_ATTENTION, &spec, &made, error);
  });
  const COperation attention(made);
  EXPECT_THAT(c_text([&](char** text, jit_error** error) {
                return jit_kernel_text(made, nullptr, nullptr, JIT_KERNEL_SOURCE, text, error);
              }),
              HasSubstr("tile_kv = 32"));
}

TEST(CAttention, AKernelIsDumpedForAnArchitecture) {
  const CContext context = make_context();
  const FreshFolder folder;
  const jit_spec spec = {.size = sizeof(spec),
                         .text = "--head-dim 64",
                         .functors = nullptr,
                         .functor_count = 0,
                         .config = nullptr};
  EXPECT_THAT(c_text([&](char** json, jit_error** error) {
                return jit_dump(context.get(), "sm_80", &spec, (folder / "out").c_str(), json, error);
              }),
              HasSubstr("kernel.cu"));
  EXPECT_THAT(read_text(folder / "out/kernel.ptx"), HasSubstr(".target sm_80"));
}

}  // namespace
}  // namespace jit::testing
