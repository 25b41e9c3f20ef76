// What it costs to have kernels written at run time: cold compile, disk hit, warm process, dispatch, launch.
//   bench_jit [--benchmark_filter=…] [--benchmark_format=json]
// Dispatch and launch need a GPU and say so where there is none.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <benchmark/benchmark.h>
#include <jit/attention.h>
#include <jit/device_buffer.h>

#include "generator/context_state.h"
#include "generator/emit.h"
#include "runtime/context.h"
#include "runtime/driver_api.h"
#include "runtime/launch.h"
#include "runtime/module.h"
#include "templates/params.cuh"

extern char** environ;

namespace {

using namespace jit;

// A folder that goes away with the process.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/jit-attention-bench-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

AttentionSpec spec_of(int head_dim, bool causal) {
  AttentionSpec spec;
  spec.head_dim = head_dim;
  if (causal) spec.mask = mask::causal();
  return spec;
}

Settings memory_only() {
  Settings settings;
  settings.disk_cache = false;
  settings.tuning = TuningMode::off;
  return settings;
}

Settings cached_in(const std::string& folder) {
  Settings settings;
  settings.cache_dir = folder;
  settings.tuning = TuningMode::off;
  return settings;
}

const Arch arch{9, 0, 'a'};

// CPU time of one compile of the config that `compile` would choose, nothing cached. Arguments: head_dim,
// causal.
void cold_compile(benchmark::State& state) {
  const AttentionSpec spec = spec_of(static_cast<int>(state.range(0)), state.range(1) != 0);
  const KernelConfig config = compile(spec, arch, {}, Context(memory_only())).config();
  for (auto _ : state) {
    const Context context(memory_only());
    benchmark::DoNotOptimize(compile(spec, arch, config, context));
  }
}
BENCHMARK(cold_compile)
    ->ArgNames({"head_dim", "causal"})
    ->ArgsProduct({{64, 128, 256}, {0, 1}})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

// The smallest program: what NVRTC itself costs.
void cold_compile_empty(benchmark::State& state) {
  const Context context(memory_only());
  const Program program{
      .kernel_name = "empty", .source = "extern \"C\" __global__ void empty() {}\n", .threads = 32};
  const AttentionSpec spec;
  int count = 0;
  for (auto _ : state) {
    Program other = program;
    other.source += "// " + std::to_string(++count) + "\n";
    benchmark::DoNotOptimize(build_image(*context.state(), other, spec, {}, arch));
  }
}
BENCHMARK(cold_compile_empty)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

// One validated load of a real kernel's entry.
void disk_hit(benchmark::State& state) {
  const TemporaryFolder folder;
  const Context context(cached_in(folder.path()));
  const CompiledKernel kernel = compile(spec_of(128, false), arch, {}, context);
  const DiskCache& disk = context.state()->disk;
  const std::optional<Entry> entry = disk.load_by_digest(kernel.key());
  if (!entry) {
    state.SkipWithError("the entry is not in the cache");
    return;
  }
  // Key texts are canonical, so the key can be made again from the stored one.
  auto fields = parse_canonical_text(entry->key_text);
  fields->erase(fields->begin());  // the schema version, which Key adds itself
  const Key key(*fields);
  for (auto _ : state) {
    const std::optional<Entry> hit = disk.load(key);
    if (!hit) state.SkipWithError("miss");
    benchmark::DoNotOptimize(hit);
  }
  state.counters["cubin_bytes"] = static_cast<double>(kernel.cubin().size());
  state.counters["key_bytes"] = static_cast<double>(entry->key_text.size());
}
BENCHMARK(disk_hit)->Unit(benchmark::kMicrosecond);

// A new context that takes its kernel from a warm disk cache, in a running process.
void warm_context(benchmark::State& state) {
  const TemporaryFolder folder;
  const AttentionSpec spec = spec_of(128, true);
  const KernelConfig config = compile(spec, arch, {}, Context(cached_in(folder.path()))).config();
  for (auto _ : state) {
    const Context context(cached_in(folder.path()));
    benchmark::DoNotOptimize(compile(spec, arch, config, context));
  }
}
BENCHMARK(warm_context)->Unit(benchmark::kMillisecond);

// A new process, from exec to a ready cubin from a warm disk cache to exit. NVRTC is never opened.
void warm_process(benchmark::State& state) {
  const TemporaryFolder folder;
  compile(spec_of(128, true), arch, {}, Context(cached_in(folder.path())));
  for (auto _ : state) {
    std::string option = "--warm-process=" + folder.path();
    char name[] = "bench_jit";
    char* arguments[] = {name, option.data(), nullptr};
    pid_t child = 0;
    int status = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
      state.SkipWithError("the child failed");
      return;
    }
  }
}
BENCHMARK(warm_process)->Unit(benchmark::kMillisecond)->UseRealTime();

int warm_process_child(const std::string& folder) {
  const CompiledKernel kernel = compile(spec_of(128, true), arch, {}, Context(cached_in(folder)));
  return kernel.cached() ? 0 : 1;
}

