#include "tests/device/gpu_fixture.h"

#include <atomic>
#include <thread>

#include <jit/device.h>
#include <jit/error.h>

#include "generator/kernels/families.h"
#include "tests/device/turns.h"
#include "tests/support/shared_cache.h"
#include "tests/support/stream_memory_words.h"

namespace jit::testing {

void prepare_all(const std::vector<KernelCase>& cases, const Context& context) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    pool.emplace_back([&] {
      for (std::size_t index = next++; index < cases.size(); index = next++) {
        try {
          const CurrentDevice current(0);
          const auto& [problem, config] = cases[index];
          const AttentionRun run(problem);
          attention(problem.spec, config, context).prepare(run.arguments());
        } catch (const Error&) {
        }
      }
    });
  }
}

void GpuTest::SetUp() {
  if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
  device_ = device_info(0);
  if (device_.emulated && !is_turn_of_case(native_arch(device_)))
    GTEST_SKIP() << "this run's seed takes others; JIT_ATTENTION_TEST_ALL=1 takes all";
}

void GpuTest::TearDown() {
  if (IsSkipped()) return;
  EXPECT_EQ(disorder(context(), nullptr), "") << "after the launches of the test";
}

Context& GpuTest::context() {
  static Context context(shared_cache_settings());
  return context;
}

KernelConfig GpuTest::fitted(const AttentionSpec& spec, KernelConfig config) const {
  if (config_rejection(spec, config, device_).empty()) return config;
  if (auto* const split = std::get_if<ForwardSplitKv>(&config)) split->blocks_per_sm = 1;
  return config;
}

void GpuTest::expect_right(const AttentionCase& problem, std::optional<KernelConfig> config) {
  const std::string name =
      to_string(problem) + ", config " + (config ? to_string(*config) : std::string("of the cost model"));
  try {
    const AttentionRun run(problem);
    attention(problem.spec, config, context())(run.arguments());
    EXPECT_EQ(run.check().failure, "") << name;
  } catch (const Error& error) {
    ADD_FAILURE() << name << ": " << error.what() << "\n" << error.log();
  }
}

void GpuTest::expect_all_right(const std::vector<KernelCase>& cases) {
  prepare_all(cases, context());
  for (const auto& [problem, config] : cases) expect_right(problem, config);
}

void GpuTest::expect_some_right(const std::vector<KernelCase>& cases, std::uint64_t count) const {
  expect_all_right(device_.emulated ? reference::some_of(cases, count) : cases);
}

}  // namespace jit::testing
