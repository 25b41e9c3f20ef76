// jit-attention run --backward on an emulated device against double precision.
#include <cmath>
#include <tuple>

#include "tests/support/cli_run.h"
#include "tests/support/host_dropout.h"

namespace jit::testing {
namespace {

class CliGradients : public CliRun {
 protected:
  static constexpr int queries = 21, keys = 37;

  static std::vector<double> all(const Array& array) { return rows(array, 0, array.shape[0]); }
  static Array flat(Array array) {
    array.shape.erase(array.shape.begin());
    return array;
  }

  /// Files of q, k, v and do, and their problem, causal.
  reference::GradientProblem draw() {
    const Array q = random_file("q", {1, queries, heads, dim}),
                d_o = random_file("do", {1, queries, heads, dim});
    const Array k = random_file("k", {1, keys, heads_kv, dim}),
                v = random_file("v", {1, keys, heads_kv, dim});
    reference::GradientProblem problem = request(flat(q), 0, queries, all(k), all(v));
    problem.d_o = all(d_o);
    return problem;
  }

  std::vector<std::string> gradient_options(std::vector<std::string> more) const {
    more.insert(more.end(), {"--backward", "--do", file("do"), "--dq", file("dq"), "--dk", file("dk"), "--dv",
                             file("dv")});
    return more;
  }
  ToolResult backward(std::vector<std::string> more) const { return run(gradient_options(std::move(more))); }
  /// Without files for what forward makes.
  ToolResult backward_alone(std::vector<std::string> more) const {
    more.insert(more.begin(), {"run", "--dtype", "fp16", "--q", file("q"), "--k", file("k"), "--v", file("v"),
                               "--device", "emulated:sm_80"});
    return tool_.run(gradient_options(std::move(more)));
  }

