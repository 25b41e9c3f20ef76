// Makes packs of the kernels that processes will choose, by making the same choices.
#include <jit/pack.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/output_file.h>
#include <jit/spec_table.h>
#include <jit/version.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/search.h"
#include "generator/pack/pack_shapes.h"
#include "generator/pack/quantizer_kernels.h"
#include "generator/pack/serving_kernels.h"
#include "generator/pack/training_kernels.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/kernel_spec.h"
#include "runtime/parallel.h"

namespace jit {
namespace {

// A pass of a spec on a device, with the sizes of its calls.
struct Problem {
  AttentionSpec spec;
  DeviceLimits limits;
  Target target;
  std::vector<ProblemShape> shapes;  // of one pass
  Pass pass = Pass::forward;
  OutputFunctor output = {};   // of a backward pass, whose own kernels do not apply it
  bool deterministic = false;  // gradients are added in a fixed order
};

// The problem of a backward pass, whose kernels ignore sinks.
Problem of_pass(Problem problem, Pass pass) {
  problem.output = problem.spec.output;
  problem.spec = gradient_spec(std::move(problem.spec));
  problem.pass = pass;
  for (ProblemShape& shape : problem.shapes) shape.pass = pass;
  return problem;
}

// A spec and a kind of device to pack it for.
struct SpecOnTarget {
  const AttentionSpec& spec;
  const PackTarget& devices;
  Target target() const { return {devices.arch, devices.emulated ? CodeForm::ptx : CodeForm::cubin}; }
};

// Each spec with all targets that can run it.
std::vector<SpecOnTarget> on_targets(std::span<const AttentionSpec> specs,
                                     std::span<const PackTarget> targets, const KernelStore& store) {
  std::vector<SpecOnTarget> all;
  for (const AttentionSpec& spec : specs) {
    validate(spec);
    const auto runs = [&](const PackTarget& target) { return refusals_of(spec, target.arch).empty(); };
    const bool is_served = std::any_of(targets.begin(), targets.end(), runs);
    for (const PackTarget& target : targets) {
      if (runs(target)) {
        all.push_back({spec, target});
        continue;
      }
      const std::string reason = fmt::format("{} cannot run {}: {}", to_string(target.arch), to_string(spec),
                                             refusals_of(spec, target.arch)[0].to_string());
      if (!is_served) throw Error(ErrorCode::unsupported_device, "pack", "targets", reason);
      store.notify(Event::Kind::note, reason + "; the pack has it for other targets alone");
    }
  }
  return all;
}

std::vector<Problem> problems_of(std::span<const SpecOnTarget> all, const PackSizes& sizes) {
  std::vector<Problem> problems;
  for (const SpecOnTarget& each : all) {
    for (const int multiprocessors : each.devices.multiprocessors) {
      DeviceLimits limits = device_limits(each.devices.arch);
      limits.sm_count = multiprocessors;
      Problem problem{each.spec, limits, each.target(), {}};
      problem.shapes = pack_shapes(each.spec, sizes);
      problem.shapes.push_back(
          typical_shape(limits, each.spec));  // attention() itself chooses a kernel for this shape
      if (sizes.training) {
        for (const Pass pass : training_passes(each.spec, limits)) {
          const Problem own = of_pass(problem, pass);
          problems.push_back(own);
          if (pass != Pass::backward || !has_deterministic(own.spec, {.pass = pass}, limits)) continue;
          problems.push_back(own);
          problems.back().deterministic = true;
        }
      }
      problems.push_back(std::move(problem));
    }
  }
  return problems;
}

// Builds of kernels that serve all sizes.
std::vector<KernelBuild> shared_builds(std::span<const SpecOnTarget> all, const PackSizes& sizes) {
  std::vector<KernelBuild> builds;
  const auto add = [&](std::vector<KernelBuild> own) {
    std::move(own.begin(), own.end(), std::back_inserter(builds));
  };
  for (const SpecOnTarget& each : all) {
    if (sizes.training) add(of_shared_gradients(each.spec, each.target()));
    if (sizes.serving) add(of_operations(each.spec, sizes, each.target()));
    add(of_quantizers(each.spec, each.target()));
  }
  return builds;
}

void extend(PackedKernel& kernel, const ProblemShape& shape) {
  const std::int64_t rows = shape.batch * shape.heads_q;
  const auto upcast = [&](std::int64_t& least, std::int64_t& most, std::int64_t value) {
    least = kernel.sizes == 0 ? value : std::min(least, value);
    most = std::max(most, value);
  };
  upcast(kernel.least_rows, kernel.most_rows, rows);
  upcast(kernel.least_seqlen_q, kernel.most_seqlen_q, shape.seqlen_q);
  upcast(kernel.least_seqlen_kv, kernel.most_seqlen_kv, shape.seqlen_kv);
  ++kernel.sizes;
}

// Chooses kernels for all shapes of all problems, as calls do. Chosen kernels go into the pack; the context
// also holds others that were tried.
class Choosing {
 public:
  /// `others` is the number of later builds, for progress.
  Choosing(KernelStore& store, std::span<const Problem> problems, const PackSizes& sizes, std::size_t others,
           int jobs)
      : store_(store),
        problems_(problems),
        steps_(first_steps()),
        mixed_(mixed_steps(sizes)),
        jobs_(static_cast<std::size_t>(jobs)),
        total_(steps_.size() + mixed_.size() + others) {}

