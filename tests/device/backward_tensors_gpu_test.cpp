// Gradients beyond those of q, k and v, against fp64 on the CPU: of a loss of LSE, of sinks, of what scores read.
#include <jit/attention.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using reference::FunctorProblem;
using ::testing::HasSubstr;

class BackwardTensorsTest : public GpuTest {
 protected:
  static void expect_right(AttentionCase problem) {
    problem.seed = reference::next_seed();
    try {
      BackwardRun run(problem);
      attention_when_called(problem.spec, context()).backward(run.arguments());
      EXPECT_EQ(run.check(), "") << to_string(problem);
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
  static AttentionCase case_of(const AttentionSpec& spec) {
    return {.spec = spec, .batch = 2, .heads_kv = 1, .seqlen_q = 33, .seqlen_kv = 40};
  }
};

TEST_F(BackwardTensorsTest, GradientsOfLse) {
  // The first queries see nothing: their LSE has no gradient. On sm_90a the second one takes two passes.
  for (const int head_dim : {64, 136}) {
    AttentionCase problem = case_of({.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()});
    problem.seqlen_kv = 20;
    problem.with_d_lse = true;
    expect_right(problem);
  }
}

TEST_F(BackwardTensorsTest, Sinks) {
  for (const int head_dim : {64, 136}) {
    AttentionCase problem =
        case_of({.head_dim = head_dim, .gqa_ratio = 2, .sinks = true, .mask = mask::causal()});
    problem.seqlen_q = 70;  // tiles that are not full, and queries that see the sink alone
    problem.with_d_lse = head_dim == 64;
    expect_right(problem);
  }
}

// As many shapes as there are, full and broadcast ones, with dropped keys among them.
TEST_F(BackwardTensorsTest, Biases) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (int i = 0; i < 2; ++i) {
      AttentionCase problem = case_of({.dtype = dtype == DType::fp16 ? DType::fp16 : DType::bf16,
                                       .head_dim = 32,
                                       .gqa_ratio = 2,
                                       .mask = mask::causal(),
                                       .score = score::bias(dtype).then(score::softcap(4))});
      problem.seqlen_q = 12;
      problem.seqlen_kv = 15;
      problem.d_tensors = {"bias"};
      expect_right(problem);
    }
  }
}

TEST_F(BackwardTensorsTest, WithDropout) {
  for (const int head_dim : {32, 64}) {
    AttentionCase problem = case_of({.head_dim = head_dim,
                                     .gqa_ratio = 2,
                                     .mask = mask::causal(),
                                     .score = score::bias().then(score::softcap(4))});
    problem.spec.dropout = true;
    problem.dropout_p = 0.3f;
    problem.with_d_lse = true;
    problem.d_tensors = {"bias"};
    expect_right(problem);
  }
}

TEST_F(BackwardTensorsTest, Slopes) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{4}, {2, 4}}) {
    AttentionCase problem = case_of({.head_dim = 32,
                                     .gqa_ratio = 4,
                                     .mask = mask::causal() || mask::prefix(9),
                                     .score = score::softcap(3).then(score::alibi())});
    problem.shapes = {{"alibi_slopes", shape}};
    problem.d_tensors = {"alibi_slopes"};
    problem.with_d_lse = true;
    expect_right(problem);
  }
}

