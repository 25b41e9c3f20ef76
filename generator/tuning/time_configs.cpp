#include "generator/tuning/time_configs.h"

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/tuning/tune.h"
#include "runtime/parallel.h"
#include "runtime/timer.h"

namespace jit {
namespace {

// Runs `step` for each config without trouble; records failures as its trouble.
template <class Step>
void for_each_sound(std::span<ConfigTiming> timings, const Step& step) {
  for (std::size_t i = 0; i < timings.size(); ++i) {
    if (!timings[i].trouble.empty()) continue;
    try {
      step(i);
    } catch (const Error& error) {
      timings[i].trouble = error.message();
    }
  }
}

std::vector<ConfigTiming> time_configs(ContextState& state, const TuningProblem& problem,
                                       std::span<const PlanConfigs> configs, int samples) {
  const CurrentDevice scope(problem.device().ordinal);
  EventTimer timer(problem.device().ordinal);
  const std::unique_ptr<const TuningBuffers> buffers = problem.buffers(state, timer.stream());
  if (buffers->batch() != problem.params().batch) {
    throw Error(ErrorCode::invalid_argument, "tune", "batch",
                fmt::format("batch: is {}, of which half of the free memory holds {}; give as many",
                            problem.params().batch, buffers->batch()));
  }
  std::vector<ConfigTiming> timings;
  for (const PlanConfigs& own : configs)
    timings.push_back({.configs = own, .trouble = problem.rejection(own)});
  compile_configs(state, problem, timings);

  std::vector<std::optional<Plan>> plans(timings.size());
  for_each_sound(timings, [&](std::size_t i) {
    plans[i] = problem.plan(state, timings[i].configs, "given");
    timings[i].trouble = buffers->check(*plans[i], timer.stream());
  });
  std::vector<std::vector<float>> samples_us(timings.size());
  for (int sample = 0; sample < samples; ++sample) {
    state.notify(Event::Kind::tune, "measuring", 0, sample, samples);
    for_each_sound(timings, [&](std::size_t i) {
      const auto work = [&](Stream stream) { buffers->run(*plans[i], stream); };
      samples_us[i].push_back(static_cast<float>(timer.measure(work, 0, 1).median_us));
    });
  }
  for_each_sound(timings, [&](std::size_t i) { timings[i].timing = summarize(std::move(samples_us[i])); });
  return timings;
}

}  // namespace

void compile_configs(ContextState& context, const TuningProblem& problem, std::span<ConfigTiming> timings) {
  std::atomic<int> done = 0;
  in_parallel(timings.size(), [&](std::size_t i) {
    ConfigTiming& timing = timings[i];
    try {
      if (timing.trouble.empty()) {
        const auto images = problem.build(context, timing.configs);
        for (std::size_t k = 0; k < timing.configs.size(); ++k) {
          timing.kernels.push_back(Access::kernel(context.shared_from_this(), problem.spec(),
                                                  timing.configs[k], images[k], "given"));
        }
      }
    } catch (const std::exception& error) {
      timing.trouble = error.what();
    }
    context.notify(Event::Kind::tune, "compiling", 0, ++done, static_cast<int>(timings.size()));
  });
}

std::vector<ConfigTiming> time_configs(const AttentionSpec& spec, const AttentionArguments& arguments,
                                       std::span<const PlanConfigs> configs, int samples,
                                       const Context& context) {
  return time_configs(*Access::state(context), tuning_problem(spec, arguments), configs, samples);
}

std::vector<ConfigTiming> time_configs(const AttentionSpec& spec, const BackwardArguments& arguments,
                                       std::span<const PlanConfigs> configs, int samples,
                                       const Context& context) {
  return time_configs(*Access::state(context), tuning_problem(spec, arguments), configs, samples);
}

}  // namespace jit
