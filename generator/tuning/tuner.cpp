#include "generator/tuning/tuner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/error.h>

#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/tuning/candidates.h"
#include "generator/tuning/compile_ahead.h"
#include "generator/tuning/select.h"
#include "generator/tuning/tuning_buffers.h"
#include "runtime/driver_api.h"
#include "runtime/timer.h"

namespace jit {
namespace {

using Clock = std::chrono::steady_clock;

// The share of the time for compiling; the rest is for measuring.
constexpr double compile_share = 0.6;
// First samples of a checked candidate: enough to detect that it cannot win.
constexpr int first_samples = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The candidates to measure. In an exhaustive search, predictions exclude none.
std::vector<Candidate> pick_candidates(const TuningProblem& problem, bool exhaustive) {
  std::vector<Candidate> candidates = problem.candidates(exhaustive);
  if (exhaustive) {
    for (Candidate& candidate : candidates) candidate.error = std::numeric_limits<double>::infinity();
  }
  return candidates;
}

// The state of a candidate.
struct Progress {
  std::vector<std::shared_ptr<const KernelImage>> images = {};  // once compiled
  std::optional<Plan> plan = {};                                // once checked and timed
  std::string trouble = {};                                     // why it was dropped
};

// Whether a kernel spills or serializes wgmma although its family excludes that for its config.
bool is_unclean(const Candidate& candidate, const Progress& progress) {
  if (progress.images.empty()) return false;
  for (std::size_t i = 0; i < candidate.configs.size(); ++i) {
    if (!may_spill(candidate.configs[i]) && !progress.images[i]->resources.is_clean()) return true;
  }
  return false;
}

int spill_bytes(const Progress& progress) {
  int bytes = 0;
  for (const auto& image : progress.images) bytes += image->resources.spill_bytes();
  return bytes;
}

// One search: compiles candidates ahead in ranked order, and checks and times each as it becomes ready.
class Search {
 public:
  Search(ContextState& context, const TuningProblem& problem, bool exhaustive)
      : context_(context),
        problem_(problem),
        seconds_(exhaustive ? std::numeric_limits<double>::infinity() : context.settings.tuning_seconds),
        candidates_(pick_candidates(problem, exhaustive)),
        progress_(candidates_.size()),
        prospects_(candidates_) {}

  TuningResult run() {
    const CurrentDevice scope(problem_.device().ordinal);
    EventTimer timer(problem_.device().ordinal);
    const std::unique_ptr<const TuningBuffers> buffers = try_candidates(timer);
    return choose(*buffers, timer);
  }

 private:
  static constexpr const char* too_far_behind = "predicted too far behind to win";

  bool is_timed(std::size_t i) const { return progress_[i].plan && progress_[i].trouble.empty(); }
  bool is_late(double share = 1) const { return seconds_since(start_) > seconds_ * share; }

  void compile(std::size_t i) {
    try {
      progress_[i].images = problem_.build(context_, candidates_[i].configs);
    } catch (const std::exception& error) {
      progress_[i].trouble = error.what();
    }
    context_.notify(Event::Kind::tune, "compiling candidates", seconds_since(start_), ++compiled_,
                    static_cast<int>(candidates_.size()));
  }

  // Checks and times all candidates that may win; unclean ones only if no clean one works.
  std::unique_ptr<const TuningBuffers> try_candidates(EventTimer& timer) {
    const std::vector<Program> checks = problem_.check_programs();
    const auto work = [&](std::size_t job) {
      if (job >= checks.size()) return compile(job - checks.size());
      try {
        build_image(context_, checks[job], native_target(problem_.device()));
      } catch (const std::exception&) {  // the thread that needs the kernel meets the error again
      }
    };
    const auto is_wanted = [&](std::size_t job) {
      const bool is_needed = job <= checks.size();  // including the cost model's choice
      return is_needed || (!is_late(compile_share) && prospects_.may_win(job - checks.size()));
    };
    CompileAhead ahead(checks.size() + candidates_.size(), work, is_wanted);
    std::unique_ptr<const TuningBuffers> buffers = problem_.buffers(context_, timer.stream());
    std::vector<std::size_t> unclean, jobs(candidates_.size());
    std::iota(jobs.begin(), jobs.end(), checks.size());
    while (!jobs.empty()) {
      const std::size_t job = ahead.wait(jobs), i = job - checks.size();
      std::erase(jobs, job);
      // The cost model's choice is the default. If it does not compile, the search fails.
      if (i == 0 && progress_[0].images.empty()) {
        progress_[0].images = problem_.build(context_, candidates_[0].configs);
        progress_[0].trouble.clear();
      }
      if (is_unclean(candidates_[i], progress_[i])) {
        unclean.push_back(i);
      } else {
        try_candidate(i, *buffers, timer);
      }
      if (!is_timed(i)) prospects_.add_failure(i);
    }
    // Candidates that were timed before the leaders are dropped, too, so that chance does not decide who takes part.
    for (std::size_t i = 1; i < candidates_.size(); ++i) {
      if (is_timed(i) && !prospects_.may_win(i)) progress_[i].trouble = too_far_behind;
    }
    if (!any_works_) {
      std::ranges::sort(unclean);
      for (const std::size_t i : unclean) try_candidate(i, *buffers, timer);
    }
    if (!any_works_) throw failure_of(0);
    return buffers;
  }

