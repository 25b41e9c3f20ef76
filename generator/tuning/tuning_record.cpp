#include "generator/tuning/tuning_record.h"

#include <vector>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>

#include "generator/context_state.h"
#include "generator/json.h"
#include "generator/kernels/families.h"
#include "generator/problem/arguments.h"
#include "generator/program/closure.h"

namespace jit {
Key tuning_environment(ContextState& context, const AttentionSpec& spec, const DeviceInfo& device,
                       const ProblemShape& shape, bool exhaustive) {
  const DeviceLimits limits = device_limits(device);
  const std::vector<std::string> entries = competing_entries({spec, limits}, shape);
  return Key{{"library", JIT_ATTENTION_VERSION},
             {"templates", context.closures.of(entries).hex()},
             {"compiler", context.compiler_identity()},
             {"gpu", device.name},
             {"arch", to_string(native_arch(device))},
             {"multiprocessors", std::to_string(device.sm_count)},
             {"l2_bytes", std::to_string(device.l2_bytes)},
             {"smem_per_block", std::to_string(device.smem_per_block_optin)},
             {"policy", exhaustive ? "exhaustive, events, cold L2" : "first_run, events, cold L2"}};
}

Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes) {
  std::vector<KeyField> fields = {{"pass", to_string(sizes.pass)}};
  for (const SpecField& field : spec_fields()) {
    if (field.is_baked) fields.push_back({std::string(field.record_name), key_text(field, spec)});
  }
  fields.push_back({"rows", fmt::format("2^{}", sizes.rows)});
  fields.push_back({"seqlen_q", fmt::format("2^{}", sizes.seqlen_q)});
  fields.push_back({"seqlen_kv", fmt::format("2^{}", sizes.seqlen_kv)});
  fields.push_back({"tma", sizes.tma ? "yes" : "no"});
  if (sizes.has_device_lengths) fields.push_back({"lengths", "on the device"});
  return Key(fields);
}

std::string write_record(const TuningResult& result, const ProblemShape& shape, const DeviceInfo& device) {
  return JsonObject()
      .add("config", to_string(result.config))
      .add("median_us", result.median_us)
      .add("default_us", result.default_us)
      .add("candidates", result.candidates)
      .add("batch", shape.batch)
      .add("heads_q", shape.heads_q)
      .add("seqlen_q", shape.seqlen_q)
      .add("seqlen_kv", shape.seqlen_kv)
      .add("gpu", device.name)
      .add("driver", device.driver_version)
      .dump();
}

std::optional<KernelConfig> read_record(const std::string& text, const AttentionSpec& spec,
                                        const DeviceInfo& device) {
  const std::optional<JsonObject> json = parse_json(text);
  const std::optional<std::string> fields = json ? json->text("config") : std::nullopt;
  if (!fields) return std::nullopt;
  try {
    const KernelConfig config = parse_config(*fields);
    if (pass_of(config) != Pass::forward || !config_rejection(spec, config, device_limits(device)).empty())
      return std::nullopt;
    return config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<RecordedConfig> find_record(ContextState& context, const AttentionSpec& spec,
                                          const DeviceInfo& device, const ProblemShape& shape) {
  const Key operation = tuning_operation(spec, size_class(shape));
  for (const bool exhaustive : {true, false}) {
    if (!exhaustive && context.settings.tuning == TuningMode::exhaustive) continue;
    std::optional<std::string> record =
        context.tuning.load(tuning_environment(context, spec, device, shape, exhaustive), operation);
    if (!record) continue;
    if (const std::optional<KernelConfig> config = read_record(*record, spec, device))
      return RecordedConfig{*config, *std::move(record)};
  }
  return std::nullopt;
}

}  // namespace jit
