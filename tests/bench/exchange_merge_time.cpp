// Times jit::exchange_merge between two GPUs of one host, in one process: decoding with 64 heads, of which each rank has
// attended to half of the keys.
//
//   bench_exchange_merge [calls]
//
// A chain of calls on each device, as layers of a model have them: from a host thread for each device, and in a CUDA graph.
// Beside them the merge alone of as many states that lie in the own memory. Microseconds a call, the slower device's, the
// median of 11 chains. JIT_ATTENTION_DEVICE=emulated:sm_90a,sm_90a shows that it runs; its times mean nothing.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <jit/device.h>
#include <jit/device_buffer.h>
#include <jit/exchange_merge.h>
#include <jit/float16.h>
#include <jit/merge.h>

#include "runtime/driver_api.h"

namespace {

using jit::check;
using jit::driver;

constexpr int ranks = 2, heads = 64, head_dim = 128;

struct Case {
  int batch = 1;
  jit::DType dtype = jit::DType::fp32;
  jit::ExchangeShare share = jit::ExchangeShare::heads;
};

jit::TensorView dense(const jit::DeviceBuffer& memory, jit::DType dtype,
                      std::initializer_list<std::int64_t> shape) {
  return jit::TensorView::dense(memory.data(), dtype, shape);
}

/// The tensors, streams and buffers of one rank.
class Rank {
 public:
  Rank(int device, const Case& problem, const jit::ExchangeMergeSpec& spec)
      : device_(device),
        problem_(problem),
        o_(device, elements() * static_cast<std::size_t>(jit::size_of(problem.dtype))),
        lse_(device, rows() * sizeof(float)),
        out_(device, elements() * 2),
        buffer_(device, jit::exchange_merge_bytes(spec, problem.batch, heads)) {
    const jit::CurrentDevice current(device);
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(driver().cuEventCreate(&begin_, CU_EVENT_DEFAULT), "cuEventCreate");
    check(driver().cuEventCreate(&end_, CU_EVENT_DEFAULT), "cuEventCreate");
    buffer_.fill(0, stream_);
    std::mt19937 random(static_cast<unsigned>(device));
    std::normal_distribution<float> normal;
    std::vector<float> lse(rows());
    for (float& value : lse) value = normal(random);
    lse_.upload(lse.data(), lse_.size());
    std::vector<std::uint32_t> words(o_.size() / 4);
    for (std::uint32_t& word : words) {
      const float value = normal(random);
      if (problem.dtype == jit::DType::fp32) {
        word = std::bit_cast<std::uint32_t>(value);
      } else {
        word = std::bit_cast<std::uint32_t>(value) >> 16;
        word |= word << 16;
      }
    }
    o_.upload(words.data(), o_.size());
    check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  int device() const { return device_; }
  CUstream stream() const { return stream_; }
  void* buffer() const { return buffer_.data(); }
  jit::ExchangeMergeArguments arguments(std::span<void* const> buffers, int rank) const {
    const std::int64_t own = problem_.share == jit::ExchangeShare::heads ? heads / ranks : heads;
    return {.o = dense(o_, problem_.dtype, {problem_.batch, heads, head_dim}),
            .lse = dense(lse_, jit::DType::fp32, {heads, problem_.batch}),
            .out = dense(out_, jit::DType::bf16, {problem_.batch, own, head_dim}),
            .buffers = buffers,
            .buffer_bytes = buffer_.size(),
            .rank = rank,
            .timeout = 10};
  }
  /// As many rows as the exchange gives it, of states that are here already.
  void merge(const jit::Merge& kernel) const {
    const std::int64_t own = problem_.share == jit::ExchangeShare::heads ? heads / ranks : heads;
    jit::TensorView o = dense(o_, problem_.dtype, {problem_.batch, heads, head_dim});
    jit::TensorView lse = dense(lse_, jit::DType::fp32, {heads, problem_.batch});
    o.shape[1] = lse.shape[0] = own;
    const std::vector<jit::PartialState> parts(ranks, {o, lse});
    kernel({.parts = parts, .o = dense(out_, jit::DType::bf16, {problem_.batch, own, head_dim})}, stream_);
  }
  std::vector<std::uint16_t> result() const {
    std::vector<std::uint16_t> values(out_.size() / 2);
    out_.download(values.data(), out_.size(), 0, stream_);
    return values;
  }

  void record_begin() const { check(driver().cuEventRecord(begin_, stream_), "cuEventRecord"); }
  void record_end() const { check(driver().cuEventRecord(end_, stream_), "cuEventRecord"); }
  double microseconds() const {
    check(driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    float milliseconds = 0;
    check(driver().cuEventElapsedTime(&milliseconds, begin_, end_), "cuEventElapsedTime");
    return 1000.0 * milliseconds;
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(problem_.batch) * heads; }
  std::size_t elements() const { return rows() * head_dim; }

  int device_;
  Case problem_;
  jit::DeviceBuffer o_, lse_, out_, buffer_;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
};

using Chain = std::function<void(int rank)>;

// Chains that are timed; emulated devices only show that it runs.
int repeats() { return jit::emulates_devices() ? 1 : 11; }

// Microseconds of a chain on the slower device, which `start` puts on the stream of each: a host thread for each.
double time_of(const std::vector<std::unique_ptr<Rank>>& all, const Chain& start) {
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats() + 2; ++repeat) {
    std::vector<double> each(all.size());
    std::barrier together(static_cast<std::ptrdiff_t>(all.size()));
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const jit::CurrentDevice current(all[rank]->device());
        together.arrive_and_wait();
        all[rank]->record_begin();
        start(static_cast<int>(rank));
        all[rank]->record_end();
        each[rank] = all[rank]->microseconds();
      });
    }
    threads.clear();
    if (repeat >= 2) times.push_back(*std::max_element(each.begin(), each.end()));
  }
  std::nth_element(times.begin(), times.begin() + repeats() / 2, times.end());
  return times[static_cast<std::size_t>(repeats()) / 2];
}

