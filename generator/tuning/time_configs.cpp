#include "generator/tuning/time_configs.h"

#include <atomic>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/access.h"
#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/kernels/families.h"
#include "generator/tuning/tune.h"
#include "runtime/parallel.h"
#include "runtime/timer.h"

namespace jit {
namespace {

// Does `step` for each that has no trouble; a failure becomes its trouble.
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

}  // namespace

void compile_configs(ContextState& context, const AttentionSpec& spec, Target target,
                     std::span<ConfigTiming> timings) {
  std::atomic<int> done = 0;
  in_parallel(timings.size(), [&](std::size_t i) {
    ConfigTiming& timing = timings[i];
    try {
      if (timing.trouble.empty()) {
        timing.kernel = Access::kernel(context.shared_from_this(), spec, timing.config,
                                       build_kernel(context, spec, timing.config, target).image, "given");
      }
    } catch (const std::exception& error) {
      timing.trouble = error.what();
    }
    context.notify(Event::Kind::tune, "compiling", 0, ++done, static_cast<int>(timings.size()));
  });
}

std::vector<ConfigTiming> time_configs(const AttentionSpec& spec, const AttentionArguments& arguments,
                                       std::span<const KernelConfig> configs, int samples,
                                       const Context& context) {
  ContextState& state = *Access::state(context);
  const ForwardProblem problem = tuning_problem(spec, arguments);
  const DeviceInfo& device = problem.device();
  const CurrentDevice scope(device.ordinal);
  EventTimer timer(device.ordinal);
  const std::unique_ptr<const TuningBuffers> buffers = problem.buffers(state, timer.stream());
  if (buffers->batch() != problem.params().batch) {
    throw Error(ErrorCode::invalid_argument, "tune", "batch",
                fmt::format("batch: is {}, of which half of the free memory holds {}; give as many",
                            problem.params().batch, buffers->batch()));
  }
  std::vector<ConfigTiming> timings;
  for (const KernelConfig& config : configs) {
    ConfigTiming& timing = timings.emplace_back(ConfigTiming{.config = config});
    timing.trouble = pass_of(config) == Pass::forward
                         ? config_rejection(spec, config, device)
                         : fmt::format("kernels of family={} compute gradients", family_name(config));
  }
  compile_configs(state, spec, native_target(device), timings);

  std::vector<std::optional<Plan>> plans(timings.size());
  for_each_sound(timings, [&](std::size_t i) {
    const KernelConfig& config = timings[i].config;
    plans[i] = make_plan(state, spec, {config, Access::image(*timings[i].kernel)}, device.ordinal, "given");
    timings[i].kernel =
        Access::kernel(Access::state(context), spec, config, plans[i]->steps.front().kernel.image, "given");
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

}  // namespace jit