  void run() {
    choose(steps_);
    // A clean first config serves all its sizes; otherwise sizes are searched, each in its own order.
    std::vector<Step> rest;
    for (const Step& step : steps_) {
      const KernelImage& image = *step.chosen->image;
      const bool is_clean = image.target.form == CodeForm::ptx || image.resources.is_clean();
      if (step.chosen->config == step.first && is_clean) {
        for (const std::size_t shape : step.shapes) extend(serving_[image.key], shape_of(step, shape));
        continue;
      }
      for (const std::size_t shape : step.shapes) rest.push_back({step.problem, step.first, {shape}, {}});
    }
    total_ += rest.size();
    choose(rest);
    for (const Step& step : rest) extend(serving_[step.chosen->image->key], shape_of(step, step.shapes[0]));
    std::vector<KernelBuild> beside = beside_steps(steps_);
    std::ranges::move(beside_steps(rest), std::back_inserter(beside));
    total_ += beside.size();
    build(beside);
    run_mixed();
  }

  /// Builds kernels that serve all sizes.
  void build(std::span<const KernelBuild> builds) {
    std::vector<std::string> keys(builds.size());
    for_each_in_parallel(builds.size(), [&](std::size_t i) { keys[i] = builds[i](store_)->key; });
    for (const std::string& key : keys) serving_[key].all_sizes = true;
  }

  /// The sizes that each kernel serves, by key.
  const std::map<std::string, PackedKernel>& serving() const { return serving_; }

 private:
  struct Step {
    const Problem* problem;
    KernelConfig first;
    std::vector<std::size_t> shapes;
    std::optional<BuiltKernel> chosen;
  };

  // A choice of one of the two kernels of a mixed call.
  struct MixedStep {
    const Problem* problem;
    RequestShape of;
    bool is_last;  // of the problem, whose first and last step need a kernel each
  };

  static const ProblemShape& shape_of(const Step& step, std::size_t shape) {
    return step.problem->shapes[shape];
  }

  std::optional<BuiltKernel> choose_for(const MixedStep& step) {
    const Problem& problem = *step.problem;
    return choose_kernel_for(store_, problem.spec, step.of.requests, {}, step.of.shape, problem.limits,
                             problem.target);
  }

  // The first config for each shape of each problem, grouped by config.
  std::vector<Step> first_steps() const {
    std::vector<Step> steps;
    for (const Problem& problem : problems_) {
      std::vector<Step> own;
      const std::vector<KernelConfig> firsts =
          first_untuned(problem.spec, problem.shapes, problem.limits, problem.deterministic);
      for (std::size_t shape = 0; shape < firsts.size(); ++shape) {
        auto step = std::find_if(own.begin(), own.end(),
                                 [&](const Step& known) { return known.first == firsts[shape]; });
        if (step == own.end()) step = own.insert(own.end(), {&problem, firsts[shape], {}, {}});
        step->shapes.push_back(shape);
      }
      std::move(own.begin(), own.end(), std::back_inserter(steps));
    }
    return steps;
  }

