#include "generator/kernels/families.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <jit/spec_table.h>
#include <jit/tuning.h>

namespace jit {
namespace {

// Whether two configs are of one family and agree.
bool agree(const KernelConfig& a, const KernelConfig& b, Affects least) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<class Config>(const Config& own) {
        return agree(Family<Config>::fields(), own, std::get<Config>(b), least);
      },
      a);
}

// The shape with the spec's properties that decide which kernels can read the tensors.
ProblemShape as_served(const AttentionSpec& spec, ProblemShape shape) {
  shape.is_plain = is_plain(spec);
  shape.has_device_lengths |= !shape.is_plain;
  return shape;
}

std::vector<std::string> serving_families(const Case& problem, Pass pass) {
  std::vector<std::string> names;
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass == pass && serves<Config>(problem)) names.emplace_back(Family<Config>::name);
  });
  return names;
}

std::string enumerated(const std::vector<std::string>& names) {
  std::string text = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) text += (i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

// The end of a rejection: families that serve the problem on this architecture, else on the first that has
// one; empty if there are none.
std::string who_serves(const Case& problem, Pass pass) {
  const auto sentence = [](const std::vector<std::string>& names, const std::string& where) {
    return fmt::format("; {}{} serve{} it", where, enumerated(names), names.size() == 1 ? "s" : "");
  };
  if (const auto names = serving_families(problem, pass); !names.empty()) return sentence(names, "");
  for (const Arch arch : known_archs()) {
    const DeviceLimits limits = device_limits(arch);
    if (const auto names = serving_families({problem.spec, limits}, pass); !names.empty())
      return sentence(names, fmt::format("on {} ", to_string(arch)));
  }
  return "";
}

}  // namespace

Pass pass_of(const KernelConfig& config) {
  return std::visit([]<class Config>(const Config&) { return Family<Config>::pass; }, config);
}

std::string config_rejection(const Case& problem, const KernelConfig& config) {
  return std::visit(
      [&]<class Config>(const Config& own) {
        std::string reason = family_rejection(problem, own);
        if (!reason.empty() && !serves<Config>(problem)) reason += who_serves(problem, Family<Config>::pass);
        return reason;
      },
      config);
}

std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits) {
  return config_rejection({spec, limits}, config);
}

std::vector<KernelConfig> config_space(const Case& problem, const ProblemShape& shape) {
  std::vector<KernelConfig> configs;
  const ProblemShape served = as_served(problem.spec, shape);
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass != served.pass || !Family<Config>::suits(served)) return;
    for (const Config& config : legal_space<Config>(problem)) {
      if (Family<Config>::can_read(served, config)) configs.push_back(config);
    }
  });
  return configs;
}

bool can_serve(const Case& problem, const ProblemShape& shape, const KernelConfig& config) {
  const ProblemShape served = as_served(problem.spec, shape);
  return std::visit(
             [&]<class Config>(const Config& own) {
               return Family<Config>::pass == served.pass && Family<Config>::suits(served) &&
                      Family<Config>::can_read(served, own) && family_rejection(problem, own).empty();
             },
             config) &&
         has_room(problem, shape, config);
}

bool has_room(const Case& problem, const ProblemShape& shape, const KernelConfig& config) {
  return std::visit(
      [&]<class Config>(const Config& own) { return Family<Config>::has_room(problem.spec, shape, own); },
      config);
}

std::string smallest_rejection(const Case& problem, Pass pass) {
  std::string reasons;
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass != pass) return;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", Family<Config>::name,
                           family_rejection(problem, smallest_of<Config>(problem)));
  });
  return reasons + who_serves(problem, pass);
}

std::vector<std::string> competing_entries(const Case& problem, const ProblemShape& shape) {
  std::vector<std::string> entries;
  const ProblemShape served = as_served(problem.spec, shape);
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass == served.pass && Family<Config>::suits(served) && serves<Config>(problem))
      entries.push_back(fmt::format("{}/kernel.cuh", Family<Config>::name));
  });
  return entries;
}

