#include "tests/support/attention_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tests/support/float16.h"

namespace jit::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double difference = 1e-6;

std::size_t place(int b, int position, int h, int seqlen, int heads, int columns) {
  return ((static_cast<std::size_t>(b) * static_cast<std::size_t>(seqlen) +
           static_cast<std::size_t>(position)) *
              static_cast<std::size_t>(heads) +
          static_cast<std::size_t>(h)) *
         static_cast<std::size_t>(columns);
}

double dot(const double* x, const double* y, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

void add(double* sum, const double* x, double factor, int count) {
  for (int i = 0; i < count; ++i) sum[i] += factor * x[i];
}

double norm(const double* x, int count) { return std::sqrt(dot(x, x, count)); }

double largest(const double* x, int count) {
  double most = 0;
  for (int i = 0; i < count; ++i) most = std::max(most, std::abs(x[i]));
  return most;
}

// The errors of dP − delta, as they add up in dq and dk: independent of each other, each at most an ulp of a product of
// norms.
class Cancellation {
 public:
  explicit Cancellation(const GradientProblem& problem)
      : problem_(problem),
        norm_v_(rows(problem.v, problem.head_dim_v, norm)),
        largest_k_(rows(problem.k, problem.head_dim, largest)),
        dk_(norm_v_.size(), 0) {}

  // Starts a query.
  void begin(const double* query, const double* d_o) {
    end();
    norm_d_o_ = norm(d_o, problem_.head_dim_v);
    largest_q_ = largest(query, problem_.head_dim);
  }
  // A key of this query: its row among all keys, and what dP − delta is multiplied by.
  void add(std::size_t key, double factor) {
    const double error = fp32_ulp * factor * problem_.softmax_scale * norm_d_o_ * norm_v_[key];
    dq_ += std::pow(error * largest_k_[key], 2);
    dk_[key] += std::pow(error * largest_q_, 2);
  }
  void end() {
    largest_dq_ = std::max(largest_dq_, dq_);
    dq_ = 0;
  }
  double dq() const { return std::sqrt(largest_dq_); }
  double dk() const { return dk_.empty() ? 0 : std::sqrt(*std::max_element(dk_.begin(), dk_.end())); }

 private:
  static constexpr double fp32_ulp = 0x1p-23;

  template <class F>
  static std::vector<double> rows(const std::vector<double>& all, int columns, const F& f) {
    std::vector<double> values;
    for (std::size_t at = 0; at < all.size(); at += static_cast<std::size_t>(columns))
      values.push_back(f(&all[at], columns));
    return values;
  }

  const GradientProblem& problem_;
  std::vector<double> norm_v_, largest_k_, dk_;
  double norm_d_o_ = 0, largest_q_ = 0, dq_ = 0, largest_dq_ = 0;
};

// One query of one head, and what its keys have to do with it.
template <class Round>
class GradientRow {
 public:
  GradientRow(const GradientProblem& problem, int b, int h, int q, const Round& round)
      : problem_(problem), b_(b), h_(h), q_(q), round_(round) {
    scores_.assign(static_cast<std::size_t>(problem.seqlen_kv), -infinity);
    if (!problem.sinks.empty()) sink_ = problem.sinks[static_cast<std::size_t>(h)];
    double largest = sink_;
    for (int key = 0; key < problem.seqlen_kv; ++key) {
      if (problem.keep && !problem.keep(b, h, q, key)) continue;
      double& score = scores_[static_cast<std::size_t>(key)];
      score = raw(key);
      if (problem.score) score = round(problem.score(score, b, h, q, key));
      largest = std::max(largest, score);
    }
    if (largest == -infinity) return;
    double sum = std::exp(sink_ - largest);
    for (const double score : scores_) sum += std::exp(score - largest);
    lse = largest + std::log(sum);
  }

  double probability(int key) const {
    return lse == -infinity ? 0 : std::exp(scores_[static_cast<std::size_t>(key)] - lse);
  }
  double weight(int key) const { return problem_.weight ? problem_.weight(b_, h_, q_, key) : 1; }
  double sink_probability() const { return lse == -infinity ? 0 : std::exp(sink_ - lse); }
  double slope(int key) const {
    if (!problem_.score) return 1;
    const double s = raw(key), step = difference * std::max(1.0, std::abs(s));
    return (problem_.score(s + step, b_, h_, q_, key) - problem_.score(s - step, b_, h_, q_, key)) /
           (2 * step);
  }

  const double* query() const { return &problem_.q[query_place(problem_.head_dim)]; }
  std::size_t query_place(int columns) const {
    return place(b_, q_, h_, problem_.seqlen_q, problem_.heads_q(), columns);
  }
  std::size_t key_place(int key, int columns) const {
    return place(b_, key, h_ / problem_.gqa_ratio, problem_.seqlen_kv, problem_.heads_kv, columns);
  }

  double lse = -infinity;

  double raw(int key) const {
    const double s = problem_.softmax_scale *
                     dot(query(), &problem_.k[key_place(key, problem_.head_dim)], problem_.head_dim);
    return problem_.score ? round_(s) : s;
  }

  int b() const { return b_; }
  int h() const { return h_; }
  int q() const { return q_; }

 private:
  const GradientProblem& problem_;
  int b_, h_, q_;
  const Round& round_;
  std::vector<double> scores_;
  double sink_ = -infinity;
};

// Calls f(row) for every query of every head.
template <class Round, class F>
void for_each_row(const GradientProblem& problem, const Round& round, const F& f) {
  for (int b = 0; b < problem.batch; ++b) {
    for (int h = 0; h < problem.heads_q(); ++h) {
      for (int q = 0; q < problem.seqlen_q; ++q) f(GradientRow<Round>(problem, b, h, q, round));
    }
  }
}

template <class Round>
ForwardResult forward(const GradientProblem& problem, const Round& round) {
  ForwardResult result{.o = std::vector<double>(problem.d_o.size(), 0), .lse = {}};
  for_each_row(problem, round, [&](const GradientRow<Round>& row) {
    double* o = &result.o[row.query_place(problem.head_dim_v)];
    for (int key = 0; key < problem.seqlen_kv; ++key) {
      const double p = row.probability(key);
      if (p != 0)
        add(o, &problem.v[row.key_place(key, problem.head_dim_v)], p * row.weight(key), problem.head_dim_v);
    }
    for (int d = 0; d < problem.head_dim_v; ++d) o[d] = round(o[d]);
    result.lse.push_back(row.lse);
  });
  return result;
}

template <class Round>
GradientResult gradients(const GradientProblem& problem, const Round& round, const SeeScore& see,
                         const ForwardResult& result) {
  GradientResult sums{std::vector<double>(problem.q.size(), 0), std::vector<double>(problem.k.size(), 0),
                      std::vector<double>(problem.v.size(), 0), std::vector<double>(problem.sinks.size(), 0)};
  Cancellation cancellation(problem);
  std::vector<double> d_sinks_magnitudes(problem.sinks.size(), 0);
  std::size_t rows = 0;
  for_each_row(problem, round, [&](const GradientRow<Round>& row) {
    const std::size_t at = row.query_place(problem.head_dim_v);
    double delta = dot(&problem.d_o[at], &result.o[at], problem.head_dim_v);
    if (!problem.d_lse.empty() && row.lse != -infinity) delta -= problem.d_lse[rows];
    ++rows;
    cancellation.begin(row.query(), &problem.d_o[at]);
    if (!problem.sinks.empty()) {
      const double addend = row.sink_probability() * delta;
      const auto head = static_cast<std::size_t>(row.h());
      sums.d_sinks[head] -= addend;
      d_sinks_magnitudes[head] += std::abs(addend);
    }
    for (int key = 0; key < problem.seqlen_kv; ++key) {
      const double p = row.probability(key);
      if (p == 0) continue;
      const std::size_t at_k = row.key_place(key, problem.head_dim),
                        at_v = row.key_place(key, problem.head_dim_v);
      const double weight = row.weight(key);
      const double dp = weight * dot(&problem.d_o[at], &problem.v[at_v], problem.head_dim_v);
      if (see) see(row.b(), row.h(), row.q(), key, row.raw(key), p * (dp - delta));
      const double slope = row.slope(key);
      cancellation.add(at_v / static_cast<std::size_t>(problem.head_dim_v), p * slope);
      const double ds = round(p * (dp - delta) * slope);
      add(&sums.dv[at_v], &problem.d_o[at], round(p * weight), problem.head_dim_v);
      add(&sums.dq[row.query_place(problem.head_dim)], &problem.k[at_k], ds * problem.softmax_scale,
          problem.head_dim);
      add(&sums.dk[at_k], row.query(), ds * problem.softmax_scale, problem.head_dim);
    }
  });
  cancellation.end();
  sums.dq_cancellation = cancellation.dq();
  sums.dk_cancellation = cancellation.dk();
  for (const double magnitude : d_sinks_magnitudes)
    sums.d_sinks_magnitude = std::max(sums.d_sinks_magnitude, magnitude);
  for (std::vector<double>* all : {&sums.dq, &sums.dk, &sums.dv}) {
    for (double& value : *all) value = round(value);
  }
  return sums;
}

}  // namespace

ForwardResult attention_forward(const GradientProblem& problem) {
  return forward(problem, [](double value) { return value; });
}

GradientResult attention_gradients(const GradientProblem& problem, const SeeScore& see) {
  const auto exact = [](double value) { return value; };
  return gradients(problem, exact, see, forward(problem, exact));
}

GradientResult attention_gradients_plain(const GradientProblem& problem, DType dtype, const SeeScore& see) {
  const auto round = [dtype](double value) { return double{rounded(dtype, static_cast<float>(value))}; };
  return gradients(problem, round, see, forward(problem, round));
}

GradientResult attention_gradients_by_rounded_o(const GradientProblem& problem, DType dtype) {
  const auto exact = [](double value) { return value; };
  ForwardResult result = forward(problem, exact);
  for (double& o : result.o) o = rounded(dtype, static_cast<float>(o));
  return gradients(problem, exact, nullptr, result);
}

}  // namespace jit::reference
