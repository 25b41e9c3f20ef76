// How launches behave on a device: streams, threads, graph capture, tuning, refused arguments.
#include <jit/tuning.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/program/emit.h"
#include "generator/tuning/forward_buffers.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class LaunchTest : public GpuTest {
 protected:
  static AttentionCase causal_case(int seqlen, std::uint64_t salt = 0) {
    AttentionCase problem = problem_of({.head_dim = 64, .mask = mask::causal()}, 2, 2, seqlen, seqlen);
    problem.seed = reference::test_seed() + salt;
    return problem;
  }
};

/// A captured and instantiated graph.
class Graph {
 public:
  explicit Graph(CUgraph graph) : graph_(graph) {
    check(driver().cuGraphInstantiateWithFlags(&executable_, graph_, 0), "cuGraphInstantiateWithFlags");
  }
  ~Graph() {
    driver().cuGraphExecDestroy(executable_);
    driver().cuGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void run(const TestStream& stream) const {
    check(driver().cuGraphLaunch(executable_, stream.get()), "cuGraphLaunch");
    stream.synchronize();
  }

 private:
  CUgraph graph_;
  CUgraphExec executable_ = nullptr;
};

CUgraph end_capture(const TestStream& stream) {
  CUgraph graph = nullptr;
  check(driver().cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture");
  return graph;
}

constexpr std::array capture_modes = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                      CU_STREAM_CAPTURE_MODE_RELAXED};

TEST_F(LaunchTest, CaptureOfAPreparedKernelReplays) {
  const CurrentDevice current(0);
  int seqlen = 100;
  for (const CUstreamCaptureMode mode : capture_modes) {
    AttentionRun run(causal_case(seqlen *= 2));
    const Attention kernel = attention(causal_case(0).spec, {}, context());
    kernel.prepare(run.arguments());
    EXPECT_TRUE(run.untouched()) << "prepare() must not run anything on the caller's tensors";
    const TestStream stream;
    check(driver().cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture");
    kernel(run.arguments(), stream.get());
    const Graph graph(end_capture(stream));
    EXPECT_TRUE(run.untouched()) << "a capture runs nothing";
    for (int replay = 0; replay < 3; ++replay) {
      run.poison_outputs();
      graph.run(stream);
      EXPECT_EQ(run.check().failure, "") << "mode " << mode;
    }
  }
}

// Sizes that were never seen run the kernel that attention() loaded: nothing compiles under capture.
TEST_F(LaunchTest, CaptureOfUnseenSizesTakesTheLoadedKernel) {
  const CurrentDevice current(0);
  for (const CUstreamCaptureMode mode : capture_modes) {
    std::mutex mutex;
    std::vector<std::string> compiled;
    Settings settings;
    settings.disk_cache = false;
    settings.tuning = TuningMode::first_run;
    const Context fresh(settings, [&](const Event& event) {
      const std::lock_guard lock(mutex);
      if (event.kind != Event::Kind::note) compiled.push_back(event.message);
    });
    AttentionRun run(causal_case(301));
    const Attention kernel = attention(causal_case(0).spec, {}, fresh);
    compiled.clear();
    const TestStream stream;
    check(driver().cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture");
    kernel(run.arguments(), stream.get());
    const Graph graph(end_capture(stream));
    EXPECT_THAT(compiled, ::testing::IsEmpty());
    graph.run(stream);
    EXPECT_EQ(run.check().failure, "") << "mode " << mode;
  }
}

// A program that calls at once compiles for the sizes of its call, and for no others: here those choose another
// config than the sizes that attention() compiles for.
TEST_F(LaunchTest, WhenCalledOneKernelIsCompiled) {
  const CurrentDevice current(0);
  std::mutex mutex;
  int compiled = 0;
  Settings settings;
  settings.disk_cache = false;
  settings.tuning = TuningMode::off;
  const Context fresh(settings, [&](const Event& event) {
    const std::lock_guard lock(mutex);
    compiled += event.kind == Event::Kind::compile;
  });
  AttentionRun run(causal_case(48));
  const Attention kernel = attention_when_called(causal_case(0).spec, fresh);
  EXPECT_EQ(compiled, 0);
  kernel(run.arguments());
  check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  EXPECT_EQ(run.check().failure, "");
  EXPECT_EQ(compiled, 1);
  attention_when_called(causal_case(0).spec, fresh)(run.arguments());
  EXPECT_EQ(compiled, 1);
  ASSERT_NE(to_string(attention(causal_case(0).spec, {}, fresh).kernel().config()),
            to_string(kernel.kernel(run.arguments()).config()));
  EXPECT_EQ(compiled, 2) << "attention() compiles for sizes of its own";
  AttentionSpec invalid = causal_case(0).spec;
  invalid.head_dim = 7;
  EXPECT_EQ(error_of([&] { attention_when_called(invalid, fresh); }).code(), ErrorCode::invalid_spec);
}

TEST_F(LaunchTest, WhenCalledUnderCaptureFirst) {
  const CurrentDevice current(0);
  for (const CUstreamCaptureMode mode : capture_modes) {
    Settings settings;
    settings.disk_cache = false;
    AttentionRun run(causal_case(77));
    const Attention kernel = attention_when_called(causal_case(0).spec, Context(settings));
    const TestStream stream;
    check(driver().cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture");
    kernel(run.arguments(), stream.get());
    const Graph graph(end_capture(stream));
    graph.run(stream);
    EXPECT_EQ(run.check().failure, "") << "mode " << mode;
  }
}

// An error under capture leaves the capture alive: what is launched afterwards is in the graph.
TEST_F(LaunchTest, ErrorsDoNotBreakACapture) {
  const CurrentDevice current(0);
  for (const CUstreamCaptureMode mode : capture_modes) {
    AttentionRun run(causal_case(128));
    const Attention kernel = attention(causal_case(0).spec, {}, context());
    kernel.prepare(run.arguments());
    const TestStream stream;
    check(driver().cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture");
    AttentionArguments wrong = run.arguments();
    wrong.k.dtype = DType::fp16;
    EXPECT_THROW(kernel(wrong, stream.get()), Error);
    kernel(run.arguments(), stream.get());
    const Graph graph(end_capture(stream));
    graph.run(stream);
    EXPECT_EQ(run.check().failure, "") << "mode " << mode;
  }
}

TEST_F(LaunchTest, NotPreparedOnASecondDevice) {
  if (devices().size() < 2) GTEST_SKIP() << "needs two devices";
  const Attention kernel = [&] {
    const CurrentDevice current(0);
    return attention(causal_case(0).spec, {}, context());
  }();
  const CurrentDevice current(1);
  for (const CUstreamCaptureMode mode : capture_modes) {
    const Context fresh(shared_cache_settings());
    const Attention elsewhere = [&] {
      const CurrentDevice first(0);
      return attention(causal_case(0).spec, {}, fresh);
    }();
    AttentionRun run(causal_case(128), 1);
    kernel.prepare(run.arguments());
    const TestStream stream;
    check(driver().cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture");
    try {
      elsewhere(run.arguments(), stream.get());
      ADD_FAILURE() << "launched without preparation";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_prepared);
      EXPECT_THAT(error.what(), HasSubstr("prepare()"));
    }
    kernel(run.arguments(), stream.get());
    const Graph graph(end_capture(stream));
    graph.run(stream);
    EXPECT_EQ(run.check().failure, "");
  }
}

// Preparing other sizes, tuning included, while some stream is being captured.
TEST_F(LaunchTest, PreparesBesideACapture) {
  const CurrentDevice current(0);
  for (const CUstreamCaptureMode mode : capture_modes) {
    Settings settings;
    settings.disk_cache = false;
    settings.tuning = TuningMode::first_run;
    settings.tuning_seconds = 1;
    const Context fresh(settings);
    AttentionRun captured(causal_case(200)), other(causal_case(600));
    const Attention kernel = attention(causal_case(0).spec, {}, fresh);
    const TestStream stream;
    check(driver().cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture");
    kernel.prepare(other.arguments());
    kernel(captured.arguments(), stream.get());
    const Graph graph(end_capture(stream));
    graph.run(stream);
    EXPECT_EQ(captured.check().failure, "") << "mode " << mode;
    kernel(other.arguments(), stream.get());
    stream.synchronize();
    EXPECT_EQ(other.check().failure, "") << "mode " << mode;
  }
}

TEST_F(LaunchTest, StreamsAreIndependent) {
  const CurrentDevice current(0);
  const Attention kernel = attention(causal_case(0).spec, {}, context());
  const std::array<TestStream, 4> streams;
  std::vector<AttentionRun> runs;
  for (std::size_t i = 0; i < streams.size(); ++i)
    runs.emplace_back(causal_case(200 + 64 * static_cast<int>(i), i));
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < streams.size(); ++i) kernel(runs[i].arguments(), streams[i].get());
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i].synchronize();
    EXPECT_EQ(runs[i].check().failure, "");
  }
}

// Threads without a CUDA context of their own ask for the same kernel at once, then launch.
TEST_F(LaunchTest, ThreadsShareOneKernel) {
  const Context fresh(shared_cache_settings());
  std::array<std::string, 4> failures;
  const int rounds = sized(50, 3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < failures.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          AttentionRun run(causal_case(150 + 100 * static_cast<int>(i), i));
          const Attention kernel = attention(causal_case(0).spec, {}, fresh);
          for (int round = 0; round < rounds; ++round) kernel(run.arguments());
          failures[i] = run.check().failure;
        } catch (const Error& error) {
          failures[i] = error.what();
        }
      });
    }
  }
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST_F(LaunchTest, RefusedArgumentsLaunchNothing) {
  const AttentionRun run(causal_case(128));
  const Attention kernel = attention(causal_case(0).spec, {}, context());
  const std::vector<std::pair<const char*, void (*)(AttentionArguments&)>> mistakes = {
      {"q", [](AttentionArguments& a) { a.q = {}; }},
      {"k", [](AttentionArguments& a) { a.k.dtype = DType::fp16; }},
      {"v", [](AttentionArguments& a) { a.v.shape[1] -= 1; }},
      {"o", [](AttentionArguments& a) { a.o = a.q; }},
      {"lse", [](AttentionArguments& a) { a.lse.dtype = DType::bf16; }},
      {"bias",
       [](AttentionArguments& a) {
         a.tensors = {{"bias", a.lse}};
       }},
  };
  for (const auto& [name, break_it] : mistakes) {
    AttentionArguments arguments = run.arguments();
    break_it(arguments);
    try {
      kernel(arguments);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.field(), name);
    }
  }
  EXPECT_TRUE(run.untouched());
}