  Error failure_of(std::size_t i) const {
    return Error(
        ErrorCode::launch_failed, "tune", "config",
        fmt::format("the config {} failed: {}", to_string(candidates_[i].configs), progress_[i].trouble));
  }

  // Checks, then times a candidate. The check also loads the code and warms up.
  void try_candidate(std::size_t i, const TuningBuffers& buffers, EventTimer& timer) {
    Progress& progress = progress_[i];
    if (!progress.trouble.empty()) return;
    const bool may_be_dropped = i != 0 && any_works_;
    if (may_be_dropped && !prospects_.may_win(i)) {
      progress.trouble = too_far_behind;
    } else if (progress.images.empty() || (may_be_dropped && is_late())) {
      progress.trouble = "no time left for it";
    } else {
      try {
        Plan plan = problem_.plan(context_, candidates_[i].configs, "candidate");
        progress.trouble = buffers.check(plan, timer.stream());
        if (progress.trouble.empty()) prospects_.add(i, time(plan, buffers, timer, first_samples));
        progress.plan = std::move(plan);
      } catch (const Error& error) {
        progress.trouble = error.what();
      }
      any_works_ |= progress.trouble.empty();
      if (i == 0 && !progress.trouble.empty()) throw failure_of(0);
    }
  }

  static double time(const Plan& plan, const TuningBuffers& buffers, EventTimer& timer, int samples) {
    return timer.measure([&](CUstream stream) { buffers.run(plan, stream); }, 0, samples).median_us;
  }

  TuningResult choose(const TuningBuffers& buffers, EventTimer& timer) {
    std::vector<std::size_t> running;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (is_timed(i)) running.push_back(i);
    }
    int measured = 0;
    const auto measure = [&](std::size_t i) -> double {
      try {
        if (++measured % 16 == 0) {
          context_.notify(Event::Kind::tune, "measuring candidates", seconds_since(start_),
                          static_cast<int>(i), static_cast<int>(running.size()));
        }
        return time(*progress_[running[i]].plan, buffers, timer, 1);
      } catch (const Error& error) {
        progress_[running[i]].trouble = error.what();
        return -1;
      }
    };
    const Selection selection =
        select_fastest(running.size(), measure, [&] { return seconds_since(start_); }, {.seconds = seconds_});
    TuningResult result;
    result.configs = candidates_[running[selection.chosen]].configs;
    result.median_us = selection.timings[selection.chosen].median;
    result.default_us = selection.timings[0].median;
    result.candidates = static_cast<int>(running.size());
    result.out_of_time = selection.out_of_time;
    result.log = log(running, selection);
    for (std::size_t i = 0; i < result.log.size(); ++i) {
      context_.notify(Event::Kind::tune, result.log[i], seconds_since(start_), static_cast<int>(i + 1),
                      static_cast<int>(result.log.size()));
    }
    context_.notify(Event::Kind::tuned,
                    fmt::format("{} for {}", to_string(result.configs), to_string(problem_.spec())),
                    seconds_since(start_), result.candidates, result.candidates);
    return result;
  }

  std::vector<std::string> log(const std::vector<std::size_t>& running, const Selection& selection) const {
    std::vector<std::string> lines;
    for (std::size_t i = 0, r = 0; i < candidates_.size(); ++i) {
      const Progress& progress = progress_[i];
      const bool ran = r < running.size() && running[r] == i;
      std::string outcome = progress.trouble.empty() ? "not clean, and others are" : progress.trouble;
      if (ran && progress.trouble.empty()) {
        outcome = fmt::format("{:.2f} us ({} samples){}", selection.timings[r].median,
                              selection.timings[r].samples, r == selection.chosen ? ", chosen" : "");
      }
      if (const int bytes = spill_bytes(progress); bytes > 0)
        outcome += fmt::format(", spills {} bytes", bytes);
      lines.push_back(fmt::format("{}: {}", to_string(candidates_[i].configs), outcome));
      if (ran) ++r;
    }
    return lines;
  }

  ContextState& context_;
  const TuningProblem& problem_;
  const double seconds_;
  const Clock::time_point start_ = Clock::now();
  const std::vector<Candidate> candidates_;
  std::vector<Progress> progress_;
  Prospects prospects_;
  std::atomic<int> compiled_ = 0;
  bool any_works_ = false;  // a candidate was checked and timed
};

}  // namespace

TuningResult tune(ContextState& context, const TuningProblem& problem, bool exhaustive) {
  return Search(context, problem, exhaustive).run();
}

}  // namespace jit