// A text may read what it likes, how often it likes, behind conditions and through loops.
TEST_F(BackwardTensorsTest, TablesOfTexts) {
  AttentionCase temperatures = case_of({.head_dim = 32, .gqa_ratio = 2});
  temperatures.spec.score =
      score::text({.name = "temperature",
                   .body = "return score * temperatures[h] + k % 3 * to_float(*offset);",
                   .tensors = {{"temperatures", DType::fp32}, {"offset", DType::bf16}}});
  temperatures.text_score = [](const FunctorProblem& problem, double s, int, int h, int, int k) {
    return s * problem.tensors.at("temperatures").at({h}) + k % 3 * problem.tensors.at("offset").at({0});
  };
  temperatures.shapes = {{"offset", {1}}};
  temperatures.d_tensors = {"offset", "temperatures"};
  expect_right(temperatures);

  AttentionCase relative = case_of({.head_dim = 32, .mask = mask::causal()});
  relative.spec.score =
      score::text({.name = "relative",
                   .body = "const int d = min(max(q + seqlen_kv - seqlen_q - k, 0), 15);\n"
                           "auto row = table + 16 * h;\n"
                           "auto x = score + to_float(row[d]) * scales[h];\n"
                           "if (score > 0) x += 0.5f * to_float((row - d)[15]);\n"
                           "decltype(score) sum = 0;\n"
                           "for (int i = 0; i < k % 3; ++i) sum += to_float(row[i]) * to_float(row[i]);\n"
                           "return x + sum;",
                   .tensors = {{"table", DType::fp16}, {"scales", DType::fp32}}});
  relative.text_score = [](const FunctorProblem& problem, double s, int, int h, int q, int k) {
    const auto table = [&](int i) { return problem.tensors.at("table").at({h, i}); };
    const int d = std::clamp(q + problem.seqlen_kv - problem.seqlen_q - k, 0, 15);
    double x = s + table(d) * problem.tensors.at("scales").at({h});
    if (s > 0) x += 0.5 * table(15 - d);
    for (int i = 0; i < k % 3; ++i) x += table(i) * table(i);
    return x;
  };
  relative.spec.dtype = DType::fp16;
  relative.shapes = {{"table", {1, 16}}, {"scales", {1}}};
  relative.d_tensors = {"table"};  // the other one stays an array of floats
  expect_right(relative);
  relative.d_tensors = {"scales", "table"};
  expect_right(relative);
}

// Sums are of integers, whose unit comes from the gradients: their size does not matter.
TEST_F(BackwardTensorsTest, GradientsOfAnySize) {
  AttentionCase problem = case_of({.head_dim = 32, .score = score::bias()});
  problem.shapes = {{"bias", {1, 1, 1, problem.seqlen_kv}}};
  problem.d_tensors = {"bias"};
  BackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  const auto bias_of = [&](double factor) {
    run.scale_do(factor);
    attention.backward(run.arguments());
    return run.numbers_of("bias");
  };
  const std::vector<double> one = bias_of(1), tiny = bias_of(0x1p-60), large = bias_of(0x1p+40);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(tiny[i], one[i] * 0x1p-60) << i;
    EXPECT_EQ(large[i], one[i] * 0x1p+40) << i;
  }
  // Terms that are not finite make the sum NaN.
  for (const double value : bias_of(std::numeric_limits<double>::quiet_NaN())) EXPECT_TRUE(std::isnan(value));
}

TEST_F(BackwardTensorsTest, RepeatedRunsAreBitIdentical) {
  AttentionCase problem = case_of({.head_dim = 64,
                                   .gqa_ratio = 2,
                                   .sinks = true,
                                   .mask = mask::causal(),
                                   .score = score::bias(DType::fp32).then(score::alibi())});
  problem.shapes = {{"bias", {1, 1, 1, problem.seqlen_kv}}};
  problem.d_tensors = {"bias", "alibi_slopes"};
  BackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  std::vector<std::uint8_t> first;
  for (int i = 0; i < sized(20, 3); ++i) {
    run.poison_gradients();
    BackwardArguments arguments = run.arguments(true);
    attention.backward(arguments);
    if (i == 0) first = run.gradients();
    EXPECT_EQ(run.gradients(), first);
  }
}

TEST_F(BackwardTensorsTest, KernelsCanBeRead) {
  AttentionCase problem = case_of({.head_dim = 32, .sinks = true, .score = score::alibi()});
  problem.d_tensors = {"alibi_slopes"};
  const BackwardRun run(problem);
  const std::vector<CompiledKernel> kernels =
      attention_when_called(problem.spec, context()).backward_kernels(run.arguments());
  ASSERT_GE(kernels.size(), 5u);
  const std::size_t first = kernels.size() - 3;
  for (const auto& [i, words] : {std::pair(0, "gradients of sinks"),
                                 {1, "gradients of tensors: "},
                                 {2, "gradients of tensors in their types"}})
    EXPECT_THAT(kernels[first + static_cast<std::size_t>(i)].source(), HasSubstr(words));
}

// The kernel that clears the sums is part of the graph.
TEST_F(BackwardTensorsTest, CapturedOnceTheyArePrepared) {
  const CurrentDevice scope(0);
  AttentionCase problem = case_of({.head_dim = 72, .sinks = true, .score = score::alibi()});
  problem.d_tensors = {"alibi_slopes"};
  BackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  const TestStream stream;
  attention.prepare_backward(run.arguments());
  const CapturedGraph graph(stream, [&] { attention.backward(run.arguments(), stream.get()); });
  for (int i = 0; i < 2; ++i) {
    run.poison_gradients();
    graph.run(stream);
    EXPECT_EQ(run.check(), "");
  }
}