  void expect_near(const std::string& name, const std::vector<double>& expected, double most) const {
    const Array found = tool::read_npy(file(name));
    ASSERT_EQ(found.elements(), static_cast<std::int64_t>(expected.size())) << name;
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found.as<float>()[i], expected[i], most) << name << " " << i;
  }
  void expect_gradients(const reference::GradientResult& exact, double most = 1e-2) const {
    expect_near("dq", exact.dq, most);
    expect_near("dk", exact.dk, most);
    expect_near("dv", exact.dv, most);
  }
};

TEST_F(CliGradients, OfInputs) {
  const reference::GradientProblem problem = draw();
  const ToolResult result = backward({"--mask", "causal", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["backward_kernels"].size(), 2u);
  EXPECT_EQ(result.json()["written"].size(), 5u);
  expect_gradients(reference::attention_gradients(problem));
  for (const char* name : {"q", "k", "v"})
    EXPECT_EQ(tool::read_npy(file(std::string("d") + name)).shape, tool::read_npy(file(name)).shape);
}

TEST_F(CliGradients, OfSinksAndByLse) {
  reference::GradientProblem problem = draw();
  problem.sinks = all(random_file("sinks", {heads}));
  problem.d_lse = all(random_file("dlse", {1, heads, queries}));
  const ToolResult result = backward({"--mask", "causal", "--sinks", file("sinks"), "--d-sinks",
                                      file("dsinks"), "--dlse", file("dlse"), "--deterministic"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string line = "backward with family=backward_dkv_mma_sync";  // that of the sinks has its config
  const std::size_t at = result.out.find(line);
  EXPECT_NE(at, std::string::npos) << result.out;
  EXPECT_EQ(result.out.find(line, at + 1), std::string::npos) << result.out;
  const reference::GradientResult exact = reference::attention_gradients(problem);
  expect_gradients(exact);
  EXPECT_EQ(tool::read_npy(file("dsinks")).shape, std::vector<std::int64_t>{heads});
  expect_near("dsinks", exact.d_sinks, 1e-2);
}

TEST_F(CliGradients, OfTensorsThatScoresRead) {
  reference::GradientProblem problem = draw();
  Array slopes_given = random_file("slopes", {heads});
  // Positive, as ALiBi has them: with others, the roundings of rows count as often as their keys are far.
  for (int h = 0; h < heads; ++h) slopes_given.as<float>()[h] = 0.5f + std::abs(slopes_given.as<float>()[h]);
  const std::vector<double> slopes = all(write("slopes", slopes_given));
  const auto distance = [](int i, int j) { return std::abs(j - i - (keys - queries)); };
  problem.score = [&](double score, int, int h, int i, int j) {
    return score - slopes[static_cast<std::size_t>(h)] * distance(i, j);
  };
  const ToolResult result =
      backward({"--mask", "causal", "--score", "alibi", "--tensor", "alibi_slopes=" + file("slopes"),
                "--d-tensor", "alibi_slopes=" + file("dslopes")});
  ASSERT_EQ(result.status, 0) << result.err;
  std::vector<double> expected(heads);
  expect_gradients(reference::attention_gradients(problem,
                                                  [&](int, int h, int i, int j, double, double gradient) {
                                                    expected[static_cast<std::size_t>(h)] -=
                                                        gradient * distance(i, j);
                                                  }),
                   3e-2);
  expect_near("dslopes", expected, 3e-2);
}

// Gradients by what forward made are those that one run has; they rest on what is given, and nothing else is written.
TEST_F(CliGradients, ByWhatForwardMade) {
  const reference::GradientProblem problem = draw();
  ASSERT_EQ(backward({"--mask", "causal"}).status, 0);
  const Array together = tool::read_npy(file("dq")), o = tool::read_npy(file("o"));
  const std::vector<std::string> given = {"--mask",        "causal",    "--forward-out", file("o"),
                                          "--forward-lse", file("lse"), "--json"};
  const ToolResult result = backward_alone(given);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(result.json().contains("kernel"));
  EXPECT_EQ(result.json()["backward_kernels"].size(), 2u);
  EXPECT_EQ(result.json()["written"].size(), 3u);
  EXPECT_EQ(tool::read_npy(file("dq")).bytes, together.bytes);
  expect_gradients(reference::attention_gradients(problem));
  write("o", tool::zeros(DType::fp32, o.shape));
  ASSERT_EQ(backward_alone(given).status, 0);
  EXPECT_NE(tool::read_npy(file("dq")).bytes, together.bytes);
}

TEST_F(CliGradients, Dropout) {
  reference::GradientProblem problem = draw();
  const ToolResult result = backward({"--dropout-p", "0.5", "--rng-state", "42,18446744073709551615"});
  ASSERT_EQ(result.status, 0) << result.err;
  problem.keep = nullptr;
  problem.weight = [dropout = reference::Dropout{.rate = 0.5, .seed = 42, .offset = ~std::uint64_t{0}}](
                       int b, int h, int i, int key) { return dropout.keeps(heads, b, h, i, key) ? 2 : 0; };
  expect_near("o", reference::attention_forward(problem).o, 2e-2);
  expect_gradients(reference::attention_gradients(problem), 2e-2);
  expect_bad_input(run({"--dropout-p", "1", "--rng-state", "1,2"}), "less than 1");
  expect_bad_input(run({"--dropout-p", "0.5"}), "--rng-state");
  expect_bad_input(run({"--dropout-p", "0.5", "--rng-state", "1"}), "--rng-state");
}

TEST_F(CliGradients, OfVarlenSequences) {
  const std::vector<int> queries = {5, 14}, keys = {9, 3};
  const Array q = random_file("q", {19, heads, dim}), d_o = random_file("do", {19, heads, dim});
  const Array k = random_file("k", {12, heads_kv, dim}), v = random_file("v", {12, heads_kv, dim});
  const ToolResult result =
      run({"--backward", "--do", file("do"), "--dq", file("dq"), "--dk", file("dk"), "--dv", file("dv"),
           "--seqlens-q", "5,14", "--seqlens-kv", "9,3", "--mask", "causal"});
  ASSERT_EQ(result.status, 0) << result.err;
  int begin_q = 0, begin_kv = 0;
  for (const std::size_t b : {0u, 1u}) {
    reference::GradientProblem problem =
        request(q, begin_q, queries[b], rows(k, begin_kv, keys[b]), rows(v, begin_kv, keys[b]));
    problem.d_o = rows(d_o, begin_q, queries[b]);
    const reference::GradientResult exact = reference::attention_gradients(problem);
    for (const auto& [name, begin, count, expected] : {std::tuple{"dq", begin_q, queries[b], &exact.dq},
                                                       {"dk", begin_kv, keys[b], &exact.dk},
                                                       {"dv", begin_kv, keys[b], &exact.dv}}) {
      const std::vector<double> found = rows(tool::read_npy(file(name)), begin, count);
      ASSERT_EQ(found.size(), expected->size());
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], (*expected)[i], 1e-2) << name << " of request " << b << " " << i;
    }
    begin_q += queries[b];
    begin_kv += keys[b];
  }
}

TEST_F(CliGradients, WhatDoesNotFitIsRefused) {
  draw();
  random_file("sinks", {heads});
  random_file("slopes", {heads});
  random_file("lse_in", {1, heads, queries});
  random_file("short", {1, queries - 1, heads, dim});
  // Options that want one another.
  expect_bad_input(run({"--dq", file("dq")}), "--backward");
  expect_bad_input(run({"--backward", "--do", file("do")}), "--d");
  for (const char* option : {"--dlse", "--forward-out", "--forward-lse"})
    expect_bad_input(run({option, file("do")}), option);
  expect_bad_input(run({"--deterministic"}), "--deterministic requires --backward");
  expect_bad_input(backward({"--d-sinks", file("x")}), "--d-sinks requires --sinks");
  expect_bad_input(backward({"--d-tensor", "a=" + file("x")}), "--d-tensor requires --tensor");
  expect_bad_input(backward_alone({"--forward-out", file("do")}), "--forward-lse");
  expect_bad_input(backward({"--forward-out", file("do"), "--forward-lse", file("lse_in")}), "--forward-out");
  expect_bad_input(backward_alone({}), "--out is required");
  expect_bad_input(backward({"--cache-leftpad", "1"}), "--cache-leftpad");
  // Contents of files are checked.
  expect_bad_input(backward({"--dlse", file("do")}), "its shape must be (batch, heads, seqlen)");
  expect_bad_input(backward_alone({"--forward-out", file("short"), "--forward-lse", file("lse_in")}), "o: ");
  random_file("lse_in", {1, heads, queries + 1});
  expect_bad_input(backward({"--dlse", file("lse_in")}), "dlse: ");
  const std::vector<std::string> alibi = {"--score", "alibi", "--tensor", "alibi_slopes=" + file("slopes")};
  const auto with_alibi = [&](std::vector<std::string> more) {
    more.insert(more.begin(), alibi.begin(), alibi.end());
    return backward(std::move(more));
  };
  expect_bad_input(with_alibi({"--d-tensor", "slopes=" + file("x")}), "there is no --tensor slopes");
  expect_bad_input(with_alibi({"--d-tensor", "alibi_slopes"}), "--d-tensor");
  expect_bad_input(
      with_alibi({"--d-tensor", "alibi_slopes=" + file("x"), "--d-tensor", "alibi_slopes=" + file("y")}),
      "--d-tensor alibi_slopes is given twice");
  expect_bad_input(with_alibi({"--d-tensor", "alibi_slopes=" + file("slopes")}), file("slopes"));
}

}  // namespace
}  // namespace jit::testing
