#include "generator/tuning/tuning_record.h"

#include <bit>
#include <vector>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>
#include <nlohmann/json.hpp>

#include "generator/context_state.h"

namespace jit {
namespace {

int log2_ceiling(std::int64_t value) {
  return value <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value - 1)));
}

}  // namespace

SizeClass size_class(const ProblemShape& shape) {
  return {.rows = log2_ceiling(shape.batch * shape.heads_q),
          .seqlen_q = log2_ceiling(shape.seqlen_q),
          .seqlen_kv = log2_ceiling(shape.seqlen_kv),
          .tma = shape.tma};
}

Key tuning_environment(ContextState& context, const DeviceInfo& device, bool exhaustive) {
  return Key{{"library", JIT_ATTENTION_VERSION},
             {"templates", context.templates_digest.hex()},
             {"compiler", context.nvrtc_location().identity},
             {"gpu", device.name},
             {"arch", to_string(native_arch(device))},
             {"multiprocessors", std::to_string(device.sm_count)},
             {"l2_bytes", std::to_string(device.l2_bytes)},
             {"smem_per_block", std::to_string(device.smem_per_block_optin)},
             {"policy", exhaustive ? "exhaustive, events, cold L2" : "first_run, events, cold L2"}};
}

Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes) {
  std::vector<KeyField> fields;
  for (const SpecField& field : spec_fields()) {
    if (field.is_baked) fields.push_back({std::string(field.record_name), key_text(field, spec)});
  }
  fields.push_back({"rows", fmt::format("2^{}", sizes.rows)});
  fields.push_back({"seqlen_q", fmt::format("2^{}", sizes.seqlen_q)});
  fields.push_back({"seqlen_kv", fmt::format("2^{}", sizes.seqlen_kv)});
  fields.push_back({"tma", sizes.tma ? "yes" : "no"});
  return Key(fields);
}

std::string write_record(const TuningResult& result, const ProblemShape& shape, const DeviceInfo& device) {
  const nlohmann::ordered_json json = {{"config", to_string(result.config)},
                                       {"median_us", result.median_us},
                                       {"default_us", result.default_us},
                                       {"candidates", result.candidates},
                                       {"batch", shape.batch},
                                       {"heads_q", shape.heads_q},
                                       {"seqlen_q", shape.seqlen_q},
                                       {"seqlen_kv", shape.seqlen_kv},
                                       {"gpu", device.name},
                                       {"driver", device.driver_version}};
  return json.dump();
}

std::optional<KernelConfig> read_record(const std::string& text, const AttentionSpec& spec,
                                        const DeviceInfo& device) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("config") || !json["config"].is_string()) return std::nullopt;
  try {
    const KernelConfig config = parse_config(json["config"].get<std::string>());
    if (!config_rejection(spec, config, device_limits(device)).empty()) return std::nullopt;
    return config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace jit
