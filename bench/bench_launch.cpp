// Host time of a call beyond a bare launch of the same kernel. Needs a GPU.
#include <algorithm>
#include <chrono>

#include <jit/device.h>
#include <jit/device_buffer.h>

#include "bench/bench_support.h"
#include "bench/driver.h"

namespace jit::bench {
namespace {

constexpr int launches_per_sync = 512;  // less than the driver queues, so that no launch waits for room

// A spec, whether LSE is asked for, and what the tensors of its functors are: all small and of one shape, so
// that the kernel is short and the host's part shows.
class SmallProblem {
 public:
  explicit SmallProblem(AttentionSpec spec = spec_of(128, false), bool lse = false)
      : spec_(std::move(spec)), tensors_(functor_tensors(spec_)), scope_(0), memory_(0, 6 * bytes) {
    memory_.fill(0, nullptr);
    arguments_ = {.q = operand(0), .k = operand(1), .v = operand(2), .o = operand(3)};
    if (lse) arguments_.lse = TensorView::bhs(piece(4), 1, 1, seqlen);
    for (const FunctorTensorSpec& tensor : tensors_) {
      arguments_.tensors.add({tensor.name, functor_tensor(tensor)});
    }
  }

  const AttentionSpec& spec() const { return spec_; }
  const AttentionArguments& arguments() const { return arguments_; }

 private:
  static constexpr int seqlen = 16;
  static constexpr std::size_t bytes = seqlen * 128 * 2;

  void* piece(int i) const { return static_cast<char*>(memory_.data()) + i * bytes; }
  TensorView operand(int i) const {
    return TensorView::bshd(piece(i), DType::bf16, {.seqlen = seqlen, .head_dim = 128});
  }
  TensorView functor_tensor(const FunctorTensorSpec& tensor) const {
    if (tensor.name == "alibi_slopes") return TensorView::dense(piece(5), tensor.dtype, {1});
    return TensorView::dense(piece(5), tensor.dtype, {1, seqlen});  // document ids
  }

