#include "tests/gpu/gpu_fixture.h"

#include <atomic>
#include <thread>

#include <jit/error.h>

#include "generator/context_state.h"
#include "generator/emit.h"
#include "generator/kernel_image.h"

namespace jit::testing {

void precompile(const std::vector<KernelWish>& wishes, const Context& context, const DeviceInfo& device) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    pool.emplace_back([&] {
      for (std::size_t wish = next++; wish < wishes.size(); wish = next++) {
        try {
          const AttentionSpec& spec = wishes[wish].spec;
          const CompiledKernel kernel = compile(spec, native_arch(device), wishes[wish].config, context);
          if (!device.emulated) continue;
          ContextState& state = *context.state();
          const Program program = emit_forward(spec, kernel.config());
          build_emulated_code(state, *build_image(state, program, spec, kernel.config(), kernel.arch()));
        } catch (const Error&) {
        }
      }
    });
  }
}

void GpuTest::SetUp() {
  if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
  device_ = device_info(0);
}

Context& GpuTest::context() {
  static Context context = [] {
    Settings settings;
    settings.disk_cache = false;
    settings.tuning = TuningMode::off;
    return Context(settings);
  }();
  return context;
}

void GpuTest::expect_right(const AttentionCase& problem, std::optional<KernelConfig> config) {
  const std::string name =
      to_string(problem) + ", config " + (config ? to_string(*config) : std::string("of the heuristic"));
  try {
    const AttentionRun run(problem);
    attention(problem.spec, config, context())(run.arguments());
    EXPECT_EQ(run.check().failure, "") << name;
  } catch (const Error& error) {
    ADD_FAILURE() << name << ": " << error.what() << "\n" << error.log();
  }
}

}  // namespace jit::testing
