#include "generator/tuning/tuning_record.h"

#include <bit>

#include <fmt/format.h>
#include <jit/error.h>
#include <nlohmann/json.hpp>

#include "generator/context_state.h"
#include "generator/program/closure.h"
#include "generator/program/emit.h"

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

Key tuning_environment(ContextState& context, const DeviceInfo& device, bool tma, bool exhaustive) {
  const std::vector<std::string_view> entries = forward_entries(native_arch(device), tma);
  return Key{{"library", JIT_ATTENTION_VERSION},
             {"templates", digest_of(closure(entries, context.templates)).hex()},
             {"compiler", context.nvrtc_location().identity},
             {"gpu", device.name},
             {"arch", to_string(native_arch(device))},
             {"multiprocessors", std::to_string(device.sm_count)},
             {"l2_bytes", std::to_string(device.l2_bytes)},
             {"smem_per_block", std::to_string(device.smem_per_block_optin)},
             {"policy", exhaustive ? "exhaustive, events, cold L2" : "first_run, events, cold L2"}};
}

Key tuning_operation(const AttentionSpec& spec, const SizeClass& sizes) {
  return Key{{"dtype", std::string(to_string(spec.dtype))},
             {"head_dim", std::to_string(spec.head_dim)},
             {"head_dim_v", std::to_string(spec.value_head_dim())},
             {"gqa_ratio", std::to_string(spec.gqa_ratio)},
             {"alignment", std::to_string(spec.alignment)},
             {"baked_seqlen_q", std::to_string(spec.seqlen_q)},
             {"baked_seqlen_kv", std::to_string(spec.seqlen_kv)},
             {"mask", fmt::format("{} {:016x}", spec.mask.to_string(), spec.mask.hash())},
             {"score", fmt::format("{} {:016x}", spec.score.to_string(), spec.score.hash())},
             {"rows", fmt::format("2^{}", sizes.rows)},
             {"seqlen_q", fmt::format("2^{}", sizes.seqlen_q)},
             {"seqlen_kv", fmt::format("2^{}", sizes.seqlen_kv)},
             {"tma", sizes.tma ? "yes" : "no"}};
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
