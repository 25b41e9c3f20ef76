#include "tests/support/attention_problem.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "tests/support/float16.h"

namespace jit::reference {
namespace {

// Over fewer numbers than these the largest error of `plain` is a matter of luck.
constexpr std::size_t few_numbers = 4096;

// A sink is one more key, whose value is 0.
void add_sink(double sink, std::span<double> o, double& lse) {
  const double largest = std::max(sink, lse);
  const double joined = largest + std::log(std::exp(sink - largest) + std::exp(lse - largest));
  for (double& x : o) x *= std::exp(lse - joined);
  lse = joined;
}

}  // namespace

std::vector<Row> all_rows(const Problem& problem) {
  std::vector<Row> rows;
  for (int b = 0; b < problem.batch; ++b) {
    for (int h = 0; h < problem.heads_q; ++h) {
      for (int q = 0; q < problem.seqlen_q; ++q) rows.push_back({b, h, q});
    }
  }
  return rows;
}

std::vector<Row> sample_rows(const Problem& problem, std::size_t count, std::uint64_t seed) {
  const auto total = static_cast<std::uint64_t>(problem.batch) * static_cast<std::uint64_t>(problem.heads_q) *
                     static_cast<std::uint64_t>(problem.seqlen_q);
  if (total <= count) return all_rows(problem);
  std::mt19937_64 random(seed);
  std::vector<Row> rows;
  const auto draw = [&](int end) { return static_cast<int>(random() % static_cast<std::uint64_t>(end)); };
  // Sequences go wrong at their ends first.
  for (const int b : {0, problem.batch - 1}) {
    for (const int h : {0, problem.heads_q - 1}) {
      for (const int q : {0, problem.seqlen_q - 1}) rows.push_back({b, h, q});
    }
  }
  // Whole neighborhoods: cheap to compute together, and wrong rows come in tiles.
  while (rows.size() < count) {
    const Row corner{draw(problem.batch), draw(problem.heads_q), draw(problem.seqlen_q)};
    for (int i = 0; i < 8 && corner.q + i < problem.seqlen_q; ++i)
      rows.push_back({corner.b, corner.h, corner.q + i});
  }
  rows.resize(count);
  return rows;
}

double max_error(std::span<const double> actual, std::span<const double> expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    const double error = std::abs(actual[i] - expected[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}

double error_limit(DType dtype, std::span<const double> plain, std::span<const double> exact) {
  double largest = 0;
  for (const double value : exact) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  const double roundings = exact.size() < few_numbers ? 2 : 1;
  return 2 * std::max(max_error(plain, exact), roundings * unit_roundoff(dtype) * largest) + 1e-6;
}

namespace detail {

std::vector<float> head_as_floats(const Problem& problem, const HostTensor& tensor, int head_dim, int b,
                                  int h_kv) {
  std::vector<float> values(static_cast<std::size_t>(problem.seqlen_kv) * static_cast<std::size_t>(head_dim));
  float* to = values.data();
  for (int k = 0; k < problem.seqlen_kv; ++k) {
    const std::uint16_t* from = tensor.row(b, k, h_kv);
    for (int d = 0; d < head_dim; ++d) *to++ = to_float(problem.dtype, from[d]);
  }
  return values;
}

Output for_each_row(const Problem& problem, std::span<const Row> rows,
                    const std::function<void(const RowInputs&, double* o, double& lse)>& compute) {
  Output output;
  const auto head_dim_v = static_cast<std::size_t>(problem.head_dim_v);
  output.o.assign(rows.size() * head_dim_v, 0);
  output.lse.assign(rows.size(), -std::numeric_limits<double>::infinity());

  // Rows of one head share its keys and values: sort by head, and give each thread runs of one head.
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto head_of = [&](std::size_t i) {
    return static_cast<std::int64_t>(rows[i].b) * problem.heads_q + rows[i].h / problem.gqa_ratio;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return head_of(a) < head_of(b); });
  constexpr std::size_t longest_run = 32;
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && end - begin < longest_run && head_of(order[end]) == head_of(order[begin]))
      ++end;
    runs.emplace_back(begin, end);
    begin = end;
  }

  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    std::vector<float> q(static_cast<std::size_t>(problem.head_dim));
    for (std::size_t run = next++; run < runs.size(); run = next++) {
      const Row& first = rows[order[runs[run].first]];
      const int h_kv = first.h / problem.gqa_ratio;
      const std::vector<float> k = head_as_floats(problem, problem.k, problem.head_dim, first.b, h_kv);
      std::vector<float> v = head_as_floats(problem, problem.v, problem.head_dim_v, first.b, h_kv);
      const std::size_t heads_kv = static_cast<std::size_t>(problem.heads_q / problem.gqa_ratio);
      const std::size_t head = static_cast<std::size_t>(first.b) * heads_kv + static_cast<std::size_t>(h_kv);
      for (std::size_t j = 0; j < v.size() && !problem.v_mean.empty(); ++j)
        v[j] += problem.v_mean[head * head_dim_v + j % head_dim_v];
      for (std::size_t i = runs[run].first; i < runs[run].second; ++i) {
        const Row& row = rows[order[i]];
        const std::uint16_t* from = problem.q.row(row.b, row.q, row.h);
        for (std::size_t d = 0; d < q.size(); ++d) q[d] = to_float(problem.dtype, from[d]);
        double& lse = output.lse[order[i]];
        compute({row, q.data(), k.data(), v.data()}, &output.o[order[i] * head_dim_v], lse);
        if (!problem.lse_shift.empty()) {
          const int slice = row.b * problem.heads_q + row.h;
          lse +=
              double{problem.softmax_scale} *
              problem.lse_shift[static_cast<std::size_t>(slice) * static_cast<std::size_t>(problem.seqlen_q) +
                                static_cast<std::size_t>(row.q)];
        }
        if (!problem.sinks.empty()) {
          add_sink(problem.sinks[static_cast<std::size_t>(row.h)],
                   std::span(output.o).subspan(order[i] * head_dim_v, head_dim_v), lse);
        }
      }
    }
  };
  const std::size_t threads =
      std::min<std::size_t>(runs.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> pool;
  for (std::size_t i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  pool.clear();
  return output;
}

}  // namespace detail
}  // namespace jit::reference
