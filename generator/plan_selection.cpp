// Selects plans for forward calls of new sizes: tuned, mixed, or untuned.
#include "generator/plan_selection.h"

#include <future>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/device.h>

#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/plan/documents_plan.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/problem/kernel_spec.h"
#include "generator/size_key.h"
#include "generator/tuning/tune.h"
#include "generator/tuning/tuning_record.h"
#include "runtime/capture.h"
#include "runtime/driver_api.h"
#include "templates/scheduling/request_kinds.cuh"

namespace jit {
namespace {

Digest device_key(int device, const ProblemShape& shape) {
  return spread(
      static_cast<std::uint64_t>(device) << 5 | static_cast<std::uint64_t>(shape.has_many_heads) << 4 |
      static_cast<std::uint64_t>(shape.pass) << 2 |
      static_cast<std::uint64_t>(shape.has_device_lengths) << 1 | static_cast<std::uint64_t>(shape.tma));
}

const Plan* keep(DispatchTable<Plan>& table, const Digest& key, Plan plan) {
  return table.insert(key, std::make_unique<const Plan>(std::move(plan)));
}

Plan plan_of(const AttentionState& state, const AttentionSpec& spec, BuiltKernel kernel,
             const DeviceInfo& device, std::string why) {
  return make_plan(state.context, spec, std::move(kernel), device.ordinal, std::move(why));
}

// The plan of the given config or of the cost model's choice for `shape`. If the chosen kernel cannot be
// compiled, the best available one replaces it.
Plan untuned_plan(const AttentionState& state, const DeviceInfo& device, const ProblemShape& shape,
                  std::string why) {
  const AttentionSpec spec = forward_spec(state.spec, shape.has_device_lengths);
  BuiltKernel kernel = choose_kernel(state.context, spec, state.given, shape, device_limits(device),
                                     native_target(device), Missing::is_replaced);
  if (kernel.is_fallback) remark_stand_in(why);
  return plan_of(state, spec, std::move(kernel), device, std::move(why));
}

// Some requests of mixed calls, and the configs of their kernel: the one recorded for calls of their sizes, else the cost
// model's.
struct RequestConfigs {
  Requests requests;
  ProblemShape shape;
  bool is_recorded;
  std::vector<KernelConfig> configs;
};

RequestConfigs configs_of(const AttentionState& state, const DeviceInfo& device, Requests requests,
                          const ProblemShape& shape) {
  const DeviceLimits limits = device_limits(device);
  if (state.context.settings.tuning != TuningMode::off && !device.emulated && can_time(state.spec)) {
    const ForwardProblem problem(state.spec, device, shape);
    const auto recorded = find_record(state.context, problem);
    const auto config = recorded ? config_for(recorded->configs.front(), requests) : std::nullopt;
    // Some configs cannot be compiled for a subset of requests.
    if (config) {
      std::vector<KernelConfig> own = configs_for(state.spec, requests, config, shape, limits);
      if (!own.empty()) return {requests, shape, true, std::move(own)};
    }
  }
  return {requests, shape, false, configs_for(state.spec, requests, {}, shape, limits)};
}

// The kernel of these configs, or the best available one.
BuiltKernel kernel_for(const AttentionState& state, const DeviceInfo& device, const RequestConfigs& own) {
  const Target target = native_target(device);
  if (!own.is_recorded)
    return choose_among(state.context, state.spec, own.configs, target, Missing::is_replaced);
  try {
    return choose_among(state.context, state.spec, own.configs, target, Missing::is_an_error);
  } catch (const Error& error) {
    if (!is_out_of_reach(error)) throw;
  }
  const std::vector<KernelConfig> ranked =
      configs_for(state.spec, own.requests, {}, own.shape, device_limits(device));
  return choose_among(state.context, state.spec, ranked, target, Missing::is_replaced);
}

// A plan of two kernels for a call that mixes requests of many and of few queries. The kernel for few runs
// before the other one, or in two launches of half its blocks around it (generator/launch/split_work.cpp).
// None if a kernel does not support these tensors, or is neither available nor can be compiled.
std::optional<Plan> mixed_plan(const AttentionState& state, const DeviceInfo& device,
                               const ProblemShape& shape) {
  const AttentionSpec& spec = state.spec;
  if (shape.surplus_q == 0 || spec.split_keys != 0 || spec.dropout) return std::nullopt;
  try {
    const RequestConfigs of_many = configs_of(state, device, Requests::many_queries, shape_of_many(shape));
    if (of_many.configs.empty()) return std::nullopt;
    const RequestConfigs of_few = configs_of(state, device, Requests::few_queries, shape_of_few(shape));
    if (of_few.configs.empty()) return std::nullopt;
    // Both compile at once; where no thread can be started, one after the other.
    std::future<BuiltKernel> other = std::async([&] { return kernel_for(state, device, of_few); });
    BuiltKernel many = kernel_for(state, device, of_many), few = other.get();
    std::string why = fmt::format("cost model; beside requests of more than {} queries, those by {}",
                                  few_queries, to_string(many.config));
    if (many.is_fallback || few.is_fallback) remark_stand_in(why);
    Plan plan = plan_of(state, state.spec, std::move(few), device, std::move(why));
    PlanStep second_half = plan.steps.front();
    second_half.turn = 1;
    add_kernel(state.context, plan, std::move(many), device.ordinal);
    plan.steps.push_back(std::move(second_half));
    return plan;
  } catch (const Error& error) {
    if (!is_out_of_reach(error)) throw;
    return std::nullopt;
  }
}

// A given config is used as given, but calls that it would compute wrongly are rejected.
void check_given(const AttentionState& state, const AttentionParams& params) {
  const std::string_view argument = device_length_argument(params);
  if (!state.given || argument.empty() || reads_device_lengths(forward_spec(state.spec, true), *state.given))
    return;
  throw Error(
      ErrorCode::invalid_argument, "launch", std::string(argument),
      fmt::format("{}: is not read by kernels of family={}, whose config was given; give no config, or one "
                  "of another family",
                  argument, family_name(*state.given)));
}

// The plan for these sizes, chosen as the settings say. Requires: state.choosing is held.
Plan plan_for_sizes(const AttentionState& state, int device, const AttentionParams& params) {
  const ForwardProblem problem = forward_problem(state.spec, device_info(device), params);
  const ProblemShape& shape = problem.shape();
  if (state.given) return *default_plan(state, device, shape);
  if (shape.seqlen_kv != 0) {
    if (std::optional<Plan> mixed = mixed_plan(state, problem.device(), shape)) return *std::move(mixed);
    if (std::optional<Plan> documents = documents_plan(state.context, state.spec, shape, problem.device()))
      return *std::move(documents);
  }
  return choose_plan(state.context, problem, [&](std::string why) {
    return untuned_plan(state, problem.device(), shape, std::move(why));
  });
}

}  // namespace

const Plan* default_plan(const AttentionState& state, int device, const ProblemShape& shape) {
  const Digest key = device_key(device, shape);
  if (const Plan* known = state.defaults.find(key)) return known;
  const DeviceInfo info = device_info(device);
  ProblemShape typical = typical_shape(device_limits(info), state.spec);
  typical.tma = shape.tma;
  typical.has_device_lengths = shape.has_device_lengths;
  typical.has_many_heads = shape.has_many_heads;
  return keep(state.defaults, key,
              untuned_plan(state, info, typical, state.given ? "given" : "cost model, typical sizes"));
}

const Plan* prepared_plan(const AttentionState& state, int device, const AttentionParams& params) {
  check_given(state, params);
  const Digest key = size_key(device, shape_of(params));
  const std::lock_guard lock(state.choosing);
  if (const Plan* known = state.by_size.find(key)) return known;
  const RelaxedCapture relaxed;
  const CurrentDevice scope(device);
  return keep(state.by_size, key, plan_for_sizes(state, device, params));
}

const Plan* plan_for_new_sizes(const AttentionState& state, int device, const AttentionParams& params,
                               Stream stream) {
  if (!is_capturing(stream)) {
    // Tuning reads the tensors of mask and score on its own stream, so earlier work of the caller's stream
    // must have written them.
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
    return prepared_plan(state, device, params);
  }
  check_given(state, params);
  if (const Plan* known = state.defaults.find(device_key(device, shape_of(params)))) return known;
  if (state.deferred) {
    const std::lock_guard lock(state.choosing);
    const RelaxedCapture relaxed;
    return default_plan(state, device, shape_of(params));
  }
  throw Error(
      ErrorCode::not_prepared, "launch", "stream",
      "the stream is being captured and no kernel is loaded on this device: call prepare() with these "
      "arguments before the capture begins");
}

}  // namespace jit
