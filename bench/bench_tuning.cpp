// First use of a spec on this GPU, everything from text to result: not tuned, tuned, and with the result of
// an earlier process. Needs a GPU.
#include <mutex>

#include <jit/device.h>
#include <jit/device_buffer.h>

#include "bench/bench_support.h"

namespace jit::bench {
namespace {

// q, k, v and o of one size for a spec without tensors of its own, batch 1.
class Tensors {
 public:
  explicit Tensors(const AttentionSpec& spec)
      : spec_(spec),
        scope_(0),
        q_(0, bytes(heads)),
        k_(0, bytes(heads)),
        v_(0, bytes(heads)),
        o_(0, bytes(heads)) {
    for (const DeviceBuffer* buffer : {&q_, &k_, &v_}) buffer->fill(0, nullptr);
  }
  AttentionArguments arguments() const {
    const int heads_kv = heads / spec_.gqa_ratio;
    return {.q = view(q_, heads), .k = view(k_, heads_kv), .v = view(v_, heads_kv), .o = view(o_, heads)};
  }

 private:
  static constexpr int seqlen = 4096, heads = 16;

  std::size_t bytes(int count) const { return std::size_t{seqlen} * count * spec_.head_dim * 2; }
  TensorView view(const DeviceBuffer& buffer, int count) const {
    return TensorView::bshd(buffer.data(), spec_.dtype,
                            {.seqlen = seqlen, .heads = count, .head_dim = spec_.head_dim});
  }

  AttentionSpec spec_;
  CurrentDevice scope_;
  DeviceBuffer q_, k_, v_, o_;
};

Settings tuned_in(const std::string& folder, bool tuned) {
  Settings settings = cached_in(folder);
  settings.tuning = tuned ? TuningMode::first_run : TuningMode::off;
  return settings;
}

// Says how much of the time were compiles; they run in parallel, so their sum may exceed it.
class CompileCount {
 public:
  Observer observer() {
    return [this](const Event& event) {
      if (event.kind != Event::Kind::compile) return;
      const std::lock_guard lock(mutex_);
      ++count_;
      seconds_ += event.seconds;
    };
  }
  void report(benchmark::State& state) const {
    state.counters["compiles"] = benchmark::Counter(count_, benchmark::Counter::kAvgIterations);
    state.counters["compile_s"] = benchmark::Counter(seconds_, benchmark::Counter::kAvgIterations);
  }

 private:
  std::mutex mutex_;
  int count_ = 0;
  double seconds_ = 0;
};

void use(const AttentionSpec& spec, const Tensors& tensors, const Context& context) {
  attention(spec, {}, context)(tensors.arguments());
  synchronize();
}

// With an empty cache.
void first_use_of(benchmark::State& state, const AttentionSpec& spec) {
  if (!requires_gpu(state)) return;
  const Tensors tensors(spec);
  CompileCount compiles;
  for (auto _ : state) {
    const TemporaryFolder folder;
    use(spec, tensors, Context(tuned_in(folder.path(), state.range(0) != 0), compiles.observer()));
  }
  compiles.report(state);
}

void once(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("tuned")->Arg(0)->Arg(1)->Unit(benchmark::kSecond)->UseRealTime()->Iterations(1);
}

void first_use(benchmark::State& state) { first_use_of(state, spec_of(128, true)); }
BENCHMARK(first_use)->Apply(once);

AttentionSpec window_softcap() {
  AttentionSpec spec = spec_of(128, true);
  spec.mask = spec.mask && mask::sliding_window(1024);
  spec.score = score::softcap(30.0f);
  spec.gqa_ratio = 4;
  return spec;
}

BENCHMARK_CAPTURE(first_use_of, head_dim_64, spec_of(64, true))->Apply(once);
BENCHMARK_CAPTURE(first_use_of, head_dim_256, spec_of(256, true))->Apply(once);
BENCHMARK_CAPTURE(first_use_of, no_mask, spec_of(128, false))->Apply(once);
BENCHMARK_CAPTURE(first_use_of, window_softcap_gqa_4, window_softcap())->Apply(once);

// In a new context that finds kernel and tuning result on disk.
void first_use_recorded(benchmark::State& state) {
  if (!requires_gpu(state)) return;
  const AttentionSpec spec = spec_of(128, true);
  const Tensors tensors(spec);
  const TemporaryFolder folder;
  use(spec, tensors, Context(tuned_in(folder.path(), true)));
  CompileCount compiles;
  for (auto _ : state) use(spec, tensors, Context(tuned_in(folder.path(), true), compiles.observer()));
  compiles.report(state);
}
BENCHMARK(first_use_recorded)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace jit::bench
