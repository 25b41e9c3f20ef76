#include <jit/settings.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <jit/error.h>

#include "runtime/device_selection.h"
#include "runtime/environment.h"

namespace jit {
namespace {

bool is_absolute(std::string_view path) { return path.starts_with('/'); }

bool parse_path(std::string_view text, std::string& path) {
  path = text;
  return is_absolute(text);
}

bool parse_flag(std::string_view text, bool& flag) {
  flag = text == "1";
  return text == "0" || text == "1";
}

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_paths(std::string_view text, std::vector<std::string>& paths) {
  paths = split_paths(text);
  for (const std::string& path : paths) {
    if (!is_absolute(path)) return false;
  }
  return true;
}

bool parse_tuning(std::string_view text, TuningMode& mode) {
  for (TuningMode candidate :
       {TuningMode::off, TuningMode::recorded, TuningMode::first_run, TuningMode::exhaustive}) {
    mode = candidate;
    if (text == to_string(candidate)) return true;
  }
  return false;
}

// All settings from the environment.
struct Environment {
  Settings settings;
  DeviceSettings devices;
};

struct Setting {
  SettingDoc doc;
  std::string_view accepted;
  bool (*parse)(std::string_view text, Environment& values);
};

const std::vector<Setting>& table() {
  constexpr std::string_view absolute_path = "an absolute path";
  static const std::vector<Setting> rows = {
      {{"JIT_ATTENTION_CACHE_DIR", "$XDG_CACHE_HOME/jit-attention",
        "Folder of compiled kernels and tuning results."},
       absolute_path,
       [](std::string_view text, Environment& values) {
         return parse_path(text, values.settings.cache_dir);
       }},
      {{"JIT_ATTENTION_CACHE_MAX_BYTES", "1073741824",
        "Size at which the oldest entries of the cache folder go."},
       "a number of bytes, such as 1073741824",
       [](std::string_view text, Environment& values) {
         return parse_number(text, values.settings.cache_max_bytes);
       }},
      {{"JIT_ATTENTION_READONLY_CACHES", "", "Prebuilt cache folders to look into, separated by colons."},
       "absolute paths separated by colons",
       [](std::string_view text, Environment& values) {
         return parse_paths(text, values.settings.readonly_caches);
       }},
      {{"JIT_ATTENTION_PACK", "",
        "Packs of kernels to look into, made by `jit-attention warm`, separated by colons."},
       "absolute paths separated by colons",
       [](std::string_view text, Environment& values) { return parse_paths(text, values.settings.packs); }},
      {{"JIT_ATTENTION_NO_DISK_CACHE", "0",
        "1 keeps everything in memory: no cache folder is read or written."},
       "0 or 1",
       [](std::string_view text, Environment& values) {
         bool no_disk_cache = false;
         const bool valid = parse_flag(text, no_disk_cache);
         values.settings.disk_cache = !no_disk_cache;
         return valid;
       }},
      {{"JIT_ATTENTION_OFFLINE", "0",
        "1 forbids compiling: a call that neither a cache nor a pack has a kernel for is an error."},
       "0 or 1",
       [](std::string_view text, Environment& values) { return parse_flag(text, values.settings.offline); }},
      {{"JIT_ATTENTION_TUNING", "first_run", "How the config of a kernel is chosen."},
       "off, recorded, first_run or exhaustive",
       [](std::string_view text, Environment& values) { return parse_tuning(text, values.settings.tuning); }},
      {{"JIT_ATTENTION_TUNING_SECONDS", "10", "Time that tuning one problem may take."},
       "a number of seconds above 0, such as 2.5",
       [](std::string_view text, Environment& values) {
         return parse_number(text, values.settings.tuning_seconds) &&
                std::isfinite(values.settings.tuning_seconds) && values.settings.tuning_seconds > 0;
       }},
      {{"JIT_ATTENTION_TEMPLATES", "", "Folder of kernel templates to use instead of the embedded ones."},
       absolute_path,
       [](std::string_view text, Environment& values) {
         return parse_path(text, values.settings.templates);
       }},
      {{"JIT_ATTENTION_NVRTC", "",
        "libnvrtc, or the folder that holds it, to use instead of searching for one."},
       absolute_path,
       [](std::string_view text, Environment& values) { return parse_path(text, values.settings.nvrtc); }},
      {{"JIT_ATTENTION_DEVICE", "cuda", "Where to compute: on GPUs, or on emulated ones."},
       device_selections,
       [](std::string_view text, Environment& values) {
         values.devices.device = text;
         return is_device_selection(text);
       }},
      {{"JIT_ATTENTION_EMULATOR_SEED", "0",
        "Seed of the order in which an emulated device runs warps and completes copies."},
       "a number from 0 to 18446744073709551615",
       [](std::string_view text, Environment& values) {
         return parse_number(text, values.devices.emulator_seed);
       }},
      {{"JIT_ATTENTION_EMULATOR_STEP_LIMIT", "1099511627776",
        "Warp instructions after which an emulated device gives up a block, or a cluster."},
       "a number above 0, such as 1000000000",
       [](std::string_view text, Environment& values) {
         return parse_number(text, values.devices.emulator_step_limit) &&
                values.devices.emulator_step_limit > 0;
       }},
  };
  return rows;
}

Environment read_environment() {
  Environment values;
  for (const Setting& setting : table()) {
    const std::string value = environment(setting.doc.name);
    if (value.empty() || setting.parse(value, values)) continue;
    throw Error(ErrorCode::invalid_argument, "settings", setting.doc.name,
                fmt::format("{} is \"{}\"; accepted: {}", setting.doc.name, value, setting.accepted));
  }
  return values;
}

}  // namespace

std::string_view to_string(TuningMode mode) {
  switch (mode) {
    case TuningMode::off:
      return "off";
    case TuningMode::recorded:
      return "recorded";
    case TuningMode::first_run:
      return "first_run";
    case TuningMode::exhaustive:
      return "exhaustive";
  }
  return "unknown";
}

std::string environment(const std::string& name) {
  const char* value = secure_getenv(name.c_str());
  return value ? value : "";
}

std::vector<std::string> split_paths(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    const std::string_view path = text.substr(0, colon);
    if (!path.empty()) paths.emplace_back(path);
    text.remove_prefix(colon == std::string_view::npos ? text.size() : colon + 1);
  }
  return paths;
}

Settings settings_from_environment() { return read_environment().settings; }

DeviceSettings device_settings_from_environment() { return read_environment().devices; }

const std::vector<SettingDoc>& setting_docs() {
  static const std::vector<SettingDoc> docs = [] {
    std::vector<SettingDoc> rows;
    for (const Setting& setting : table()) rows.push_back(setting.doc);
    return rows;
  }();
  return docs;
}

}  // namespace jit