bool has_gpu(benchmark::State& state) {
  try {
    devices();
    return true;
  } catch (const Error& error) {
    state.SkipWithError(error.what());
    return false;
  }
}

// attention(spec) for a spec that was asked for before.
void dispatch(benchmark::State& state) {
  if (!has_gpu(state)) return;
  static const Context context(memory_only());
  const AttentionSpec spec = spec_of(128, true);
  attention(spec, {}, context);
  for (auto _ : state) benchmark::DoNotOptimize(attention(spec, {}, context));
}
BENCHMARK(dispatch)->Unit(benchmark::kNanosecond)->ThreadRange(1, 2);

// Small tensors of one shape: the kernel is short, so the host's part shows.
struct SmallProblem {
  SmallProblem() : scope(0), memory(0, 4 * bytes) {}
  TensorView tensor(int i) const {
    return TensorView::bshd(static_cast<char*>(memory.data()) + i * bytes, DType::bf16, 1, seqlen, 1, 128);
  }
  AttentionArguments arguments() const {
    return {.q = tensor(0), .k = tensor(1), .v = tensor(2), .o = tensor(3)};
  }

  static constexpr int seqlen = 16;
  static constexpr std::size_t bytes = seqlen * 128 * 2;
  CurrentContext scope;
  DeviceBuffer memory;
};

constexpr int launches_per_sync = 512;  // less than the driver queues, so that no launch waits for room

void launch_attention(benchmark::State& state) {
  if (!has_gpu(state)) return;
  const SmallProblem problem;
  const Context context(memory_only());
  const Attention kernel = attention(spec_of(128, false), {}, context);
  const AttentionArguments arguments = problem.arguments();
  kernel(arguments);
  int launched = 0;
  for (auto _ : state) {
    kernel(arguments);
    if (++launched % launches_per_sync == 0) {
      state.PauseTiming();
      check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
      state.ResumeTiming();
    }
  }
  check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}
BENCHMARK(launch_attention)->Unit(benchmark::kNanosecond);

// The same kernel with ready parameters through cuLaunchKernelEx and nothing else.
void launch_bare(benchmark::State& state) {
  if (!has_gpu(state)) return;
  const SmallProblem problem;
  const Context context(memory_only());
  const CompiledKernel compiled = attention(spec_of(128, false), {}, context).kernel(problem.arguments());
  const Kernel kernel = Module(compiled.cubin()).kernel(compiled.name());
  kernel.set_dynamic_smem(0, compiled.smem_bytes());
  kernel.force_load(0);
  AttentionParams params{};
  params.q = problem.tensor(0).data;
  params.k = problem.tensor(1).data;
  params.v = problem.tensor(2).data;
  params.o = problem.tensor(3).data;
  params.q_strides = params.k_strides = params.v_strides =
      params.o_strides = {.batch = 0, .seq = 128, .head = 0};
  params.batch = params.heads_q = 1;
  params.seqlen_q = params.seqlen_kv = SmallProblem::seqlen;
  params.softmax_scale = 0.1f;
  void* arguments[] = {&params};
  const LaunchConfig config{.grid = {1, 1, 1},
                            .block = {static_cast<unsigned>(compiled.threads()), 1, 1},
                            .smem_bytes = static_cast<unsigned>(compiled.smem_bytes())};
  int launched = 0;
  for (auto _ : state) {
    launch(kernel.handle(), config, arguments, nullptr);
    if (++launched % launches_per_sync == 0) {
      state.PauseTiming();
      check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
      state.ResumeTiming();
    }
  }
  check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}
BENCHMARK(launch_bare)->Unit(benchmark::kNanosecond);

// First use of a spec on this GPU with an empty cache, as the settings say: everything from text to result.
// Arguments: tuned.
void first_use(benchmark::State& state) {
  if (!has_gpu(state)) return;
  constexpr int batch = 1, seqlen = 4096, heads = 16, head_dim = 128;
  constexpr std::size_t bytes = std::size_t{batch} * seqlen * heads * head_dim * 2;
  const CurrentContext scope(0);
  const DeviceBuffer memory(0, 4 * bytes);
  const auto tensor = [&](int i) {
    return TensorView::bshd(static_cast<char*>(memory.data()) + i * bytes, DType::bf16, batch, seqlen, heads,
                            head_dim);
  };
  for (auto _ : state) {
    const TemporaryFolder folder;
    Settings settings = cached_in(folder.path());
    settings.tuning = state.range(0) != 0 ? TuningMode::first_run : TuningMode::off;
    const Context context(settings);
    const Attention kernel = attention(spec_of(head_dim, true), {}, context);
    kernel({.q = tensor(0), .k = tensor(1), .v = tensor(2), .o = tensor(3)});
    check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }
}
BENCHMARK(first_use)
    ->ArgName("tuned")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kSecond)
    ->UseRealTime()
    ->Iterations(1);

}  // namespace

int main(int argc, char** argv) {
  const std::string child_option = "--warm-process=";
  if (argc == 2 && std::string(argv[1]).starts_with(child_option)) {
    return warm_process_child(std::string(argv[1]).substr(child_option.size()));
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
