// A random sweep over specs, configs of one and of two passes, and shapes of gradients: 200 triples, or as many as Sweep
// says; on an emulated device fewer, and of smaller shapes. With dropout also one of forward.
#include <jit/attention.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/device/sweep.h"
#include "tests/support/backward_run.h"
#include "tests/support/random_spec.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using reference::draw;
using reference::Random;

struct Kernels {
  AttentionSpec spec;
  PlanConfigs configs;
  std::optional<KernelConfig> forward = {};  ///< with dropout, which the sweep of forward does not have
};

Kernels random_kernels(Random random, const DeviceLimits& limits) {
  AttentionSpec spec = reference::random_spec(random);
  reference::make_part(spec, random);
  spec.dropout = draw(random, 0, 4) == 0;
  Kernels kernels{spec, reference::random_backward_configs(spec, limits, random)};
  if (spec.dropout) kernels.forward = reference::random_config(spec, limits, random);
  return kernels;
}

AttentionCase random_case(Random random, const AttentionSpec& spec, bool emulated) {
  const auto length = [&](int least) {
    return random_length(random, least, emulated ? 5 : 12, emulated ? 170 : 500);
  };
  AttentionCase problem{.spec = spec};
  problem.batch = draw(random, 1, 2);
  problem.heads_kv = spec.gqa_ratio >= 4 ? 1 : draw(random, 1, emulated ? 2 : 3);
  problem.seqlen_q = length(1);
  problem.seqlen_kv = draw(random, 0, 2) == 0 ? problem.seqlen_q : length(0);
  problem.layout = draw(random, 0, 2) == 0 ? Layout::padded : Layout::bshd;
  problem.amplitude = std::vector{0.3f, 1.0f, 1.0f, 1.0f, 2.0f}[random() % 5];
  problem.dropout_p = spec.dropout ? 0.05f * static_cast<float>(draw(random, 0, 18)) : 0;
  problem.with_d_lse = draw(random, 0, 2) == 0;
  problem.seed = random();
  return problem;
}

void compute(const BackwardRun& run, const Context& context, const PlanConfigs& configs) {
  if (configs.size() == 1) return run.compute(context, configs.front());
  run.compute(context, configs.at(0), configs.at(1));
}

// Compiles on all cores, so that what follows finds its kernels in the cache of `context`. Failures are left to whoever
// runs the triple.
void compile_all(const std::vector<Kernels>& kernels, const Arch& arch, const Context& context) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    pool.emplace_back([&] {
      for (std::size_t index = next++; index < kernels.size(); index = next++) {
        for (const KernelConfig& config : kernels[index].configs) {
          try {
            compile(kernels[index].spec, arch, config, context);
          } catch (const Error&) {
          }
        }
      }
    });
  }
}

class BackwardSweepTest : public GpuTest {};

TEST_F(BackwardSweepTest, EveryTripleIsRight) {
  const Sweep sweep = Sweep::wanted(sized(200, 5));
  const DeviceLimits limits = device_limits(device_);
  const CurrentDevice scope(0);
  std::vector<Kernels> kernels;
  for (int triple = sweep.first; triple < sweep.last; triple += Sweep::shapes_per_kernel)
    kernels.push_back(random_kernels(sweep.of_kernel(triple), limits));
  compile_all(kernels, native_arch(device_), context());

  int failures = 0;
  double worst = 0;
  std::string worst_triple;
  for (int triple = sweep.first; triple < sweep.last && failures < 20; ++triple) {
    const auto [spec, configs, forward] = random_kernels(sweep.of_kernel(triple), limits);
    const AttentionCase problem = random_case(sweep.of_case(triple), spec, device_.emulated);
    std::string failure;
    try {
      BackwardRun run(problem);
      compute(run, context(), configs);
      failure = run.check();
      if (failure.empty() && forward) failure = run.check_forward(context(), forward);
      if (run.error_ratio() > worst) {
        worst = run.error_ratio();
        worst_triple = to_string(problem);
      }
    } catch (const Error& error) {
      failure = std::string(error.what()) + "\n" + error.log();
    }
    if (failure.empty()) continue;
    ++failures;
    ADD_FAILURE() << sweep.failure(
        triple, fmt::format("{}\n  configs {}{}\n  {}", to_string(problem), to_string(configs),
                            forward ? ", forward " + to_string(*forward) : "", failure));
  }
  std::printf(
      "sweep: seed %llu, %d triples of %zu kernels of gradients, %d failures, worst error %.3f of what is "
      "allowed (%s)\n",
      static_cast<unsigned long long>(sweep.seed), sweep.count(), kernels.size(), failures, worst,
      worst_triple.c_str());
}

}  // namespace
}  // namespace jit::testing
