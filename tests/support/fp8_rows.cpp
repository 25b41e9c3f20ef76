#include "tests/support/fp8_rows.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/float16.h>

#include "tests/support/float16.h"

namespace jit::testing {
namespace {

constexpr DType e4m3 = DType::fp8_e4m3;
constexpr unsigned char code_of_nan = 0x7f;

unsigned char code_of(float number) {
  static const reference::NearestCode nearest(e4m3);
  return std::isnan(number) ? code_of_nan : nearest(number);
}

// Uploads the same codes for each entry.
DeviceBuffer upload(const std::vector<float>& numbers, int batch) {
  std::vector<unsigned char> codes;
  for (const float number : numbers) codes.push_back(code_of(number));
  const std::size_t count = codes.size();
  codes.resize(count * static_cast<std::size_t>(batch));
  for (std::size_t i = count; i < codes.size(); ++i) codes[i] = codes[i - count];
  DeviceBuffer memory(0, codes.size());
  memory.upload(codes.data(), codes.size());
  return memory;
}

}  // namespace

float Fp8Rows::rounded(float number) { return float_from_bits(e4m3, code_of(number)); }

Fp8Rows::Fp8Rows(int queries, int keys, float of_queries, float of_keys, std::uint64_t seed)
    : queries(queries), keys(keys) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& numbers, int rows, float deviation) {
    for (int i = 0; i < rows * head_dim; ++i) numbers.push_back(rounded(deviation * normal(random)));
  };
  fill(q, queries, of_queries);
  fill(k, keys, of_keys);
  fill(v, keys, 1);
}

void Fp8Rows::set_scores(const std::vector<float>& scores) {
  for (int i = 0; i < queries; ++i) q[static_cast<std::size_t>(i * head_dim)] = 1;
  for (int i = 0; i < keys; ++i)
    k[static_cast<std::size_t>(i * head_dim)] = scores[static_cast<std::size_t>(i)];
}

std::vector<double> exact_output(const Fp8Rows& rows, const AttentionSpec& spec) {
  const int d = rows.head_dim;
  std::vector<double> output(rows.q.size());
  std::vector<double> scores(static_cast<std::size_t>(rows.keys));
  for (int i = 0; i < rows.queries; ++i) {
    const int seen = spec.mask == Mask() ? rows.keys : std::min(rows.keys, i + 1 + rows.keys - rows.queries);
    double largest = -INFINITY, sum = 0;
    for (int j = 0; j < seen; ++j) {
      double product = 0;
      for (int c = 0; c < d; ++c)
        product += static_cast<double>(rows.q[static_cast<std::size_t>(i * d + c)]) *
                   static_cast<double>(rows.k[static_cast<std::size_t>(j * d + c)]);
      scores[static_cast<std::size_t>(j)] = product * static_cast<double>(*spec.softmax_scale);
      largest = std::max(largest, scores[static_cast<std::size_t>(j)]);
    }
    double* const row = output.data() + static_cast<std::ptrdiff_t>(i) * d;
    for (int j = 0; j < seen; ++j) {
      const double weight = std::exp(scores[static_cast<std::size_t>(j)] - largest);
      sum += weight;
      for (int c = 0; c < d; ++c)
        row[c] += weight * static_cast<double>(rows.v[static_cast<std::size_t>(j * d + c)]);
    }
    for (int c = 0; c < d && sum != 0; ++c) row[c] /= sum;
  }
  return output;
}

std::vector<float> output_of(const Fp8Rows& rows, Fp8Call call, const Context& context) {
  call.spec.dtype = e4m3;
  call.spec.out_dtype = DType::fp32;
  call.spec.head_dim = call.spec.head_dim_v = rows.head_dim;
  const CurrentDevice current(0);
  const Attention kernel = attention(call.spec, parse_config(call.config), context);
  const DeviceBuffer q = upload(rows.q, call.batch), k = upload(rows.k, call.batch),
                     v = upload(rows.v, call.batch);
  const std::size_t count = rows.q.size() * static_cast<std::size_t>(call.batch);
  const DeviceBuffer o(0, count * sizeof(float)),
      lse(0, static_cast<std::size_t>(call.batch) * static_cast<std::size_t>(rows.queries) * sizeof(float));
  const auto view = [&](const DeviceBuffer& memory, DType dtype, int seqlen) {
    return TensorView::bshd(memory.data(), dtype,
                            {.batch = call.batch, .seqlen = seqlen, .heads = 1, .head_dim = rows.head_dim});
  };
  AttentionArguments arguments{.q = view(q, e4m3, rows.queries),
                               .k = view(k, e4m3, rows.keys),
                               .v = view(v, e4m3, rows.keys),
                               .o = view(o, DType::fp32, rows.queries)};
  if (call.with_lse) arguments.lse = TensorView::bhs(lse.data(), call.batch, 1, rows.queries);
  kernel(arguments);
  std::vector<float> output(count);
  o.download(output.data(), o.size());  // waits
  return output;
}

double error_of(const std::vector<float>& output, const std::vector<double>& exact) {
  double sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    sum += (static_cast<double>(output[i]) - exact[i]) * (static_cast<double>(output[i]) - exact[i]);
  return std::sqrt(sum / static_cast<double>(exact.size()));
}

}  // namespace jit::testing
