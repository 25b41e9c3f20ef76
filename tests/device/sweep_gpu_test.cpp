// A random sweep over specs, configs and shapes on a device. JIT_ATTENTION_TEST_SWEEP says how many triples
// (default 200, on an emulated device 40, and of smaller shapes), JIT_ATTENTION_TEST_SEED where to start,
// JIT_ATTENTION_TEST_TRIPLE runs one triple of a sweep again.
#include <jit/attention.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using reference::draw;
using reference::Random;

// Triples that share one kernel: compiling takes longer than running.
constexpr int shapes_per_kernel = 5;
constexpr int kernels_per_batch = 64;

int number_from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::atoi(text);
}

struct SpecAndConfig {
  AttentionSpec spec;
  std::optional<KernelConfig> config = {};
};

/// Kernel number `index` of the sweep that starts at `seed`: depends on nothing else but the device.
SpecAndConfig random_kernel(std::uint64_t seed, int index, const DeviceLimits& limits) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(index)};
  Random random(sequence);
  const AttentionSpec spec = reference::random_spec(random);
  if (draw(random, 0, 9) == 0) return {spec};
  return {spec, reference::random_config(spec, limits, random)};
}

AttentionCase random_case(std::uint64_t seed, int triple, const AttentionSpec& spec, bool emulated) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                         static_cast<std::uint32_t>(triple), 1u};
  Random random(sequence);
  const auto length = [&](int least) {
    switch (draw(random, 0, 3)) {
      case 0:
        return draw(random, least, 20);
      case 1:
        return 32 * draw(random, 1, emulated ? 6 : 16);
      case 2:
        return draw(random, 1, emulated ? 120 : 300);
      default:
        return draw(random, 1, emulated ? 260 : 1100);
    }
  };
  AttentionCase problem{.spec = spec};
  problem.batch = draw(random, 1, emulated ? 2 : 3);
  problem.heads_kv = spec.gqa_ratio >= 4 ? 1 : draw(random, 1, emulated ? 2 : 3);
  problem.seqlen_q = length(1);
  problem.seqlen_kv = draw(random, 0, 2) == 0 ? problem.seqlen_q : length(0);
  problem.layout = static_cast<Layout>(draw(random, 0, layout_count - 1));
  problem.with_lse = draw(random, 0, 4) != 0;
  problem.amplitude = std::vector{0.3f, 1.0f, 1.0f, 1.0f, 3.0f}[random() % 5];
  problem.seed = random();
  return problem;
}

class SweepTest : public GpuTest {};

TEST_F(SweepTest, EveryTripleIsRight) {
  const std::uint64_t seed = reference::test_seed();
  const int only = number_from_environment("JIT_ATTENTION_TEST_TRIPLE", -1);
  const int first = only < 0 ? 0 : only;
  const int last = only < 0 ? number_from_environment("JIT_ATTENTION_TEST_SWEEP", sized(200, 24)) : only + 1;
  const DeviceLimits limits = device_limits(device_);
  const auto case_of = [&](int triple) -> KernelCase {
    const auto [spec, config] = random_kernel(seed, triple / shapes_per_kernel, limits);
    AttentionCase problem = random_case(seed, triple, spec, device_.emulated);
    // TMA cannot run backwards, and refuses where no other kernel may stand in for it.
    const bool needs_tma = config && std::holds_alternative<ForwardWgmma>(*config);
    if (needs_tma && problem.layout == Layout::reversed) problem.layout = Layout::bhsd;
    return {problem, config};
  };

  int count = 0, failures = 0;
  double worst = 0;
  std::string worst_triple;
  const auto batch_of = [&](int triple) { return triple / (kernels_per_batch * shapes_per_kernel); };
  const auto prepare_batch = [&](int batch, const Context& context) {
    std::vector<KernelCase> cases;
    for (int triple = first; triple < last; ++triple) {
      if (batch_of(triple) == batch) cases.push_back(case_of(triple));
    }
    prepare_all(cases, context);
  };
  // A context for each batch, so that memory stays bounded.
  std::optional<Context> context;
  for (int triple = first; triple < last; ++triple) {
    if (!context || batch_of(triple) != batch_of(triple - 1)) {
      context.emplace(shared_cache_settings());
      prepare_batch(batch_of(triple), *context);
    }
    const auto [problem, config] = case_of(triple);
    std::string failure;
    try {
      const AttentionRun run(problem);
      attention(problem.spec, config, *context)(run.arguments());
      const Verdict verdict = run.check(256);
      failure = verdict.failure;
      if (verdict.error_ratio > worst) {
        worst = verdict.error_ratio;
        worst_triple = to_string(problem);
      }
    } catch (const Error& error) {
      failure = std::string(error.what()) + "\n" + error.log();
    }
    ++count;
    if (failure.empty()) continue;
    ADD_FAILURE() << fmt::format(
        "JIT_ATTENTION_TEST_SEED={} JIT_ATTENTION_TEST_TRIPLE={} runs it again:\n  {}\n  config {}\n  {}",
        seed, triple, to_string(problem), config ? to_string(*config) : "of the cost model", failure);
    if (++failures == 20) break;
  }
  std::printf(
      "sweep: seed %llu, %d triples of %d kernels, %d failures, worst error %.3f of what is allowed (%s)\n",
      static_cast<unsigned long long>(seed), count, (count + shapes_per_kernel - 1) / shapes_per_kernel,
      failures, worst, worst_triple.c_str());
}

}  // namespace
}  // namespace jit::testing