  AttentionSpec spec_;
  std::vector<FunctorTensorSpec> tensors_;  // arguments_ refers to their names
  CurrentDevice scope_;
  DeviceBuffer memory_;
  AttentionArguments arguments_;
};

// A stream, and a graph of so many calls that was captured on it.
class CapturedCalls {
 public:
  CapturedCalls(const Attention& kernel, const AttentionArguments& arguments, int calls) {
    kernel.prepare(arguments);
    require(cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    require(cuda().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            "cuStreamBeginCapture");
    for (int i = 0; i < calls; ++i) kernel(arguments, stream_);
    require(cuda().cuStreamEndCapture(stream_, &graph_), "cuStreamEndCapture");
    require(cuda().cuGraphInstantiateWithFlags(&executable_, graph_, 0), "cuGraphInstantiateWithFlags");
  }
  ~CapturedCalls() {
    cuda().cuGraphExecDestroy(executable_);
    cuda().cuGraphDestroy(graph_);
    cuda().cuStreamDestroy(stream_);
  }
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  CUstream stream() const { return stream_; }
  CUgraph graph() const { return graph_; }
  void replay() const { require(cuda().cuGraphLaunch(executable_, stream_), "cuGraphLaunch"); }

 private:
  CUstream stream_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

// The launch that a call makes, again and again through cuLaunchKernelEx and nothing else: the call is
// captured, and what the graph has noted of its kernel is launched.
class BareLaunch {
 public:
  BareLaunch(const SmallProblem& problem, const Attention& attention)
      : captured_(attention, problem.arguments(), 1) {
    std::size_t nodes = 1;
    CUgraphNode node = nullptr;
    require(cuda().cuGraphGetNodes(captured_.graph(), &node, &nodes), "cuGraphGetNodes");
    CUDA_KERNEL_NODE_PARAMS kernel{};
    require(cuda().cuGraphKernelNodeGetParams(node, &kernel), "cuGraphKernelNodeGetParams");
    function_ = kernel.func != nullptr ? kernel.func : reinterpret_cast<CUfunction>(kernel.kern);
    parameters_ = kernel.kernelParams;
    config_.gridDimX = kernel.gridDimX;
    config_.gridDimY = kernel.gridDimY;
    config_.gridDimZ = kernel.gridDimZ;
    config_.blockDimX = kernel.blockDimX;
    config_.blockDimY = kernel.blockDimY;
    config_.blockDimZ = kernel.blockDimZ;
    config_.sharedMemBytes = kernel.sharedMemBytes;
  }

  void operator()() const {
    require(cuda().cuLaunchKernelEx(&config_, function_, parameters_, nullptr), "cuLaunchKernelEx");
  }

 private:
  CapturedCalls captured_;  // owns the parameters
  CUfunction function_ = nullptr;
  void** parameters_ = nullptr;
  CUlaunchConfig config_{};
};

// Times `launch_one`, which puts one piece of work on `stream`.
template <class Launch>
void time_launches(benchmark::State& state, int per_sync, Stream stream, const Launch& launch_one) {
  launch_one();
  synchronize(stream);
  int launched = 0;
  for (auto _ : state) {
    launch_one();
    if (++launched % per_sync != 0) continue;
    state.PauseTiming();
    synchronize(stream);
    state.ResumeTiming();
  }
  synchronize(stream);
}

void launch_attention(benchmark::State& state) {
  if (!requires_gpu(state)) return;
  const SmallProblem problem;
  const Context context(memory_only());
  const Attention kernel = attention(problem.spec(), {}, context);
  time_launches(state, launches_per_sync, nullptr, [&] { kernel(problem.arguments()); });
}
BENCHMARK(launch_attention)->Unit(benchmark::kNanosecond);

void launch_bare(benchmark::State& state) {
  if (!requires_gpu(state)) return;
  const SmallProblem problem;
  const Context context(memory_only());
  const BareLaunch bare(problem, attention(problem.spec(), {}, context));
  time_launches(state, launches_per_sync, nullptr, [&] { bare(); });
}
BENCHMARK(launch_bare)->Unit(benchmark::kNanosecond);

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Nanoseconds of the host for each of so many launches; waits for them afterwards.
template <class Launch>
double host_ns(int count, const Launch& launch_one) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) launch_one();
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
  synchronize();
  return passed.count() / count;
}

// Calls and bare launches in turn, so that both see the same machine; a clock that drifts between two
// benchmarks would hide the difference. The counters are medians over the rounds, in ns; the benchmark's own
// time is that of a round.
void launch_overhead(benchmark::State& state, const AttentionSpec& spec, bool lse) {
  if (!requires_gpu(state)) return;
  const SmallProblem problem(spec, lse);
  const Context context(memory_only());
  const Attention kernel = attention(spec, {}, context);
  const BareLaunch bare(problem, kernel);
  std::vector<double> call_ns, bare_ns, overhead_ns;
  for (auto _ : state) {
    call_ns.push_back(host_ns(launches_per_sync / 8, [&] { kernel(problem.arguments()); }));
    bare_ns.push_back(host_ns(launches_per_sync / 8, [&] { bare(); }));
    overhead_ns.push_back(call_ns.back() - bare_ns.back());
  }
  state.counters["call_ns"] = median(std::move(call_ns));
  state.counters["bare_ns"] = median(std::move(bare_ns));
  state.counters["overhead_ns"] = median(std::move(overhead_ns));
}

AttentionSpec with_mask(const Mask& mask) {
  AttentionSpec spec = spec_of(128, false);
  spec.mask = mask;
  return spec;
}
AttentionSpec with_score(const Score& score) {
  AttentionSpec spec = spec_of(128, false);
  spec.score = score;
  return spec;
}

BENCHMARK_CAPTURE(launch_overhead, plain, spec_of(128, false), false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(launch_overhead, lse, spec_of(128, false), true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(launch_overhead, one_tensor, with_score(score::alibi()), false)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(launch_overhead, two_tensors, with_mask(mask::document()), false)
    ->Unit(benchmark::kMicrosecond);

// The host's time for one replay of a graph of so many calls.
void launch_graph(benchmark::State& state) {
  if (!requires_gpu(state)) return;
  const auto calls = static_cast<int>(state.range(0));
  const SmallProblem problem;
  const Context context(memory_only());
  const CapturedCalls captured(attention(problem.spec(), {}, context), problem.arguments(), calls);
  time_launches(state, launches_per_sync / calls, captured.stream(), [&] { captured.replay(); });
  state.SetItemsProcessed(state.iterations() * calls);
}
BENCHMARK(launch_graph)->ArgName("calls")->Arg(1)->Arg(64)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace jit::bench