// A chain as a graph of each device.
std::vector<CUgraphExec> captured(const std::vector<std::unique_ptr<Rank>>& all, const Chain& chain) {
  std::vector<CUgraphExec> graphs(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const jit::CurrentDevice current(all[rank]->device());
    check(driver().cuStreamBeginCapture(all[rank]->stream(), CU_STREAM_CAPTURE_MODE_RELAXED),
          "cuStreamBeginCapture");
    chain(static_cast<int>(rank));
    CUgraph graph = nullptr;
    check(driver().cuStreamEndCapture(all[rank]->stream(), &graph), "cuStreamEndCapture");
    check(driver().cuGraphInstantiateWithFlags(&graphs[rank], graph, 0), "cuGraphInstantiateWithFlags");
    check(driver().cuGraphDestroy(graph), "cuGraphDestroy");
  }
  return graphs;
}

void measure(const Case& problem, int calls) {
  const jit::ExchangeMergeSpec spec{.dtype = problem.dtype, .ranks = ranks, .share = problem.share};
  const jit::ExchangeMerge exchange = jit::exchange_merge(spec);
  const jit::Merge merge = jit::merge({.dtype = problem.dtype});
  std::vector<std::unique_ptr<Rank>> all;
  std::vector<void*> buffers;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(std::make_unique<Rank>(rank, problem, spec));
    buffers.push_back(all.back()->buffer());
    const jit::CurrentDevice current(rank);
    exchange.prepare();
    merge.prepare();
  }
  const auto run = [&](int rank) {
    const Rank& own = *all[static_cast<std::size_t>(rank)];
    exchange(own.arguments(buffers, rank), own.stream());
  };
  const Chain exchanges = [&](int rank) {
    for (int call = 0; call < calls; ++call) run(rank);
  };
  const Chain merges = [&](int rank) {
    for (int call = 0; call < calls; ++call) all[static_cast<std::size_t>(rank)]->merge(merge);
  };
  const auto replay = [&](const std::vector<CUgraphExec>& graphs) {
    return time_of(all, [&](int rank) {
      check(driver().cuGraphLaunch(graphs[static_cast<std::size_t>(rank)],
                                   all[static_cast<std::size_t>(rank)]->stream()),
            "cuGraphLaunch");
    });
  };
  const double eager = time_of(all, exchanges), in_graph = replay(captured(all, exchanges)),
               alone = replay(captured(all, merges));
  // The last chain merged other states.
  for (int rank = 0; rank < ranks; ++rank) {
    const jit::CurrentDevice current(rank);
    run(rank);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (const auto fault = jit::exchange_fault(buffers[static_cast<std::size_t>(rank)],
                                               all[static_cast<std::size_t>(rank)]->stream())) {
      std::printf("rank %d: %s\n", rank, fault->to_string().c_str());
      std::exit(1);
    }
  }
  if (problem.share == jit::ExchangeShare::all && all[0]->result() != all[1]->result()) {
    std::printf("the ranks have different bits\n");
    std::exit(1);
  }
  std::printf("%5d  %-5s %-6s %8.2f %8.2f %8.2f\n", problem.batch, jit::to_string(problem.dtype).data(),
              problem.share == jit::ExchangeShare::heads ? "heads" : "all", eager / calls, in_graph / calls,
              alone / calls);
}

}  // namespace

int main(int count, char** arguments) try {
  if (jit::devices().size() < ranks || !jit::can_access_peer(0, 1)) {
    std::printf("two devices that see each other's memory are needed\n");
    return 1;
  }
  jit::enable_peer_access(0, 1);
  jit::enable_peer_access(1, 0);
  const int calls = count > 1 ? std::max(1, std::atoi(arguments[1])) : 100;
  std::printf("%s, %d heads, head_dim %d, %d calls in a chain, us a call\n", jit::device_info(0).name.c_str(),
              heads, head_dim, calls);
  std::printf("batch  o     share     eager    graph    merge alone, in a graph\n");
  for (const int batch : {1, 16, 64}) {
    if (batch > 1 && jit::emulates_devices()) break;
    for (const jit::DType dtype : {jit::DType::fp32, jit::DType::bf16}) {
      for (const jit::ExchangeShare share : {jit::ExchangeShare::heads, jit::ExchangeShare::all})
        measure({batch, dtype, share}, calls);
    }
  }
  return 0;
} catch (const jit::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
