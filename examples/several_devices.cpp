// Attention over keys that lie on several devices: each attends to its share, and the partial results are merged.
// JIT_ATTENTION_DEVICE=emulated:sm_90a,sm_90a computes without a GPU.
//
// Each device returns o and LSE of its keys. Of disjoint keys these merge into the o of all (jit/merge.h). Context
// parallelism and a ring of devices end so; here results travel by way of the host.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <jit/attention.h>
#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/merge.h>

namespace {

constexpr int queries = 60, keys_per_device = 100, heads = 2, head_dim = 64;

using Bf16s = std::vector<std::uint16_t>;  // the upper half of a float

double value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

Bf16s random_values(int rows, std::mt19937& generator) {
  std::normal_distribution<float> normal;
  Bf16s values(static_cast<std::size_t>(rows) * heads * head_dim);
  for (std::uint16_t& bits : values) bits = std::bit_cast<std::uint32_t>(normal(generator)) >> 16;
  return values;
}

template <class T>
jit::DeviceBuffer upload(int device, const std::vector<T>& values) {
  jit::DeviceBuffer buffer(device, values.size() * sizeof(T));
  buffer.upload(values.data(), buffer.size());
  return buffer;
}
template <class T>
std::vector<T> download(const jit::DeviceBuffer& buffer) {
  std::vector<T> values(buffer.size() / sizeof(T));
  buffer.download(values.data(), buffer.size());
  return values;
}

jit::TensorView rows(const jit::DeviceBuffer& memory, int seqlen) {
  return jit::TensorView::bshd(memory.data(), jit::DType::bf16, {1, seqlen, heads, head_dim});
}
jit::TensorView lse_of(const jit::DeviceBuffer& memory) {
  return jit::TensorView::bhs(memory.data(), 1, heads, queries);
}

/// o and LSE of some keys.
struct Partial {
  Bf16s o;
  std::vector<float> lse;
};

Partial attend(int device, const Bf16s& q, const Bf16s& k, const Bf16s& v) {
  const jit::CurrentDevice scope(device);
  const jit::DeviceBuffer q_memory = upload(device, q), k_memory = upload(device, k),
                          v_memory = upload(device, v);
  const jit::DeviceBuffer o(device, q.size() * sizeof q[0]), lse(device, heads * queries * sizeof(float));
  const jit::Attention attention = jit::attention({.head_dim = head_dim});
  attention({.q = rows(q_memory, queries),
             .k = rows(k_memory, keys_per_device),
             .v = rows(v_memory, keys_per_device),
             .o = rows(o, queries),
             .lse = lse_of(lse)});
  return {download<std::uint16_t>(o), download<float>(lse)};
}

Bf16s merged(const std::vector<Partial>& partials) {
  const jit::CurrentDevice scope(0);
  std::vector<jit::DeviceBuffer> memory;
  std::vector<jit::PartialState> states;
  for (const Partial& partial : partials) {
    memory.push_back(upload(0, partial.o));
    memory.push_back(upload(0, partial.lse));
    states.push_back({rows(memory[memory.size() - 2], queries), lse_of(memory.back())});
  }
  const jit::DeviceBuffer o(0, partials[0].o.size() * sizeof(std::uint16_t));
  const jit::Merge merge = jit::merge({.dtype = jit::DType::bf16, .head_dim_v = head_dim, .views = 32});
  merge({.parts = states, .o = rows(o, queries)});
  return download<std::uint16_t>(o);
}

// The largest difference between `o` and attention over the keys of all devices in double precision.
double largest_error(const Bf16s& q, const std::vector<Bf16s>& k, const std::vector<Bf16s>& v,
                     const Bf16s& o) {
  const auto at = [](int row, int head, int i) { return (std::size_t(row) * heads + head) * head_dim + i; };
  double largest = 0;
  for (int head = 0; head < heads; ++head) {
    for (int query = 0; query < queries; ++query) {
      double sum = 0, exact[head_dim] = {};
      for (std::size_t device = 0; device < k.size(); ++device) {
        for (int key = 0; key < keys_per_device; ++key) {
          double dot = 0;
          for (int i = 0; i < head_dim; ++i)
            dot += value(q[at(query, head, i)]) * value(k[device][at(key, head, i)]);
          const double weight = std::exp(dot / std::sqrt(head_dim));
          sum += weight;
          for (int i = 0; i < head_dim; ++i) exact[i] += weight * value(v[device][at(key, head, i)]);
        }
      }
      for (int i = 0; i < head_dim; ++i) {
        const double error = std::abs(exact[i] / sum - value(o[at(query, head, i)]));
        largest = error <= largest ? largest : error;  // keeps NaN
      }
    }
  }
  return largest;
}

}  // namespace

int main() try {
  std::mt19937 generator(1);
  const Bf16s q = random_values(queries, generator);
  std::vector<Bf16s> k, v;
  std::vector<Partial> partials;
  for (const jit::DeviceInfo& device : jit::devices()) {
    k.push_back(random_values(keys_per_device, generator));
    v.push_back(random_values(keys_per_device, generator));
    partials.push_back(attend(device.ordinal, q, k.back(), v.back()));
  }
  const double error = largest_error(q, k, v, merged(partials));
  std::printf("%zu devices, %d keys each\nlargest error against double precision: %.1e\n", k.size(),
              keys_per_device, error);
  return error < 0.02 ? 0 : 1;  // bf16 keeps 8 bits
} catch (const jit::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