TEST_F(LaunchTest, RefusedSpecsAndConfigs) {
  AttentionSpec spec;
  spec.head_dim = 100;
  EXPECT_THROW(attention(spec, {}, context()), Error);
  const ForwardMmaSync config{.tile_kv = 17};
  try {
    attention(AttentionSpec{}, config, context());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
    EXPECT_THAT(error.what(), HasSubstr("tile_kv = 17"));
  }
}

TEST_F(LaunchTest, TunesOnceAndRemembers) {
  if (device_.emulated) GTEST_SKIP() << "an emulated device has no time to measure";
  std::string folder = (std::filesystem::temp_directory_path() / "jit-attention-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Settings settings;
  settings.cache_dir = folder;
  settings.tuning_seconds = 5;
  AttentionCase problem = causal_case(1000);
  problem.spec.mask = mask::causal() && mask::document();
  KernelConfig tuned;
  {
    int tune_events = 0;
    const Context first(settings, [&, mutex = std::make_shared<std::mutex>()](const Event& event) {
      const std::lock_guard lock(*mutex);
      tune_events += event.kind == Event::Kind::tune;
    });
    AttentionRun run(problem);
    const Attention kernel = attention(problem.spec, {}, first);
    kernel(run.arguments());
    EXPECT_EQ(run.check().failure, "");
    const CompiledKernel chosen = kernel.kernel(run.arguments());
    EXPECT_THAT(chosen.why(), StartsWith("tuned"));
    EXPECT_GT(chosen.tuning_log().size(), 1u);
    EXPECT_GT(tune_events, 0);
    tuned = chosen.config();
    const int before = tune_events;
    kernel(run.arguments());
    EXPECT_EQ(tune_events, before);
  }
  {
    const Context second(settings);
    AttentionRun run(problem);
    const Attention kernel = attention(problem.spec, {}, second);
    kernel(run.arguments());
    EXPECT_EQ(run.check().failure, "");
    const CompiledKernel chosen = kernel.kernel(run.arguments());
    EXPECT_THAT(chosen.why(), StartsWith("recorded"));
    EXPECT_EQ(chosen.config(), tuned);
    EXPECT_TRUE(chosen.cached());
  }
  std::filesystem::remove_all(folder);
}

// Whatever the settings want measured, an emulated device runs the cost model's config and says why.
TEST_F(LaunchTest, AnEmulatedDeviceTunesNothing) {
  if (!device_.emulated) GTEST_SKIP() << "this is a GPU";
  for (const TuningMode mode :
       {TuningMode::off, TuningMode::recorded, TuningMode::first_run, TuningMode::exhaustive}) {
    Settings settings;
    settings.disk_cache = false;
    settings.tuning = mode;
    const Context fresh(settings, [](const Event& event) { EXPECT_NE(event.kind, Event::Kind::tune); });
    AttentionRun run(causal_case(65));
    const Attention kernel = attention(causal_case(0).spec, {}, fresh);
    kernel(run.arguments());
    EXPECT_EQ(run.check().failure, "");
    EXPECT_EQ(kernel.kernel(run.arguments()).why(),
              mode == TuningMode::off ? "cost model, these sizes"
                                      : "cost model; an emulated device has no time to measure");
  }
}

// Configs that a caller asks for are measured on a GPU, and refused on an emulated device.
TEST_F(LaunchTest, ConfigsAreMeasuredOnRequest) {
  Settings settings = settings_from_environment();
  settings.disk_cache = false;
  const Context in_memory(settings);
  AttentionSpec spec;
  spec.head_dim = 64;
  const AttentionArguments arguments =
      sized_arguments(spec, {.batch = 1, .heads_q = 8, .seqlen_q = 512, .seqlen_kv = 512});
  const std::vector<KernelConfig> ranked = candidate_configs(spec, arguments, device_);
  const std::vector<PlanConfigs> configs = {{ranked[0]}, {ranked[1]}, {parse_config("tile_q=1 warps=4")}};
  if (device_.emulated) {
    for (const Error& error : {error_of([&] { tune(spec, arguments, in_memory); }),
                               error_of([&] { time_configs(spec, arguments, configs, 3, in_memory); })}) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported_device);
      EXPECT_THAT(error.message(), HasSubstr("has no time to measure"));
    }
    return;
  }
  const std::vector<ConfigTiming> timings = time_configs(spec, arguments, configs, 3, in_memory);
  ASSERT_EQ(timings.size(), 3u);
  for (const int i : {0, 1}) {
    EXPECT_EQ(timings[i].trouble, "");
    EXPECT_EQ(timings[i].timing.samples_us.size(), 3u);
    EXPECT_GT(timings[i].timing.median_us, 0);
    EXPECT_EQ(timings[i].kernels[0].config(), configs[i][0]);
  }
  EXPECT_THAT(timings[2].trouble, HasSubstr("tile_q = 1"));
  const TuningResult result = tune(spec, arguments, in_memory);
  EXPECT_GE(result.candidates, 2);
  EXPECT_THAT(result.record, HasSubstr(to_string(result.configs)));
  EXPECT_EQ(result.recorded_in, "") << "the context has no cache folder";
}