  // The kernels around those of backward passes that were chosen.
  static std::vector<KernelBuild> beside_steps(const std::vector<Step>& steps) {
    std::vector<KernelBuild> builds;
    for (const Step& step : steps) {
      if (step.problem->pass != Pass::backward) continue;
      std::ranges::move(around_one_pass(step.problem->spec, step.problem->output, step.chosen->config,
                                        step.problem->target),
                        std::back_inserter(builds));
    }
    return builds;
  }

  std::vector<MixedStep> mixed_steps(const PackSizes& sizes) const {
    std::vector<MixedStep> steps;
    for (const Problem& problem : problems_) {
      if (problem.pass != Pass::forward) continue;
      const std::vector<RequestShape> shapes = mixed_shapes(problem.spec, sizes);
      for (std::size_t i = 0; i < shapes.size(); ++i)
        steps.push_back({&problem, shapes[i], i + 1 == shapes.size()});
    }
    return steps;
  }

  // Chooses kernels for mixed calls of problems that have both kernels.
  void run_mixed() {
    std::set<const Problem*> lacking;
    for (std::size_t first = 0, i = 0; i < mixed_.size(); ++i) {
      if (!mixed_[i].is_last) continue;
      if (!choose_for(mixed_[first]) || !choose_for(mixed_[i])) lacking.insert(mixed_[i].problem);
      first = i + 1;
    }
    std::vector<std::string> keys(mixed_.size());
    for_each_in_parallel(mixed_.size(), [&](std::size_t i) {
      if (lacking.contains(mixed_[i].problem)) return;
      if (const auto kernel = choose_for(mixed_[i])) keys[i] = kernel->image->key;
    });
    for (std::size_t i = 0; i < mixed_.size(); ++i) {
      if (!keys[i].empty()) extend(serving_[keys[i]], mixed_[i].of.shape);
    }
  }

  void choose(std::vector<Step>& steps) {
    for_each_in_parallel(steps.size(), [&](std::size_t i) {
      Step& step = steps[i];
      const Problem& problem = *step.problem;
      const ProblemShape& shape = shape_of(step, step.shapes[0]);
      step.chosen = problem.pass == Pass::backward
                        ? choose_one_pass(store_, problem.spec, shape, problem.deterministic, problem.limits,
                                          problem.target)
                        : choose_kernel(store_, problem.spec, {}, shape, problem.limits, problem.target);
    });
  }

  // Calls f for each number below `count` in parallel, until one throws; then rethrows that exception.
  template <class F>
  void for_each_in_parallel(std::size_t count, const F& f) {
    std::mutex mutex;
    std::exception_ptr failure;
    in_parallel(
        count,
        [&](std::size_t i) {
          {
            const std::lock_guard lock(mutex);
            if (failure) return;
          }
          try {
            f(i);
          } catch (...) {
            const std::lock_guard lock(mutex);
            failure = std::current_exception();
          }
          tell_progress();
        },
        jobs_);
    if (failure) std::rethrow_exception(failure);
  }

  void tell_progress() {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    store_.notify(Event::Kind::tune, "compiling for the pack", seconds, ++done_, static_cast<int>(total_));
  }

