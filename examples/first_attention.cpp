// Causal attention in bf16, checked against double precision. JIT_ATTENTION_DEVICE=emulated:sm_90a computes without a
// GPU.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <jit/attention.h>
#include <jit/device.h>
#include <jit/device_buffer.h>

namespace {

constexpr int seqlen = 200, heads = 2, head_dim = 64;

using Bf16s = std::vector<std::uint16_t>;  // the upper half of a float

double value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

Bf16s random_values(unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Bf16s values(seqlen * heads * head_dim);
  for (std::uint16_t& bits : values) bits = std::bit_cast<std::uint32_t>(normal(generator)) >> 16;
  return values;
}

std::size_t at(int position, int head, int i) {
  return (std::size_t(position) * heads + head) * head_dim + i;
}

// The largest difference between `o` and attention in double precision.
double largest_error(const Bf16s& q, const Bf16s& k, const Bf16s& v, const Bf16s& o) {
  double largest = 0;
  for (int head = 0; head < heads; ++head) {
    for (int query = 0; query < seqlen; ++query) {
      double sum = 0, exact[head_dim] = {};
      for (int key = 0; key <= query; ++key) {
        double dot = 0;
        for (int i = 0; i < head_dim; ++i) dot += value(q[at(query, head, i)]) * value(k[at(key, head, i)]);
        const double weight = std::exp(dot / std::sqrt(head_dim));
        sum += weight;
        for (int i = 0; i < head_dim; ++i) exact[i] += weight * value(v[at(key, head, i)]);
      }
      for (int i = 0; i < head_dim; ++i) {
        const double error = std::abs(exact[i] / sum - value(o[at(query, head, i)]));
        if (error > largest || std::isnan(error)) largest = error;
      }
    }
  }
  return largest;
}

// A copy of the values in the device's memory. Programs of yours have theirs from cudaMalloc or from a
// framework.
jit::DeviceBuffer upload(const Bf16s& values) {
  jit::DeviceBuffer buffer(0, values.size() * sizeof(values[0]));
  buffer.upload(values.data(), buffer.size());
  return buffer;
}

}  // namespace

int main() try {
  jit::AttentionSpec spec;
  spec.head_dim = head_dim;
  spec.mask = jit::mask::causal();
  const Bf16s q = random_values(1), k = random_values(2), v = random_values(3);
  Bf16s o(q.size());
  const jit::DeviceBuffer q_memory = upload(q), k_memory = upload(k), v_memory = upload(v),
                          o_memory = upload(o);
  const auto tensor = [](const jit::DeviceBuffer& memory) {
    return jit::TensorView::bshd(memory.data(), jit::DType::bf16,
                                 {.seqlen = seqlen, .heads = heads, .head_dim = head_dim});
  };
  const jit::AttentionArguments arguments{
      .q = tensor(q_memory), .k = tensor(k_memory), .v = tensor(v_memory), .o = tensor(o_memory)};

  const jit::Attention attention = jit::attention(spec);  // compiled, or from the cache
  attention(arguments);  // the first call tunes for this GPU, later ones only launch
  o_memory.download(o.data(), o_memory.size());

  const double error = largest_error(q, k, v, o);
  std::printf("%s on %s\nlargest error against double precision: %.1e\n",
              attention.kernel(arguments).name().c_str(), jit::device_info(0).name.c_str(), error);
  return error < 0.02 ? 0 : 1;  // bf16 keeps 8 bits
} catch (const jit::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
