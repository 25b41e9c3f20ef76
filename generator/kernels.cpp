#include "generator/kernels.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/context_state.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/launch/loaded_kernel.h"
#include "generator/problem/padded_spec.h"
#include "generator/text/unfollowed.h"

namespace jit {
namespace {

// How many configs to try for one that is clean before settling for the least bad: bounds the first compile.
constexpr std::size_t clean_attempts = 4;

// What makes one unclean kernel worse than another: serialised multiplications first, then spills.
std::pair<bool, int> cost(const KernelImage& image) {
  return {image.resources.serializes_wgmma(), image.resources.spill_bytes()};
}

BuiltKernel build_clean(ContextState& context, const AttentionSpec& spec,
                        const std::vector<KernelConfig>& configs, Target target) {
  std::optional<BuiltKernel> best;
  std::vector<KernelConfig> tried;
  for (const KernelConfig& config : configs) {
    if (tried.size() == clean_attempts) break;
    const auto is_alike = [&](const KernelConfig& other) { return need_alike_registers(config, other); };
    if (std::any_of(tried.begin(), tried.end(), is_alike)) continue;
    tried.push_back(config);
    BuiltKernel kernel = build_kernel(context, spec, config, target);
    if (target.form == CodeForm::ptx || kernel.image->resources.is_clean()) return kernel;
    if (!best || cost(*kernel.image) < cost(*best->image)) best = std::move(kernel);
  }
  const ResourceUsage& resources = best->image->resources;
  context.notify(
      Event::Kind::warning,
      fmt::format("{} {}: no clean config was found", best->image->program.name,
                  resources.serializes_wgmma() ? "waits between its multiplications"
                                               : fmt::format("spills {} bytes", resources.spill_bytes())));
  return *best;
}

}  // namespace

bool is_checked(const AttentionSpec& spec, const KernelConfig& config, Target target) {
  return reads_device_lengths(spec, config) && (spec.checked || target.form == CodeForm::ptx);
}

BuiltKernel build_kernel(ContextState& context, const AttentionSpec& spec, const KernelConfig& config,
                         Target target) {
  AttentionSpec written = spec;
  written.checked |= is_checked(spec, config, target);
  Program program = write_program(written, config);
  program.facts = {{"spec", to_string(spec)}, {"config", to_string(config)}};
  return {config, build_image(context, program, target)};
}

BuiltKernel choose_kernel(ContextState& context, const AttentionSpec& spec,
                          const std::optional<KernelConfig>& given, const ProblemShape& shape,
                          const DeviceLimits& limits, Target target) {
  for (const std::string& sentence : unfollowed_texts(spec)) context.tell_once(Event::Kind::note, sentence);
  if (const std::vector<Refusal> refusals = supports(as_given(spec), limits.arch); !refusals.empty()) {
    throw Error(ErrorCode::unsupported_device, "validate", refusals[0].field,
                fmt::format("{} cannot run this: {}", to_string(limits.arch), refusals[0].to_string()));
  }
  if (!given) return build_clean(context, spec, untuned_order(spec, shape, limits), target);
  if (pass_of(*given) != shape.pass) {
    throw Error(
        ErrorCode::no_valid_config, "configure", "config",
        fmt::format("kernels of family={} compute {}, and {} is wanted; give a config of a family for that, "
                    "or none",
                    family_name(*given), to_string(pass_of(*given)), to_string(shape.pass)));
  }
  if (const std::string reason = config_rejection(spec, *given, limits); !reason.empty())
    throw Error(ErrorCode::no_valid_config, "configure", "config", reason);
  return build_kernel(context, spec, *given, target);
}

std::optional<BuiltKernel> choose_kernel_for(ContextState& context, const AttentionSpec& spec,
                                             Requests requests, const std::optional<KernelConfig>& config,
                                             const ProblemShape& shape, const DeviceLimits& limits,
                                             Target target) {
  std::vector<KernelConfig> configs;
  for (const KernelConfig& each : config ? std::vector{*config} : untuned_order(spec, shape, limits)) {
    const std::optional<KernelConfig> own = config_for(each, requests);
    if (own && config_rejection(spec, *own, limits).empty()) configs.push_back(*own);
  }
  if (configs.empty()) return std::nullopt;
  return build_clean(context, spec, configs, target);
}

Plan make_plan(ContextState& context, const AttentionSpec& spec, BuiltKernel kernel, int device,
               std::string why) {
  Plan plan{.spec = spec,
            .config = kernel.config,
            .steps = {},
            .why = std::move(why),
            .is_checked = is_checked(spec, kernel.config, kernel.image->target)};
  add_kernel(context, plan, std::move(kernel), device);
  return plan;
}

void add_kernel(ContextState& context, Plan& plan, BuiltKernel kernel, int device) {
  plan.steps.push_back(
      plan_step(load_kernel(context, std::move(kernel.image), device), plan.spec, kernel.config));
}

}  // namespace jit