// Sums over nothing are zeros, and are written.
TEST_F(BackwardTensorsTest, NothingToSum) {
  for (const auto& [batch, seqlen_q] : {std::pair(1, 0), {0, 5}}) {
    AttentionCase problem = case_of(
        {.head_dim = 32,
         .sinks = true,
         .score = score::text(
             {.name = "one", .body = "return score + table[0];", .tensors = {{"table", DType::fp32}}})});
    problem.text_score = [](const FunctorProblem&, double s, int, int, int, int) { return s; };
    problem.batch = batch;
    problem.seqlen_q = seqlen_q;
    problem.d_tensors = {"table"};
    expect_right(problem);
  }
}

// Texts that cannot be differentiated: floats, and a function whose derivative is not known.
FunctorText lossy_text(const std::string& derivative) {
  return {.name = "lossy",
          .body = "float x = score * 2;\nreturn x + weights[k] * j0f(x);",
          .derivative = derivative,
          .tensors = {{"weights", DType::fp32}}};
}

double lossy_score(const FunctorProblem& problem, double s, int, int, int, int k) {
  return 2 * s + problem.tensors.at("weights").at({k}) * ::j0(2 * s);
}

TEST_F(BackwardTensorsTest, ATextMayGiveItsDerivative) {
  const std::string of_score = "return 2 - weights[k] * 2 * j1f(2 * score);";
  AttentionCase problem = case_of({.head_dim = 32});
  problem.spec.score = score::text(lossy_text("// not d_weights[k]\n" + of_score));
  problem.text_score = lossy_score;
  expect_right(problem);
  problem.d_tensors = {"weights"};
  const BackwardRun run(problem);
  const Error error =
      error_of([&] { attention_when_called(problem.spec, context()).backward(run.arguments()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error.field(), "d_tensors.weights");
  EXPECT_THAT(error.message(), HasSubstr("text 'lossy'"));
  EXPECT_THAT(error.message(), HasSubstr("write `d_weights[...] += ...` there, or leave it out"));
  problem.spec.score = score::text(lossy_text("d_weights[k] += j0f(2 * score);\n" + of_score));
  expect_right(problem);
  problem.d_tensors = {};  // a statement that nobody asks for
  expect_right(problem);
}

// A body that differentiates itself, and what a user would write of it. Each kernel of dq, dk and dv meets statements
// that do not matter to it: 136 has two passes, 64 one on sm_90a.
TEST_F(BackwardTensorsTest, StatedDerivativesAreThoseOfTheBody) {
  const FunctorText itself{
      .name = "relative",
      .body =
          "auto row = table + 16 * h;\n"
          "auto x = score * scales[h] + to_float(*offset);\n"
          "for (int i = 0; i < k % 3; ++i) x -= to_float(row[i]) * to_float(row[i + 1]);\n"
          "if (score > 0) x += tanhf(to_float((row + 15)[-(q % 4)]));\n"
          "return x;",
      .tensors = {{"table", DType::fp16}, {"scales", DType::fp32}, {"offset", DType::bf16}}};
  FunctorText own = itself;
  own.derivative =
      "auto row = table + 16 * h;\n"
      "auto d_row = d_table + 16 * h;\n"
      "d_scales[h] += score;\n"
      "*d_offset += 1;\n"
      "for (int i = 0; i < k % 3; ++i) {\n"
      "  d_row[i] -= to_float(row[i + 1]);\n"
      "  d_row[i + 1] -= to_float(row[i]);\n"
      "}\n"
      "const float t = tanhf(to_float(row[15 - q % 4]));\n"
      "if (score > 0) (d_row + 16 - 1)[-(q % 4)] += 1 - t * t;\n"
      "return scales[h];";
  const Score reads_again = score::text({.name = "again",
                                         .body = "return score + scales[h] * (q - k) * 0.1f;",
                                         .tensors = {{"scales", DType::fp32}}});
  for (const int head_dim : {64, 136}) {
    const auto gradients_of = [&](const FunctorText& text) {
      AttentionCase problem = case_of({.head_dim = head_dim, .gqa_ratio = 2, .mask = mask::causal()});
      problem.spec.score = score::text(text).then(reads_again).then(score::softcap(5)).then(score::bias());
      problem.text_score = [](const FunctorProblem& tensors, double s, int, int h, int q, int k) {
        const auto at = [&](const char* name, std::initializer_list<std::int64_t> place) {
          return tensors.tensors.at(name).at(place);
        };
        double x = s * at("scales", {h}) + at("offset", {0});
        for (int i = 0; i < k % 3; ++i) x -= at("table", {h, i}) * at("table", {h, i + 1});
        if (s > 0) x += std::tanh(at("table", {h, 15 - q % 4}));
        return 5 * std::tanh((x + at("scales", {h}) * (q - k) * 0.1) / 5) + at("bias", {0, h, 0, k});
      };
      problem.shapes = {{"table", {2, 16}}, {"scales", {2}}, {"offset", {1}}, {"bias", {1, 2, 1, 15}}};
      problem.seqlen_q = 12;
      problem.seqlen_kv = 15;
      problem.d_tensors = {"bias", "table", "scales", "offset"};
      problem.seed = 7;
      BackwardRun run(problem);
      attention_when_called(problem.spec, context()).backward(run.arguments(head_dim == 64));
      EXPECT_EQ(run.check(), "") << text.derivative;
      std::vector<std::vector<double>> all;
      for (const std::string& name : problem.d_tensors) all.push_back(run.numbers_of(name));
      return all;
    };
    const auto expected = gradients_of(itself), got = gradients_of(own);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      double largest = 0;
      for (const double x : expected[i]) largest = std::max(largest, std::abs(x));
      EXPECT_GT(largest, 0) << i;
      for (std::size_t j = 0; j < expected[i].size(); ++j)
        EXPECT_NEAR(got[i][j], expected[i][j], 0x1p-7 * largest) << i << ", " << j;
    }
  }
}

TEST_F(BackwardTensorsTest, WrongStatementsAreRefusedAtTheirLine) {
  for (const auto& [line, advice] :
       {std::pair("d_biases[k] += 1;", "text's own tensors of fp32, bf16 or fp16"),
        {"d_counts[k] += 1;", "text's own tensors of fp32, bf16 or fp16"},
        {"d_weights[k] = 1;", "stated as `d_table[i] += ...`"},
        {"d_weights += 1;", "stated as `d_table[i] += ...`"},
        {"d_weights[b][k] += 1;", "stated as `d_table[i] += ...`"},
        {"const float x = d_weights[k];", "stated as `d_table[i] += ...`"}}) {
    AttentionCase problem = case_of({.head_dim = 16});
    FunctorText text = lossy_text(std::string("d_weights[k] += 1;\n") + line + "\nreturn 1;");
    text.tensors.push_back({"counts", DType::int32});
    problem.spec.score = score::text(text);
    problem.text_score = lossy_score;
    problem.d_tensors = {"weights"};
    const BackwardRun run(problem);
    const Error error =
        error_of([&] { attention_when_called(problem.spec, context()).backward(run.arguments()); });
    EXPECT_EQ(error.code(), ErrorCode::compile_failed) << line;
    EXPECT_THAT(error.log(), HasSubstr("lossy.derivative:2: error")) << line;
    EXPECT_THAT(error.message(), HasSubstr(advice)) << line << "\n" << error.log();
  }
}

TEST_F(BackwardTensorsTest, ATextThatLosesADerivativeIsRefusedAtItsLine) {
  AttentionCase problem = case_of({.head_dim = 16});
  problem.spec.score = score::text({.name = "lossy",
                                    .body = "auto x = score;\nconst float y = table[k];\nreturn x + y;",
                                    .tensors = {{"table", DType::fp32}}});
  problem.text_score = [](const FunctorProblem& tensors, double s, int, int, int, int k) {
    return s + tensors.tensors.at("table").at({k});
  };
  expect_right(problem);  // without the gradient of the table
  problem.d_tensors = {"table"};
  const BackwardRun run(problem);
  const Error error =
      error_of([&] { attention_when_called(problem.spec, context()).backward(run.arguments()); });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_THAT(error.log(), HasSubstr("lossy:2: error"));
  EXPECT_THAT(error.message(), HasSubstr("`auto`"));
  EXPECT_THAT(error.message(), HasSubstr("`derivative`"));
}

}  // namespace
}  // namespace jit::testing