Footprint footprint(const AttentionSpec& spec, const KernelConfig& config) {
  return std::visit([&]<class Config>(const Config& own) { return Family<Config>::footprint(spec, own); },
                    config);
}

bool reads_device_lengths(const AttentionSpec& spec, const KernelConfig& config) {
  const ProblemShape shape = as_served(spec, {.has_device_lengths = true});
  return std::visit([&]<class Config>(const Config&) { return Family<Config>::suits(shape); }, config);
}

double estimated_cycles(const Case& problem, const ProblemShape& shape, const KernelConfig& config) {
  return std::visit(
      [&]<class Config>(const Config& own) -> double { return Family<Config>::cycles(problem, shape, own); },
      config);
}

std::size_t family_form(const KernelConfig& config) {
  const bool has_kernel_ahead = std::visit(
      []<class Config>(const Config& own) { return Family<Config>::has_kernel_ahead(own); }, config);
  return config.index() + (has_kernel_ahead ? std::variant_size_v<KernelConfig> : 0);
}

double model_error(const AttentionSpec& spec, const KernelConfig& config) {
  return std::visit([&]<class Config>(const Config&) { return Family<Config>::model_error_for(spec); },
                    config);
}

std::optional<KernelConfig> config_for(const KernelConfig& config, Requests requests) {
  return std::visit(
      [&]<class Config>(const Config& own) -> std::optional<KernelConfig> {
        return Family<Config>::for_requests(own, requests);
      },
      config);
}

bool is_of_two(const KernelConfig& config) { return config_for(config, Requests::all) != config; }

bool may_spill(const KernelConfig& config) {
  return std::visit([]<class Config>(const Config&) { return Family<Config>::may_spill; }, config);
}

bool need_alike_registers(const KernelConfig& a, const KernelConfig& b) {
  return agree(a, b, Affects::registers);
}

bool are_near_copies(const KernelConfig& a, const KernelConfig& b) { return agree(a, b, Affects::tiling); }

bool are_near_copies(const PlanConfigs& a, const PlanConfigs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const KernelConfig& x, const KernelConfig& y) { return are_near_copies(x, y); });
}

FamilySteps steps_around(const AttentionSpec& spec, const KernelConfig& config) {
  return std::visit([&]<class Config>(const Config& own) { return Family<Config>::steps(spec, own); },
                    config);
}

QueryStatisticsLayout query_statistics(const KernelConfig& config) {
  return std::visit([]<class Config>(const Config& own) { return Family<Config>::statistics(own); }, config);
}

KernelConfig deterministic_config(const KernelConfig& config) {
  return std::visit(
      []<class Config>(const Config& own) -> KernelConfig { return Family<Config>::deterministic(own); },
      config);
}

std::string family_names(Pass pass) {
  std::vector<std::string_view> names;
  for_each_family([&]<class Config>(const Config&) {
    if (Family<Config>::pass == pass) names.push_back(Family<Config>::name);
  });
  return fmt::format("{}", fmt::join(names, " or "));
}

int most_head_dim(Arch arch) {
  int most = 0;
  for_each_family([&]<class Config>(const Config&) {
    if (is_written_for<Config>(arch)) most = std::max(most, Family<Config>::most_head_dim);
  });
  return most;
}

bool waits_for_keys(Arch arch) {
  bool any = false;
  for_each_family([&]<class Config>(const Config&) {
    any |= Family<Config>::waits_for_keys && is_written_for<Config>(arch);
  });
  return any;
}

Program write_program(const AttentionSpec& spec, const KernelConfig& config) {
  Program program =
      std::visit([&]<class Config>(const Config& own) { return Family<Config>::program(spec, own); }, config);
  program.may_fuse = spec.output.is_none();  // output functors are bitwise identical in all families
  return program;
}

}  // namespace jit