TEST_F(LaunchTest, NothingToComputeIsNothingToMeasure) {
  AttentionRun run({.batch = 2, .heads_kv = 2, .seqlen_q = 16, .seqlen_kv = 0});
  const Error error = error_of([&] { tune(AttentionSpec{}, run.arguments(), context()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("nothing to compute"));
}

// The kernels that the tuner fills and checks with; their launches are checked like any other.
TEST_F(LaunchTest, TheTunersReferenceAgreesWithTheKernel) {
  AttentionCase problem = causal_case(70);
  problem.spec.score = score::softcap(0.5f);  // so low that to leave it out is plainly wrong
  const AttentionRun run(problem);
  AttentionParams params;
  ASSERT_TRUE(fill_params(problem.spec, functor_tensor_uses(problem.spec), run.arguments(), params));
  const CurrentDevice current(0);
  const TestStream stream;
  ContextState& state = *Access::state(context());
  const ForwardBuffers buffers(state, problem.spec, device_, params, stream.get());
  const CompiledKernel kernel = attention(problem.spec, {}, context()).kernel();
  const auto load = [&](const AttentionSpec& spec) {
    return make_plan(state, spec, build_kernel(state, spec, kernel.config(), native_target(device_)), 0,
                     "test");
  };
  const Plan loaded = load(problem.spec);
  EXPECT_EQ(buffers.check(loaded, stream.get()), "");
  AttentionSpec other = problem.spec;
  other.score = Score();
  const Plan wrong = load(other);
  EXPECT_THAT(buffers.check(wrong, stream.get()), StartsWith("wrong"));
}

TEST_F(LaunchTest, DumpsWhatRuns) {
  std::string folder = (std::filesystem::temp_directory_path() / "jit-attention-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const CompiledKernel kernel = attention(causal_case(0).spec, {}, context()).kernel();
  const std::vector<std::string> files = kernel.dump(folder);
  EXPECT_GE(files.size(), 4u);
  for (const std::string& file : files) EXPECT_GT(std::filesystem::file_size(file), 0u) << file;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace jit::testing
