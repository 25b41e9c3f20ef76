// An attention problem on the host: what the reference implementations compute, and what comes out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <jit/tensor.h>

namespace jit::reference {

/// Bits of a (batch, seqlen, heads, head_dim) tensor; strides in elements, that of head_dim is 1.
struct HostTensor {
  const std::uint16_t* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t seq_stride = 0;
  std::int64_t head_stride = 0;

  const std::uint16_t* row(int b, int position, int h) const {
    return data + b * batch_stride + position * seq_stride + h * head_stride;
  }
};

/// Whether query q of head h in batch entry b sees key k.
using Keep = std::function<bool(int b, int h, int q, int k)>;
/// The score that the softmax sees, from softmax_scale · q·k.
using ScoreFunction = std::function<double(double score, int b, int h, int q, int k)>;

struct Problem {
  DType dtype = DType::bf16;
  int batch = 1;
  int heads_q = 1;
  int gqa_ratio = 1;
  int seqlen_q = 1;
  int seqlen_kv = 1;
  int head_dim = 64;
  int head_dim_v = 64;
  HostTensor q = {};
  HostTensor k = {};
  HostTensor v = {};
  float softmax_scale = 1;
  bool fp8_weights =
      false;            ///< probabilities are e4m3 numbers, 2^8 at most, before they are multiplied with v
  Keep keep = nullptr;  ///< empty: every key
  ScoreFunction score = nullptr;      ///< empty: the score as it is
  std::vector<float> v_mean = {};     ///< (batch, heads_kv, head_dim_v), which v has lost; empty: nothing
  std::vector<float> lse_shift = {};  ///< (batch, heads_q, seqlen_q), over softmax_scale; empty: nothing
  std::vector<float> sinks = {};      ///< (heads_q), in natural units; empty: none
};

/// One query of one head.
struct Row {
  int b, h, q;
};

/// Results for a list of rows, in its order.
struct Output {
  std::vector<double> o;    ///< (rows, head_dim_v)
  std::vector<double> lse;  ///< natural log; −inf for a row that sees no key, whose o is 0
};

/// Every row, by batch entry, head and query.
std::vector<Row> all_rows(const Problem& problem);

/// At most `count` rows: all of them when they are so few, else the first and last queries of each head and a
/// random choice.
std::vector<Row> sample_rows(const Problem& problem, std::size_t count, std::uint64_t seed);

/// Largest absolute difference. Differences of equal infinities count 0, NaN counts as infinite.
double max_error(std::span<const double> actual, std::span<const double> expected);

/// How far a result may be from the exact one: twice the error of `plain`. One rounding of the largest value
/// counts as error in any case, since every result must be rounded; two where the sample is small.
double error_limit(DType dtype, std::span<const double> plain, std::span<const double> exact);

namespace detail {

/// Keys or values of one head as floats, (seqlen_kv, head_dim).
std::vector<float> head_as_floats(const Problem& problem, const HostTensor& tensor, int head_dim, int b,
                                  int h_kv);

/// The inputs of a row: float copies of its query, and of the keys and values of its head.
struct RowInputs {
  Row row;
  const float* q;
  const float* k;
  const float* v;
};

/// Calls `compute(inputs, o, lse)` for each row, on all cores; `o` points to head_dim_v zeros.
Output for_each_row(const Problem& problem, std::span<const Row> rows,
                    const std::function<void(const RowInputs&, double* o, double& lse)>& compute);

/// Σ a·b in the type of `Sum`, in `lanes` interleaved parts.
template <class Sum>
Sum dot(const float* a, const float* b, int count) {
  constexpr int lanes = 8;
  Sum sums[lanes] = {};
  for (int i = 0; i < count; i += lanes) {  // head dims are multiples of 8
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += static_cast<Sum>(a[i + lane]) * b[i + lane];
  }
  Sum sum = 0;
  for (const Sum part : sums) sum += part;
  return sum;
}

}  // namespace detail
}  // namespace jit::reference
