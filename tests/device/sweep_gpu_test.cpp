// A random sweep over specs, configs and shapes on a device: 200 triples, or as many as Sweep says; on an emulated device
// fewer, and of smaller shapes.
#include <jit/attention.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "tests/device/gpu_fixture.h"
#include "tests/device/sweep.h"
#include "tests/support/random_spec.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using reference::draw;
using reference::Random;

constexpr int kernels_per_batch = 64;

struct RandomKernel {
  AttentionSpec spec;
  bool has_used_keys;  ///< calls have seqused_k
  std::optional<KernelConfig> config = {};
};

RandomKernel random_kernel(Random random, const DeviceLimits& limits) {
  RandomKernel kernel{.spec = reference::random_spec(random), .has_used_keys = draw(random, 0, 4) == 0};
  reference::make_part(kernel.spec, random);
  kernel.spec.sinks = draw(random, 0, 4) == 0;
  const bool is_split = kernel.spec.sinks || kernel.has_used_keys;
  if (is_split) kernel.config = reference::random_split_config(kernel.spec, limits, random);
  // Wide heads beside many functors leave kernels that read sinks too few registers.
  const bool fits = is_split && config_rejection(kernel.spec, *kernel.config, limits).empty();
  if (!fits) {
    kernel.spec.sinks = kernel.has_used_keys = false;
    kernel.config = reference::random_config(kernel.spec, limits, random);
  }
  if (draw(random, 0, 9) == 0) kernel.config.reset();
  return kernel;
}

// Elements of 8 bits, varlen queries and keys, pages: of kernels that serve these, whichever they are.
RandomKernel random_serving_kernel(Random random, const DeviceLimits& limits) {
  RandomKernel kernel{.spec = reference::random_spec(random), .has_used_keys = false};
  AttentionSpec& spec = kernel.spec;
  const bool has_sequences = draw(random, 0, 2) != 0;
  if (has_sequences) reference::make_sequences(spec, random);
  if (!has_sequences || draw(random, 0, 2) == 0) reference::make_fp8(spec, random);
  reference::make_part(spec, random);
  const bool has_split = !has_fp8_queries(spec);
  spec.sinks = has_split && draw(random, 0, 4) == 0;
  kernel.has_used_keys = has_sequences || (has_split && draw(random, 0, 3) == 0);
  const bool needs_split = spec.sinks || kernel.has_used_keys || spec.split_keys != 0;
  for (const bool split : {needs_split || (has_split && draw(random, 0, 1) == 0), has_split}) {
    if (needs_split && !split) break;
    const KernelConfig config = split ? reference::random_split_config(spec, limits, random)
                                      : reference::random_config(spec, limits, random);
    if (!config_rejection(spec, config, limits).empty()) continue;
    kernel.config = config;
    break;
  }
  const bool is_cache = has_narrow_keys(spec) && !has_fp8_queries(spec);
  if (is_cache && limits.arch == Arch{9, 0, 'a'} && spec.alignment == 16 && draw(random, 0, 1) == 0) {
    const KernelConfig config = reference::random_cache_config(spec, limits, random);
    if (config_rejection(spec, config, limits).empty()) kernel.config = config;
  }
  if (draw(random, 0, 2) == 0) kernel.config.reset();
  return kernel;
}

AttentionCase random_case(Random random, const RandomKernel& kernel, bool emulated) {
  const AttentionSpec& spec = kernel.spec;
  const auto length = [&](int least) {
    return random_length(random, least, emulated ? 6 : 16, emulated ? 260 : 1100);
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
  for (int b = 0; kernel.has_used_keys && b < problem.batch; ++b)
    problem.used_keys.push_back(draw(random, 0, problem.seqlen_kv));
  if (is_dense(spec)) return problem;
  for (int b = 0; b < problem.batch; ++b)
    problem.used_queries.push_back(draw(random, 0, draw(random, 0, 1) == 0 ? 4 : problem.seqlen_q));
  problem.seqlen_q = std::max(problem.seqlen_q, 4);
  problem.used_queries[0] =
      std::max(problem.used_queries[0], 1);  // tensors of masks have no rows for no queries
  problem.spare_rows = draw(random, 0, 1) * draw(random, 1, 5);
  return problem;
}

bool needs_tma(const std::optional<KernelConfig>& config) {
  if (!config) return false;
  const auto* const split = std::get_if<ForwardSplitKv>(&*config);
  return std::holds_alternative<ForwardWgmma>(*config) || std::holds_alternative<ForwardMmaTma>(*config) ||
         std::holds_alternative<ForwardSplitWgmma>(*config) ||
         (split != nullptr && split->copies == Copies::tma);
}

class SweepTest : public GpuTest {
 protected:
  using DrawKernel = RandomKernel (*)(Random, const DeviceLimits&);
  void expect_triples_right(const Sweep& sweep, DrawKernel draw_kernel) const;
};

void SweepTest::expect_triples_right(const Sweep& sweep, DrawKernel draw_kernel) const {
  const DeviceLimits limits = device_limits(device_);
  const auto case_of = [&](int triple) -> KernelCase {
    const RandomKernel kernel = draw_kernel(sweep.of_kernel(triple), limits);
    AttentionCase problem = random_case(sweep.of_case(triple), kernel, device_.emulated);
    // TMA cannot run backwards, and refuses where no other kernel may stand in for it.
    if (needs_tma(kernel.config) && problem.layout == Layout::reversed) problem.layout = Layout::bhsd;
    return {problem, kernel.config};
  };

  int count = 0, failures = 0;
  double worst = 0;
  std::string worst_triple;
  const auto batch_of = [&](int triple) { return triple / (kernels_per_batch * Sweep::shapes_per_kernel); };
  const auto prepare_batch = [&](int batch, const Context& context) {
    std::vector<KernelCase> cases;
    for (int triple = sweep.first; triple < sweep.last; ++triple) {
      if (batch_of(triple) == batch) cases.push_back(case_of(triple));
    }
    prepare_all(cases, context);
  };
  // A context for each batch, so that memory stays bounded.
  std::optional<Context> context;
  for (int triple = sweep.first; triple < sweep.last; ++triple) {
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
    ADD_FAILURE() << sweep.failure(triple,
                                   fmt::format("{}\n  config {}\n  {}", to_string(problem),
                                               config ? to_string(*config) : "of the cost model", failure));
    if (++failures == 20) break;
  }
  std::printf(
      "sweep: seed %llu, %d triples of %d kernels, %d failures, worst error %.3f of what is allowed (%s)\n",
      static_cast<unsigned long long>(sweep.seed), count,
      (count + Sweep::shapes_per_kernel - 1) / Sweep::shapes_per_kernel, failures, worst,
      worst_triple.c_str());
}

TEST_F(SweepTest, EveryTripleIsRight) { expect_triples_right(Sweep::wanted(sized(200, 10)), random_kernel); }

TEST_F(SweepTest, EveryTripleOfServingIsRight) {
  expect_triples_right(Sweep::wanted(sized(200, 10)), random_serving_kernel);
}

}  // namespace
}  // namespace jit::testing
