// jit-attention run on an emulated device over arrays in files of a test, and the problems of single requests.
#pragma once

#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/support/attention_gradients.h"
#include "tests/support/cli_files.h"

namespace jit::testing {

class CliRun : public CliFiles {
 protected:
  using Lengths = std::vector<int>;

  static constexpr int heads_kv = 2, ratio = 2, heads = heads_kv * ratio, dim = 16;
  static inline const std::vector<double> no_sinks = std::vector<double>(heads, -HUGE_VAL);

  static int sum(const Lengths& lengths) { return std::accumulate(lengths.begin(), lengths.end(), 0); }
  static std::string text(const Lengths& lengths) { return fmt::format("{}", fmt::join(lengths, ",")); }

  /// Rows [begin, begin + count) of an array (rows, …), as doubles.
  static std::vector<double> rows(const Array& array, std::int64_t begin, std::int64_t count) {
    const std::int64_t width = array.elements() / array.shape[0];
    const float* const first = array.as<float>() + begin * width;
    return {first, first + count * width};
  }

  ToolResult run(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--dtype", "fp16"});
    return run_plainly(std::move(more));
  }
  ToolResult run_plainly(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"run",       "--q",      file("q"),       "--k",     file("k"),
                                          "--v",       file("v"),  "--out",         file("o"), "--lse",
                                          file("lse"), "--device", "emulated:sm_80"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tool_.run(arguments);
  }

  /// A request's own problem, causal.
  static reference::GradientProblem request(const Array& q, int begin, int queries, std::vector<double> k,
                                            std::vector<double> v) {
    reference::GradientProblem problem{
        .heads_kv = heads_kv,
        .gqa_ratio = ratio,
        .seqlen_q = queries,
        .seqlen_kv = static_cast<int>(k.size()) / (heads_kv * dim),
        .head_dim = dim,
        .head_dim_v = dim,
        .q = rows(q, begin, queries),
        .k = std::move(k),
        .v = std::move(v),
        .d_o = std::vector<double>(static_cast<std::size_t>(queries * heads * dim)),
        .softmax_scale = 1 / std::sqrt(double{dim})};
    problem.keep = [shift = problem.seqlen_kv - queries](int, int, int i, int j) { return j <= i + shift; };
    return problem;
  }

  /// Rows of o and lse from `begin` on are those of a request, each head with a sink: −inf is none.
  static void expect_request(const reference::GradientProblem& problem, const Array& o, const Array& lse,
                             int begin, const std::vector<double>& sinks) {
    const reference::ForwardResult exact = reference::attention_forward(problem);
    const std::int64_t total = o.shape[0];
    for (int i = 0; i < problem.seqlen_q; ++i) {
      for (int h = 0; h < heads; ++h) {
        const double own = exact.lse[static_cast<std::size_t>(h * problem.seqlen_q + i)];
        const double sink = sinks[static_cast<std::size_t>(h)];
        const double all = std::log(std::exp(own) + std::exp(sink));
        const float found = lse.as<float>()[h * total + begin + i];
        if (std::isinf(all)) {
          EXPECT_EQ(found, all);
        } else {
          EXPECT_NEAR(found, all, 2e-3);
        }
        const double share = std::isinf(all) ? 0 : std::exp(own - all);
        for (int d = 0; d < dim; ++d) {
          const double expected = exact.o[static_cast<std::size_t>((i * heads + h) * dim + d)];
          ASSERT_NEAR(o.as<float>()[((begin + i) * heads + h) * dim + d], share * expected, 5e-3)
              << "query " << i << " of those from " << begin << " on, head " << h << ", column " << d;
        }
      }
    }
  }
};

}  // namespace jit::testing
