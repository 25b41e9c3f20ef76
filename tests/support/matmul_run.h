// A matrix product on a device with random matrices, and what it must be, in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <jit/matmul.h>

#include "tests/support/device_tensor.h"
#include "tests/support/float16.h"

namespace jit::testing {

struct MatmulCase {
  std::string step = "smem_tiles";
  int m = 150, n = 140, k = 333;
  int splits = 3;  ///< of split_k

  friend std::ostream& operator<<(std::ostream& out, const MatmulCase& problem) {
    return out << fmt::format("{} {}x{}x{}", problem.step, problem.m, problem.n, problem.k);
  }
};

class MatmulRun {
 public:
  MatmulRun(const MatmulCase& problem, std::uint64_t seed)
      : problem_(problem),
        random_(seed),
        a_(DType::bf16, {problem.m, problem.k}, rows_of(problem.k)),
        b_(DType::bf16, {problem.n, problem.k}, rows_of(problem.k)),
        c_(DType::bf16, {problem.m, problem.n}, rows_of(problem.n)),
        sums_(DType::fp32, {problem.splits, problem.m, problem.n}) {
    std::normal_distribution<double> normal;
    for (DeviceTensor* matrix : {&a_, &b_}) {
      matrix->fill([&](std::int64_t) { return normal(random_); });
      matrix->upload();
    }
    poison();
  }

  MatmulArguments arguments() const {
    MatmulArguments arguments{.a = a_.view(), .b = b_.view(), .c = c_.view()};
    if (problem_.step == "split_k") arguments.partial_sums = sums_.view();
    return arguments;
  }

  /// All that is written holds no number.
  void poison() {
    for (DeviceTensor* written : {&c_, &sums_}) {
      written->poison();
      written->upload();
    }
  }

  /// Errors of C; empty: none.
  std::string check() {
    c_.download();
    const std::vector<double> a = numbers(a_), b = numbers(b_), c = numbers(c_);
    const auto k = static_cast<std::size_t>(problem_.k), n = static_cast<std::size_t>(problem_.n);
    for (std::size_t i = 0; i < c.size(); ++i) {
      double expected = 0, magnitude = 0;
      for (std::size_t j = 0; j < k; ++j) {
        const double term = a[i / n * k + j] * b[i % n * k + j];
        expected += term;
        magnitude += std::abs(term);
      }
      const double bound =
          reference::unit_roundoff(DType::bf16) * std::abs(expected) + 0x1p-20 * magnitude + 1e-30;
      if (!(std::abs(c[i] - expected) <= bound))
        return fmt::format("c[{}, {}] is {}, should be {}", i / n, i % n, c[i], expected);
    }
    return "";
  }

  /// The memory of C, as of the last check: what lies between rows, too.
  const std::vector<std::uint8_t>& bytes() const { return c_.bytes(); }

 private:
  // Rows begin at multiples of 16 bytes; what lies between them is poison.
  static TensorLayout rows_of(int columns) { return {.row_elements = (columns + 7) / 8 * 8 + 8}; }
  static std::vector<double> numbers(const DeviceTensor& tensor) {
    std::vector<double> all;
    for (std::int64_t flat = 0; flat < tensor.count(); ++flat) all.push_back(tensor.get(tensor.index(flat)));
    return all;
  }

  MatmulCase problem_;
  std::mt19937_64 random_;
  DeviceTensor a_, b_, c_, sums_;
};

}  // namespace jit::testing
