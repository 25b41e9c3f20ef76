#include "generator/plan/kernel_choice.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/build/kernel_store.h"
#include "generator/functors/unfollowed.h"
#include "generator/kernels/families.h"
#include "generator/kernels/fixed_bits.h"
#include "generator/kernels/search.h"
#include "generator/launch/loaded_kernel.h"
#include "generator/problem/kernel_spec.h"

namespace jit {
namespace {

// Number of configs to try for a clean kernel, which bounds the first compile.
constexpr std::size_t clean_attempts = 4;

// The order of unclean kernels: first those without serialized wgmma, then by spills.
std::pair<bool, int> cost(const KernelImage& image) {
  return {image.resources.serializes_wgmma(), image.resources.spill_bytes()};
}

Program program_of(const AttentionSpec& spec, const KernelConfig& config, Target target) {
  AttentionSpec kernel_spec = spec;
  kernel_spec.checked |= is_checked(spec, config, target);
  Program program = write_program(kernel_spec, config);
  // Forbids contraction: whether a multiply and add are fused would be the compiler's choice in each kernel.
  if (pass_of(config) == Pass::forward && has_fixed_bits(spec)) program.may_fuse = false;
  program.facts = {{"spec", to_string(spec)}, {"config", to_string(config)}};
  return program;
}

// The first clean kernel that find(config) returns, else the best of the first few; none if it returns none.
std::optional<BuiltKernel> first_clean(
    KernelStore& store, const std::vector<KernelConfig>& configs, Target target,
    const std::function<std::optional<BuiltKernel>(const KernelConfig&)>& find) {
  std::optional<BuiltKernel> best;
  std::vector<KernelConfig> tried;
  for (const KernelConfig& config : configs) {
    if (tried.size() == clean_attempts) break;
    const auto is_alike = [&](const KernelConfig& other) { return need_alike_registers(config, other); };
    if (std::any_of(tried.begin(), tried.end(), is_alike)) continue;
    std::optional<BuiltKernel> kernel = find(config);
    if (!kernel) continue;
    tried.push_back(config);
    if (target.form == CodeForm::ptx || kernel->image->resources.is_clean()) return kernel;
    if (!best || cost(*kernel->image) < cost(*best->image)) best = std::move(kernel);
  }
  if (!best) return std::nullopt;
  const ResourceUsage& resources = best->image->resources;
  store.notify(
      Event::Kind::warning,
      fmt::format("{} {}: no clean config was found", best->image->program.name,
                  resources.serializes_wgmma() ? "waits between its multiplications"
                                               : fmt::format("spills {} bytes", resources.spill_bytes())));
  return best;
}

// Throws Error unsupported_device if no kernel of the spec runs there.
void check_runs(KernelStore& store, const AttentionSpec& spec, const DeviceLimits& limits) {
  for (const std::string& sentence : unfollowed_texts(spec)) store.tell_once(Event::Kind::note, sentence);
  const std::vector<Refusal> refusals = refusals_of(as_given(spec), limits.arch);
  if (refusals.empty()) return;
  throw Error(ErrorCode::unsupported_device, "validate", refusals[0].field,
              fmt::format("{} cannot run this: {}", to_string(limits.arch), refusals[0].to_string()));
}

}  // namespace

bool is_out_of_reach(const Error& error) {
  return error.code() == ErrorCode::offline || error.code() == ErrorCode::nvrtc_unavailable;
}

void remark_stand_in(std::string& why) {
  constexpr const char* remark = "; in place of a kernel that is not at hand";
  if (!why.ends_with(remark)) why += remark;
}

void tell_of_stand_in(KernelStore& store, const AttentionSpec& spec, Target target) {
  store.tell_once(
      Event::Kind::warning,
      fmt::format(
          "{} for {}: the kernels that are chosen for some calls are neither in the cache nor in a "
          "pack, and {}; those calls run the best kernel of the spec that is there, which is as right "
          "and may be slower; a pack has theirs whose --max-batch, --max-seqlen and --multiprocessors (in "
          "write_pack max_batch, max_seqlen) cover them",
          to_string(spec), to_string(target),
          store.settings.offline ? "compiling is forbidden (JIT_ATTENTION_OFFLINE)"
                                 : "there is no NVRTC to compile them"));
}

bool is_checked(const AttentionSpec& spec, const KernelConfig& config, Target target) {
  return reads_device_lengths(spec, config) && (spec.checked || target.form == CodeForm::ptx);
}

BuiltKernel build_kernel(KernelStore& store, const AttentionSpec& spec, const KernelConfig& config,
                         Target target) {
  return {config, build_image(store, program_of(spec, config, target), target)};
}

std::optional<BuiltKernel> kernel_at_hand(KernelStore& store, const AttentionSpec& spec,
                                          const KernelConfig& config, Target target) {
  std::shared_ptr<const KernelImage> image = image_at_hand(store, program_of(spec, config, target), target);
  return image ? std::optional<BuiltKernel>({config, std::move(image)}) : std::nullopt;
}

BuiltKernel choose_among(KernelStore& store, const AttentionSpec& spec,
                         const std::vector<KernelConfig>& configs, Target target, Missing missing) {
  try {
    return *first_clean(store, configs, target, [&](const KernelConfig& config) {
      return build_kernel(store, spec, config, target);
    });
  } catch (const Error& error) {
    const bool may_replace =
        missing == Missing::is_replaced && (spec.split_keys == 0 || has_fixed_bits(spec));
    if (!may_replace || !is_out_of_reach(error)) throw;
    std::optional<BuiltKernel> kernel = first_clean(store, configs, target, [&](const KernelConfig& config) {
      return kernel_at_hand(store, spec, config, target);
    });
    if (!kernel) throw;
    kernel->is_fallback = true;
    tell_of_stand_in(store, spec, target);
    return *std::move(kernel);
  }
}

BuiltKernel choose_kernel(KernelStore& store, const AttentionSpec& spec,
                          const std::optional<KernelConfig>& given, const ProblemShape& shape,
                          const DeviceLimits& limits, Target target, Missing missing) {
  check_runs(store, spec, limits);
  if (!given) return choose_among(store, spec, untuned_order(spec, shape, limits), target, missing);
  if (pass_of(*given) != shape.pass) {
    throw Error(
        ErrorCode::no_valid_config, "configure", "config",
        fmt::format("kernels of family={} compute {}, and {} is wanted; give a config of a family for that, "
                    "or none",
                    family_name(*given), to_string(pass_of(*given)), to_string(shape.pass)));
  }
  if (const std::string reason = config_rejection(spec, *given, limits); !reason.empty())
    throw Error(ErrorCode::no_valid_config, "configure", "config", reason);
  return build_kernel(store, spec, *given, target);
}

std::optional<BuiltKernel> choose_one_pass(KernelStore& store, const AttentionSpec& spec,
                                           const ProblemShape& shape, bool deterministic,
                                           const DeviceLimits& limits, Target target) {
  check_runs(store, spec, limits);
  const std::vector<KernelConfig> configs = untuned_order(spec, shape, limits, deterministic);
  if (configs.empty()) return std::nullopt;
  return choose_among(store, spec, configs, target, Missing::is_an_error);
}

std::vector<KernelConfig> configs_for(const AttentionSpec& spec, Requests requests,
                                      const std::optional<KernelConfig>& config, const ProblemShape& shape,
                                      const DeviceLimits& limits) {
  std::vector<KernelConfig> configs;
  for (const KernelConfig& each : config ? std::vector{*config} : untuned_order(spec, shape, limits)) {
    const std::optional<KernelConfig> own = config_for(each, requests);
    if (own && config_rejection(spec, *own, limits).empty()) configs.push_back(*own);
  }
  return configs;
}

std::optional<BuiltKernel> choose_kernel_for(KernelStore& store, const AttentionSpec& spec, Requests requests,
                                             const std::optional<KernelConfig>& config,
                                             const ProblemShape& shape, const DeviceLimits& limits,
                                             Target target, Missing missing) {
  const std::vector<KernelConfig> configs = configs_for(spec, requests, config, shape, limits);
  if (configs.empty()) return std::nullopt;
  return choose_among(store, spec, configs, target, missing);
}

Plan make_plan(KernelStore& store, const AttentionSpec& spec, BuiltKernel kernel, int device,
               std::string why) {
  Plan plan{.spec = spec,
            .config = kernel.config,
            .steps = {},
            .why = std::move(why),
            .is_checked = is_checked(spec, kernel.config, kernel.image->target)};
  add_kernel(store, plan, std::move(kernel), device);
  return plan;
}

void add_kernel(KernelStore& store, Plan& plan, BuiltKernel kernel, int device) {
  plan.steps.push_back(
      plan_step(load_kernel(store, std::move(kernel.image), device), plan.spec, kernel.config));
}

}  // namespace jit
