#include "generator/tuning/tuner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>

#include "generator/context_state.h"
#include "generator/kernels.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/candidates.h"
#include "generator/tuning/select.h"
#include "generator/tuning/tuning_buffers.h"
#include "runtime/driver_api.h"
#include "runtime/timer.h"

namespace jit {
namespace {

using Clock = std::chrono::steady_clock;

// The part of the time that compiling may take; the rest is for measuring.
constexpr double compile_share = 0.6;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Candidate {
  KernelConfig config;
  std::shared_ptr<const KernelImage> image;
  std::optional<Plan> plan;
  std::string trouble;  // why it dropped out
};

std::vector<KernelConfig> pick_candidates(const TuningProblem& problem, bool exhaustive) {
  const DeviceLimits limits = device_limits(problem.device);
  const ProblemShape shape = shape_of(problem.params);
  return exhaustive ? ranked_configs(problem.spec, shape, limits)
                    : first_run_candidates(problem.spec, shape, limits);
}

// Compiles all candidates on all cores, in order of promise, until the time is up.
void compile_candidates(ContextState& context, const TuningProblem& problem,
                        std::vector<Candidate>& candidates, Clock::time_point start, double seconds) {
  std::atomic<std::size_t> next = 0;
  std::atomic<int> done = 0;
  const Target target = native_target(problem.device);
  const auto work = [&] {
    for (std::size_t i = next++; i < candidates.size(); i = next++) {
      Candidate& candidate = candidates[i];
      if (i > 0 && seconds_since(start) > seconds) {
        candidate.trouble = "no time left to compile it";
        continue;
      }
      try {
        candidate.image = build_kernel(context, problem.spec, candidate.config, target).image;
      } catch (const std::exception& error) {
        candidate.trouble = error.what();
      }
      context.notify(Event::Kind::tune, "compiling candidates", seconds_since(start), ++done,
                     static_cast<int>(candidates.size()));
    }
  };
  const std::size_t threads =
      std::min<std::size_t>(candidates.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> pool;
  for (std::size_t i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
}

// A kernel that the assembler could not keep clean is not what its config was meant to be, where its family
// says so. One stays in any case.
void drop_unclean(std::vector<Candidate>& candidates) {
  const auto is_unclean = [](const Candidate& candidate) {
    return candidate.image && !may_spill(candidate.config) && !candidate.image->resources.is_clean();
  };
  const auto clean = std::find_if_not(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return !candidate.image || is_unclean(candidate);
  });
  if (clean == candidates.end()) return;
  candidates.erase(candidates.begin(), clean);
  std::erase_if(candidates, is_unclean);
}

}  // namespace

TuningResult tune(ContextState& context, const TuningProblem& problem, bool exhaustive) {
  const Clock::time_point start = Clock::now();
  const double seconds =
      exhaustive ? std::numeric_limits<double>::infinity() : context.settings.tuning_seconds;
  std::vector<Candidate> candidates;
  for (const KernelConfig& config : pick_candidates(problem, exhaustive))
    candidates.emplace_back().config = config;
  compile_candidates(context, problem, candidates, start, seconds * compile_share);
  // The cost model's config is what runs when nothing is better; if it does not compile, nothing will.
  if (!candidates[0].image) {
    build_kernel(context, problem.spec, candidates[0].config, native_target(problem.device));
  }

  drop_unclean(candidates);

  const CurrentDevice scope(problem.device.ordinal);
  EventTimer timer(problem.device.ordinal);
  TuningBuffers buffers(context, problem, timer.stream());

  // A check is also the warm-up that loads the code.
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    if (!candidate.image) continue;
    if (i > 0 && seconds_since(start) > seconds) {
      candidate.trouble = "no time left to check it";
      continue;
    }
    try {
      candidate.plan = make_plan(context, problem.spec, {candidate.config, candidate.image},
                                 problem.device.ordinal, "candidate");
      candidate.trouble = buffers.check(*candidate.plan, timer.stream());
    } catch (const Error& error) {
      candidate.trouble = error.what();
    }
  }
  std::erase_if(candidates,
                [](const Candidate& candidate) { return !candidate.plan && candidate.trouble.empty(); });

  std::vector<std::size_t> running;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].trouble.empty()) running.push_back(i);
  }
  TuningResult result;
  result.config = candidates[0].config;
  if (!candidates[0].trouble.empty()) {
    throw Error(ErrorCode::launch_failed, "tune", "config",
                fmt::format("the default config {} failed: {}", to_string(candidates[0].config),
                            candidates[0].trouble));
  }

  int measured = 0;
  const auto measure = [&](std::size_t i) -> double {
    const Plan& plan = *candidates[running[i]].plan;
    try {
      const Timing timing = timer.measure(
          [&](CUstream stream) {
            AttentionParams params = buffers.params();
            run_plan(plan, params, context.memory, stream);
          },
          0, 1);
      if (++measured % 16 == 0) {
        context.notify(Event::Kind::tune, "measuring candidates", seconds_since(start), static_cast<int>(i),
                       static_cast<int>(running.size()));
      }
      return timing.median_us;
    } catch (const Error& error) {
      candidates[running[i]].trouble = error.what();
      return -1;
    }
  };
  const Selection selection =
      select_fastest(running.size(), measure, [&] { return seconds_since(start); }, {.seconds = seconds});
  const Candidate& chosen = candidates[running[selection.chosen]];
  result.config = chosen.config;
  result.median_us = selection.timings[selection.chosen].median;
  result.default_us = selection.timings[0].median;
  result.candidates = static_cast<int>(running.size());
  result.out_of_time = selection.out_of_time;
  for (std::size_t i = 0, r = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const bool ran = r < running.size() && running[r] == i;
    const std::string outcome =
        ran && candidate.trouble.empty()
            ? fmt::format("{:.2f} us ({} samples){}", selection.timings[r].median,
                          selection.timings[r].samples, r == selection.chosen ? ", chosen" : "")
            : candidate.trouble;
    const std::string spills =
        candidate.image && candidate.image->resources.spill_bytes() > 0
            ? fmt::format(", spills {} bytes", candidate.image->resources.spill_bytes())
            : "";
    result.log.push_back(fmt::format("{}: {}{}", to_string(candidate.config), outcome, spills));
    if (ran) ++r;
  }
  context.notify(Event::Kind::tune, fmt::format("chose {}", to_string(result.config)), seconds_since(start),
                 static_cast<int>(running.size()), static_cast<int>(running.size()));
  return result;
}

}  // namespace jit
