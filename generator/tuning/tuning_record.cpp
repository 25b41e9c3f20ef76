#include "generator/tuning/tuning_record.h"

#include <vector>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>
#include <jit/version.h>

#include "generator/build/json.h"
#include "generator/context/context_state.h"
#include "generator/program/closure.h"

namespace jit {

Key tuning_environment(KernelStore& store, const TuningProblem& problem, bool exhaustive) {
  const DeviceInfo& device = problem.device();
  return Key{{"library", JIT_ATTENTION_VERSION},
             {"templates", store.closures.of(problem.competing_entries()).hex()},
             {"compiler", store.compiler_identity()},
             {"gpu", device.name},
             {"arch", to_string(native_arch(device))},
             {"multiprocessors", std::to_string(device.sm_count)},
             {"l2_bytes", std::to_string(device.l2_bytes)},
             {"smem_per_block", std::to_string(device.smem_per_block_optin)},
             {"policy", exhaustive ? "exhaustive, events, cold L2" : "first_run, events, cold L2"}};
}

Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes, bool deterministic) {
  std::vector<KeyField> fields = {{"pass", to_string(sizes.pass)}};
  for (const SpecField& field : spec_fields()) {
    if (field.is_baked) fields.push_back({std::string(field.record_name), key_text(field, spec)});
  }
  fields.push_back({"rows", fmt::format("2^{}", sizes.rows)});
  fields.push_back({"seqlen_q", fmt::format("2^{}", sizes.seqlen_q)});
  fields.push_back({"seqlen_kv", fmt::format("2^{}", sizes.seqlen_kv)});
  fields.push_back({"tma", sizes.tma ? "yes" : "no"});
  if (sizes.has_device_lengths) fields.push_back({"lengths", "on the device"});
  if (sizes.has_many_heads) fields.push_back({"heads", "more than blocks"});
  if (deterministic) fields.push_back({"deterministic", "yes"});
  return Key(fields);
}

std::string write_record(const TuningResult& result, const TuningProblem& problem) {
  const ProblemShape& shape = problem.shape();
  return JsonObject()
      .add("config", to_string(result.configs))
      .add("median_us", result.median_us)
      .add("default_us", result.default_us)
      .add("candidates", result.candidates)
      .add("batch", shape.batch)
      .add("heads_q", shape.heads_q)
      .add("seqlen_q", shape.seqlen_q)
      .add("seqlen_kv", shape.seqlen_kv)
      .add("gpu", problem.device().name)
      .add("driver", problem.device().driver_version)
      .dump();
}

std::optional<PlanConfigs> read_record(const std::string& text, const TuningProblem& problem) {
  const std::optional<JsonObject> json = parse_json(text);
  const std::optional<std::string> fields = json ? json->text("config") : std::nullopt;
  if (!fields) return std::nullopt;
  try {
    PlanConfigs configs = parse_plan_configs(*fields);
    if (!problem.can_run(configs)) return std::nullopt;
    return configs;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<RecordedConfigs> find_record(ContextState& context, const TuningProblem& problem) {
  const Key operation =
      tuning_operation(problem.spec(), size_class(problem.shape()), problem.deterministic());
  for (const bool exhaustive : {true, false}) {
    if (!exhaustive && context.settings.tuning == TuningMode::exhaustive) continue;
    std::optional<std::string> record =
        context.tuning.load(tuning_environment(context, problem, exhaustive), operation);
    if (!record) continue;
    if (std::optional<PlanConfigs> configs = read_record(*record, problem))
      return RecordedConfigs{*std::move(configs), *std::move(record)};
    context.notify(
        Event::Kind::warning,
        fmt::format("a tuning record names nothing that these calls can run, and is not used: {}", *record));
  }
  return std::nullopt;
}

}  // namespace jit
