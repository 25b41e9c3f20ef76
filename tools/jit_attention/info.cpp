// jit-attention info: the library's environment on this machine.
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <jit/context.h>
#include <jit/device.h>
#include <jit/error.h>
#include <jit/version.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "command.h"
#include "device_choice.h"
#include "progress.h"

namespace jit::tool {
namespace {

using Json = nlohmann::ordered_json;

Json describe_devices(const std::string& choice) {
  Json json = {{"devices", Json::array()}};
  try {
    if (!choice.empty()) choose_device(choice);
    for (const DeviceInfo& device : devices()) {
      json["devices"].push_back({{"device", device_name(device)},
                                 {"name", device.name},
                                 {"emulated", device.emulated},
                                 {"arch", to_string(native_arch(device))},
                                 {"multiprocessors", device.sm_count},
                                 {"memory_bytes", device.memory_bytes},
                                 {"l2_bytes", device.l2_bytes},
                                 {"smem_per_block_bytes", device.smem_per_block_optin},
                                 {"driver", device.driver_version},
                                 {"uuid", device.uuid}});
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::driver_unavailable) throw;
    json["no_gpu"] = error.message();
  }
  return json;
}

Json describe_nvrtc(const Context& context) {
  try {
    const CompilerLocation nvrtc = context.compiler();
    return {{"path", nvrtc.path},         {"version", nvrtc.version},
            {"found_by", nvrtc.found_by}, {"builtins", nvrtc.builtins_path},
            {"identity", nvrtc.identity}, {"passed_over", nvrtc.passed_over}};
  } catch (const Error& error) {
    return {{"missing", error.message()}};
  }
}

Json describe_packs(const Context& context) {
  Json rows = Json::array();
  for (const PackInUse& pack : context.packs()) {
    rows.push_back({{"path", pack.path},
                    {"entries", pack.entries},
                    {"targets", pack.targets},
                    {"refusal", pack.refusal}});
  }
  return rows;
}

Json describe_settings() {
  Json rows = Json::array();
  for (const SettingDoc& setting : setting_docs()) {
    const char* given = std::getenv(setting.name.c_str());
    const std::string value = given == nullptr ? "" : given;
    rows.push_back({{"name", setting.name},
                    {"value", value.empty() ? setting.default_value : value},
                    {"is_default", value.empty()},
                    {"default", setting.default_value},
                    {"doc", setting.doc}});
  }
  return rows;
}

std::string text(const Json& json, const char* key) { return json.value(key, std::string()); }

void print_text(const Json& info) {
  print("jit-attention {}\n\nDevices\n", text(info, "version"));
  for (const Json& device : info["devices"]) {
    print("  {}  {}, {}, {} multiprocessors, {:.0f} GiB, driver {}\n", text(device, "device"),
          text(device, "name"), text(device, "arch"), device["multiprocessors"].get<int>(),
          device["memory_bytes"].get<double>() / (1 << 30), device["driver"].get<int>());
  }
  if (info.contains("no_gpu")) print("  no GPU: {}\n", text(info, "no_gpu"));

  const Json& nvrtc = info["nvrtc"];
  print("\nNVRTC\n");
  if (nvrtc.contains("missing")) {
    print("  none: {}\n", text(nvrtc, "missing"));
  } else {
    print("  {}, version {}, found by {}\n", text(nvrtc, "path"), text(nvrtc, "version"),
          text(nvrtc, "found_by"));
    for (const Json& other : nvrtc["passed_over"]) print("  passed over: {}\n", other.get<std::string>());
  }

  const Json& cache = info["cache"];
  const std::string folder = text(cache, "directory");
  print("\nCache\n  {} ({})\n", folder.empty() ? "in memory only" : folder, text(cache, "reason"));
  print("\nPacks\n");
  for (const Json& pack : info["packs"]) {
    if (text(pack, "refusal").empty())
      print("  {}, {} entries for {}\n", text(pack, "path"), pack["entries"].get<std::size_t>(),
            text(pack, "targets"));
    else
      print("  {}\n", text(pack, "refusal"));
  }
  if (info["packs"].empty()) print("  none\n");
  print("\nTuning\n  {}\n\nSettings (environment variables)\n", text(info, "tuning"));
  for (const Json& setting : info["settings"]) {
    print("  {} = {}{}\n      {}\n", text(setting, "name"), text(setting, "value"),
          setting["is_default"].get<bool>() ? " (default)" : "", text(setting, "doc"));
  }
}

struct InfoOptions {
  std::string device;
  bool as_json = false;
};

int run_info(const InfoOptions& options) {
  ProgressLine progress;
  const Context context(settings_from_environment(), progress.observer());
  Json info = {{"version", JIT_ATTENTION_VERSION}};
  info.update(describe_devices(options.device));
  info["nvrtc"] = describe_nvrtc(context);
  info["cache"] = {{"directory", context.cache_directory()}, {"reason", context.cache_reason()}};
  info["packs"] = describe_packs(context);
  info["tuning"] = to_string(context.settings().tuning);
  info["settings"] = describe_settings();
  if (options.as_json) {
    print_json(info);
  } else {
    print_text(info);
  }
  return status_ok;
}

}  // namespace

void add_info(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<InfoOptions>();
  CLI::App* command = app.add_subcommand("info", "Devices, compiler, cache folder and settings");
  add_device_option(*command, options->device);
  command->add_flag("--json", options->as_json, "Print JSON");
  commands.push_back({command, [options] { return run_info(*options); }});
}

}  // namespace jit::tool