  KernelStore& store_;
  std::span<const Problem> problems_;
  std::vector<Step> steps_;
  std::vector<MixedStep> mixed_;
  std::size_t jobs_;
  std::size_t total_;  // known choices and builds of all stages
  std::atomic<int> done_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::map<std::string, PackedKernel> serving_;
};

// Forwards each warning once, since many sizes cause the same one.
Observer without_repetition(Observer observer) {
  struct Told {
    std::mutex mutex;
    std::set<std::string> messages;
  };
  return [observer = std::move(observer), told = std::make_shared<Told>()](const Event& event) {
    if (!observer) return;
    if (event.kind == Event::Kind::warning) {
      const std::lock_guard lock(told->mutex);
      if (!told->messages.insert(event.message).second) return;
    }
    observer(event);
  };
}

std::string fact_of(const Program& program, std::string_view name) {
  for (const auto& [known, value] : program.facts) {
    if (known == name) return value;
  }
  return "";
}

void check_sizes(const PackSizes& sizes) {
  constexpr std::int64_t most = std::int64_t{1} << 24;
  const auto check = [&](const char* field, std::int64_t value) {
    if (value >= 1 && value <= most) return;
    throw Error(ErrorCode::invalid_argument, "pack", field,
                fmt::format("{} is {}; it must be from 1 to {}", field, value, most));
  };
  check("heads_q", sizes.heads_q);
  check("max_batch", sizes.max_batch);
  check("max_seqlen", sizes.max_seqlen);
  check("rotary_dim", sizes.append.rotary_dim == 0 ? 1 : sizes.append.rotary_dim);
}

// Rejects empty lists: a pack without kernels would only fail later, on a machine that cannot compile.
void check_is_any(const char* field, bool is_any) {
  if (is_any) return;
  throw Error(ErrorCode::invalid_argument, "pack", field,
              fmt::format("{} is empty; a pack wants at least one", field));
}

}  // namespace

PackContents write_pack(const std::string& path, std::span<const AttentionSpec> specs,
                        std::span<const PackTarget> targets, const PackSizes& sizes, const Context& context,
                        int jobs) {
  check_sizes(sizes);
  if (jobs < 0) {
    throw Error(ErrorCode::invalid_argument, "pack", "jobs",
                fmt::format("jobs is {}; it must be at least 1, or 0 for as many as there are cores", jobs));
  }
  const OutputFile output(path);
  check_is_any("specs", !specs.empty());
  check_is_any("targets", !targets.empty());
  // A fresh context, which in the end holds what the pack needs.
  const Context fresh(context.settings(), without_repetition(Access::state(context)->observer));
  ContextState& state = *Access::state(fresh);
  const std::vector<SpecOnTarget> all = on_targets(specs, targets, state);
  const std::vector<Problem> problems = problems_of(all, sizes);
  const std::vector<KernelBuild> shared = shared_builds(all, sizes);  // early, because it may throw
  Choosing choosing(state, problems, sizes, shared.size(), jobs);
  choosing.run();
  choosing.build(shared);

  PackContents contents;
  std::vector<PackedEntry> entries;
  for (const std::shared_ptr<const KernelImage>& image : state.images.results()) {
    const auto serving = choosing.serving().find(image->key);
    PackedKernel kernel = serving != choosing.serving().end() ? serving->second : PackedKernel{};
    kernel.spec = fact_of(image->program, "spec");
    kernel.config = fact_of(image->program, "config");
    kernel.target = to_string(image->target);
    kernel.name = image->program.name;
    kernel.key = image->key;
    kernel.compile_ms = image->compile_ms;
    kernel.cached = image->cached;
    entries.emplace_back(entry_of(state, *image));
    kernel.bytes = entries.back().bytes.size();
    contents.kernels.push_back(std::move(kernel));
  }
  std::sort(contents.kernels.begin(), contents.kernels.end(),
            [](const PackedKernel& a, const PackedKernel& b) {
              return std::tie(a.spec, a.target, b.sizes, a.key) < std::tie(b.spec, b.target, a.sizes, b.key);
            });

  std::string made_for;
  for (const Problem& problem : problems) {
    const std::string target = to_string(problem.target);
    if (("\n" + made_for + "\n").find("\n" + target + "\n") == std::string::npos)
      made_for += (made_for.empty() ? "" : "\n") + target;
  }
  const std::vector<KeyField> facts = {{pack_fact::library, JIT_ATTENTION_VERSION},
                                       {pack_fact::compiler, state.compiler_identity()},
                                       {pack_fact::targets, made_for}};
  const std::vector<std::byte> pack = encode_pack(facts, std::move(entries));
  output.write({pack});
  std::error_code unchanged;  // keeps the mode on failure; else readable by every user, writable by the owner
  if (output.replaces()) std::filesystem::permissions(path, std::filesystem::perms(0644), unchanged);
  contents.bytes = pack.size();
  return contents;
}

}  // namespace jit
