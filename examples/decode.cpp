// One layer of a model that decodes: new keys and values go to a paged cache, rotated with their queries, and attention
// reads the pages. On a GPU a step is a CUDA graph that is replayed while lengths and pages change on the device.
// Results are checked against double precision. JIT_ATTENTION_DEVICE=emulated:sm_90a computes without a GPU.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include <jit/append.h>
#include <jit/attention.h>
#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/float16.h>

#include "cuda_graph.h"

namespace {

constexpr int heads_q = 8, heads_kv = 2, head_dim = 64, page_size = 16, max_pages = 8, steps = 4;
constexpr int max_tokens = max_pages * page_size;
const std::vector<int> prompts = {37, 1, 90};  // tokens of each request
const int requests = static_cast<int>(prompts.size());

using Bf16s = std::vector<std::uint16_t>;

double value(std::uint16_t bits) { return jit::float_from_bits(jit::DType::bf16, bits); }

Bf16s random_values(std::size_t count, std::mt19937& generator) {
  std::normal_distribution<float> normal;
  Bf16s values(count);
  for (std::uint16_t& bits : values) bits = jit::float_to_bits(jit::DType::bf16, normal(generator));
  return values;
}

double angle(int position, int pair) { return position * std::pow(10000.0, -2.0 * pair / head_dim); }

// Cosines of a position's pairs, then their sines, for each position.
std::vector<float> rotary_table() {
  std::vector<float> table;
  for (int position = 0; position < max_tokens; ++position) {
    for (int j = 0; j < head_dim / 2; ++j) table.push_back(std::cos(angle(position, j)));
    for (int j = 0; j < head_dim / 2; ++j) table.push_back(std::sin(angle(position, j)));
  }
  return table;
}

// A head's row at its position.
std::vector<double> rotated(const std::uint16_t* row, int position) {
  std::vector<double> result(head_dim);
  for (int j = 0; j < head_dim / 2; ++j) {
    const double a = value(row[j]), b = value(row[j + head_dim / 2]), turn = angle(position, j);
    result[j] = a * std::cos(turn) - b * std::sin(turn);
    result[j + head_dim / 2] = b * std::cos(turn) + a * std::sin(turn);
  }
  return result;
}

// The keys and values of a request so far, as they came.
struct History {
  Bf16s k, v;
  int length() const { return static_cast<int>(k.size()) / (heads_kv * head_dim); }
};

// The largest difference between a token's output and attention in double precision. The token is the history's last.
double largest_error(const std::uint16_t* q, const History& history, const std::uint16_t* o) {
  double largest = 0;
  for (int head = 0; head < heads_q; ++head) {
    const std::vector<double> query = rotated(q + head * head_dim, history.length() - 1);
    double sum = 0, exact[head_dim] = {};
    for (int key = 0; key < history.length(); ++key) {
      const std::size_t at = (std::size_t(key) * heads_kv + head / (heads_q / heads_kv)) * head_dim;
      const std::vector<double> own = rotated(&history.k[at], key);
      const double dot = std::inner_product(query.begin(), query.end(), own.begin(), 0.0);
      const double weight = std::exp(dot / std::sqrt(head_dim));
      sum += weight;
      for (int i = 0; i < head_dim; ++i) exact[i] += weight * value(history.v[at + i]);
    }
    for (int i = 0; i < head_dim; ++i) {
      const double error = std::abs(exact[i] / sum - value(o[head * head_dim + i]));
      if (error > largest || std::isnan(error)) largest = error;
    }
  }
  return largest;
}

template <class T>
jit::DeviceBuffer upload(const std::vector<T>& values) {
  jit::DeviceBuffer buffer(0, values.size() * sizeof(T));
  buffer.upload(values.data(), buffer.size());
  return buffer;
}

template <class T>
void replace(const jit::DeviceBuffer& buffer, const std::vector<T>& values) {
  buffer.upload(values.data(), values.size() * sizeof(T));
}

jit::TensorView rows(const jit::DeviceBuffer& memory, int tokens, int heads) {
  return jit::TensorView::dense(memory.data(), jit::DType::bf16, {tokens, heads, head_dim});
}

jit::TensorView int32s(const jit::DeviceBuffer& memory, std::initializer_list<std::int64_t> shape) {
  return jit::TensorView::dense(memory.data(), jit::DType::int32, shape);
}

// Pages in the order in which requests need them, so that those of a request lie apart.
struct PageTable {
  std::vector<int> entries = std::vector<int>(requests * max_pages, -1);
  int used = 0;
  void make_room(int request, int length) {
    for (int page = 0; page * page_size < length; ++page) {
      int& entry = entries[request * max_pages + page];
      if (entry < 0) entry = used++;
    }
  }
};

double run() {
  std::mt19937 generator(1);
  const jit::CurrentDevice device(0);
  CudaGraph graph(jit::device_info(0).emulated);

  const jit::DeviceBuffer k_pages(0, std::size_t(requests) * max_tokens * heads_kv * head_dim * 2),
      v_pages(0, k_pages.size());
  for (const jit::DeviceBuffer* memory : {&k_pages, &v_pages}) {
    memory->fill(0,
                 graph.stream());  // pages are read whole, and an emulated device tells of rows never written
  }
  const auto pages = [](const jit::DeviceBuffer& memory) {
    return jit::TensorView::dense(memory.data(), jit::DType::bf16,
                                  {requests * max_pages, page_size, heads_kv, head_dim});
  };
  const std::vector<float> table = rotary_table();
  const jit::DeviceBuffer cos_sin = upload(table);
  std::vector<int> lengths = prompts, boundaries = {0};
  PageTable page_table;
  for (int b = 0; b < requests; ++b) {
    boundaries.push_back(boundaries.back() + prompts[b]);
    page_table.make_room(b, prompts[b]);
  }
  const jit::DeviceBuffer seqused_k = upload(lengths), table_memory = upload(page_table.entries);

  const jit::Append append = jit::append({.head_dim = head_dim, .rotary_dim = head_dim});
  jit::AppendArguments cache{
      .k_cache = pages(k_pages),
      .v_cache = pages(v_pages),
      .seqused_k = int32s(seqused_k, {requests}),
      .page_table = int32s(table_memory, {requests, max_pages}),
      .cos_sin = jit::TensorView::dense(cos_sin.data(), jit::DType::fp32, {max_tokens, head_dim})};

  // The prompts' keys and values, all in one call.
  std::vector<History> histories(requests);
  Bf16s all_k, all_v;
  for (int b = 0; b < requests; ++b) {
    const std::size_t count = std::size_t(prompts[b]) * heads_kv * head_dim;
    histories[b] = {random_values(count, generator), random_values(count, generator)};
    all_k.insert(all_k.end(), histories[b].k.begin(), histories[b].k.end());
    all_v.insert(all_v.end(), histories[b].v.begin(), histories[b].v.end());
  }
  const jit::DeviceBuffer prompt_k = upload(all_k), prompt_v = upload(all_v), starts = upload(boundaries);
  jit::AppendArguments prefill = cache;
  prefill.k = rows(prompt_k, boundaries.back(), heads_kv);
  prefill.v = rows(prompt_v, boundaries.back(), heads_kv);
  prefill.cu_seqlens_q = int32s(starts, {requests + 1});
  append(prefill, graph.stream());

  // Steps of one new token for each request. The arrays stay where they are, and so does what the graph launches.
  std::vector<int> one_each(requests + 1);
  std::iota(one_each.begin(), one_each.end(), 0);
  const jit::DeviceBuffer cu_seqlens_q = upload(one_each);
  const jit::DeviceBuffer q(0, std::size_t(requests) * heads_q * head_dim * 2), o(0, q.size()),
      k(0, std::size_t(requests) * heads_kv * head_dim * 2), v(0, k.size());
  cache.k = rows(k, requests, heads_kv);
  cache.v = rows(v, requests, heads_kv);
  cache.q = rows(q, requests, heads_q);
  cache.cu_seqlens_q = int32s(cu_seqlens_q, {requests + 1});
  jit::AttentionSpec spec;
  spec.head_dim = head_dim;
  spec.gqa_ratio = heads_q / heads_kv;
  spec.sequences_q = jit::SequenceKind::varlen;
  spec.sequences_kv = jit::SequenceKind::paged;
  spec.page_size = page_size;
  spec.mask = jit::mask::causal();
  const jit::AttentionArguments reads{.q = cache.q,
                                      .k = cache.k_cache,
                                      .v = cache.v_cache,
                                      .o = rows(o, requests, heads_q),
                                      .cu_seqlens_q = cache.cu_seqlens_q,
                                      .seqused_k = cache.seqused_k,
                                      .page_table = cache.page_table};
  const jit::Attention attention = jit::attention(spec);
  attention.prepare(reads);  // chooses a kernel and loads it, which no capture may do

  double error = 0;
  for (int step = 0; step < steps; ++step) {
    const Bf16s new_q = random_values(requests * heads_q * head_dim, generator);
    const Bf16s new_k = random_values(requests * heads_kv * head_dim, generator);
    const Bf16s new_v = random_values(requests * heads_kv * head_dim, generator);
    for (int b = 0; b < requests; ++b) {
      page_table.make_room(b, ++lengths[b]);
      const auto of_request = [b](const Bf16s& x) { return x.begin() + b * heads_kv * head_dim; };
      histories[b].k.insert(histories[b].k.end(), of_request(new_k), of_request(new_k) + heads_kv * head_dim);
      histories[b].v.insert(histories[b].v.end(), of_request(new_v), of_request(new_v) + heads_kv * head_dim);
    }
    jit::synchronize(graph.stream());  // nothing is written over while it is read
    replace(q, new_q);
    replace(k, new_k);
    replace(v, new_v);
    replace(seqused_k, lengths);
    replace(table_memory, page_table.entries);
    graph.run([&] {
      append(cache, graph.stream());
      attention(reads, graph.stream());
    });
    Bf16s result(new_q.size());
    o.download(result.data(), o.size(), 0, graph.stream());
    for (int b = 0; b < requests; ++b) {
      const std::size_t at = std::size_t(b) * heads_q * head_dim;
      const double own = largest_error(&new_q[at], histories[b], &result[at]);
      if (own > error || std::isnan(own)) error = own;
    }
  }
  std::printf("%s on %s\n%d steps of %d requests with %d to %d keys\n",
              attention.kernel(reads).name().c_str(), jit::device_info(0).name.c_str(), steps, requests,
              lengths[1], lengths[2]);
  return error;
}

}  // namespace

int main() try {
  const double error = run();
  std::printf("largest error against double precision: %.1e\n", error);
  return error < 0.03 ? 0 : 1;  // bf16 keeps 8 bits
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
